"""Negative controls: a micro-batch written without the protocol, in two halves with a crash
point between them.

A kill at that point shows the checker what it must see: a batch that is noted as done last is
written twice, one that is noted first is lost in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twophase.internals.failpoints import failpoint

LOSSES = "losses"
"""The control that notes a batch before its rows; any other notes it after them."""


def write_in_halves(
    folder: Path, number: int, control: str, point: str, write: Callable[[int], None]
) -> None:
    """Write a micro-batch once more than is good for it, or once less, if a kill comes in between.

    Args:
        folder: for the notes of what is done.
        number: the micro-batch.
        control: `duplicates` or `losses`.
        point: the crash point between the halves.
        write: writes half 0 or half 1, visible at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"done-{number}"
    if done.exists():
        return
    if control == LOSSES:
        done.touch()
    write(0)
    failpoint(point)
    write(1)
    done.touch()


def insert(cursor: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert orders into the table `orders` of MySQL."""
    cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s, %s, %s)", rows)

"""Redistribution of operator state when the parallelism changes from p to q.

The three schemes are Flink's (OperatorStateStore): `split` for list state, `union`, and
`broadcast`. All are pure, keep the order of entries, and work for any p >= 0 and q >= 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from twophase.protocol.operator_state import Redistribution

T = TypeVar("T")


def redistribute(
    scheme: Redistribution, states: Sequence[Sequence[T]], parallelism: int
) -> list[list[T]]:
    """Redistribute the states of p subtasks to q subtasks.

    Args:
        scheme: split: every entry goes to exactly one subtask, evenly; union: every subtask gets
            all entries; broadcast: every subtask gets the entries of one old subtask (all
            old ones are equal).
        states: the entries of each old subtask.
        parallelism: q, at least 1.

    Raises:
        ValueError: `parallelism` is less than 1, or broadcast states differ.
    """
    if parallelism < 1:
        raise ValueError(f"parallelism {parallelism} is less than 1")
    match scheme:
        case Redistribution.SPLIT:
            return _split([entry for state in states for entry in state], parallelism)
        case Redistribution.UNION:
            return [[entry for state in states for entry in state] for _ in range(parallelism)]
        case Redistribution.BROADCAST:
            first = list(states[0]) if states else []
            if any(list(state) != first for state in states):
                raise ValueError("broadcast state differs between subtasks")
            return [list(first) for _ in range(parallelism)]


def _split(entries: list[T], parallelism: int) -> list[list[T]]:
    share, rest = divmod(len(entries), parallelism)
    bounds = [index * share + min(index, rest) for index in range(parallelism + 1)]
    return [entries[low:high] for low, high in pairwise(bounds)]

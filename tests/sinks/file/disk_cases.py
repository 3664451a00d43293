"""What `test_small_disk.py` runs on a tmpfs of one megabyte: python -m
tests.sinks.file.disk_cases FOLDER CASE.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.staged_sink_harness import FileHarness, commit, orders
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import DeclinedError, PreflightError


def _remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def full_before_the_decision(folder: Path) -> None:
    table = FileHarness(folder / "orders")
    sink = table.opened()
    with pytest.raises(DeclinedError, match="No space left on device"):
        table.write(
            sink, [{"id": n, "name": os.urandom(100_000).hex(), "amount": 0.0} for n in range(20)]
        )
    sink.abort(sink.in_doubt())
    assert (table.files(), table.staged()) == ([], [])
    assert commit(sink, table.write(sink, orders(range(5)), 1)) == [Committed()]
    assert len(table.rows_visible()) == 5


def full_after_the_decision(folder: Path) -> None:
    """Each partition needs a folder, and on a tmpfs a folder needs an inode."""
    table = FileHarness(folder / "orders", partition_by=["name"])
    sink = table.opened()
    piece = table.write(sink, orders(range(50)))
    used = os.statvfs(folder).f_files - os.statvfs(folder).f_ffree
    _remount(folder, f"nr_inodes={used + 20}")
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "No space left on device" in outcome.reason
    assert len(table.rows_visible()) == 20
    _remount(folder, "nr_inodes=10000")
    assert commit(sink, piece) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == list(range(50))
    assert table.staged() == []


def full_at_open(folder: Path) -> None:
    (folder / "orders").mkdir()
    used = os.statvfs(folder).f_files - os.statvfs(folder).f_ffree
    _remount(folder, f"nr_inodes={used + 2}")
    with pytest.raises(PreflightError, match="No space left on device"):
        FileHarness(folder / "orders").opened()
    _remount(folder, "nr_inodes=10000")
    FileHarness(folder / "orders").opened()


def read_only_at_open(folder: Path) -> None:
    FileHarness(folder / "orders").opened()
    _remount(folder, "ro")
    with pytest.raises(PreflightError, match="cannot be written"):
        FileHarness(folder / "orders").opened()
    _remount(folder, "rw")
    FileHarness(folder / "orders").opened()


def read_only_before_the_decision(folder: Path) -> None:
    table = FileHarness(folder / "orders")
    sink = table.opened()
    _remount(folder, "ro")
    with pytest.raises(DeclinedError, match="Read-only file system"):
        table.write(sink, orders(range(5)))
    assert (table.files(), table.staged()) == ([], [])
    _remount(folder, "rw")
    assert commit(sink, table.write(sink, orders(range(5)), 1)) == [Committed()]
    assert len(table.rows_visible()) == 5


def read_only_after_the_decision(folder: Path) -> None:
    table = FileHarness(folder / "orders", partition_by=["name"])
    sink = table.opened()
    piece = table.write(sink, orders(range(5)))
    _remount(folder, "ro")
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "Read-only file system" in outcome.reason
    assert table.files() == []
    _remount(folder, "rw")
    assert commit(sink, piece) == [Committed()]
    assert len(table.rows_visible()) == 5


CASES: dict[str, Callable[[Path], None]] = {
    case.__name__: case
    for case in (
        full_before_the_decision,
        full_after_the_decision,
        full_at_open,
        read_only_at_open,
        read_only_before_the_decision,
        read_only_after_the_decision,
    )
}


if __name__ == "__main__":
    CASES[sys.argv[2]](Path(sys.argv[1]))
    sys.stdout.write(f"{sys.argv[2]}: as it should be\n")

"""A Delta table read from its files, without Spark and without any code of the product.

For tables that are only appended to, without column mapping or deletion vectors. It reads a version
by Delta's protocol in its simplest form: the files that an `add` names and no `remove` removes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq

from harness import checker
from harness.poller import Poller

Action = dict[str, Any]

_LOG = "_delta_log"
_PARQUET_END = b"PAR1"


def commits(table: Path) -> list[Path]:
    """Return the files of the log, oldest first; none if there is no table."""
    return sorted(path for path in (table / _LOG).glob("*.json") if path.stem.isdigit())


def actions(commit: Path) -> list[Action]:
    """Return the actions of one commit."""
    return [json.loads(line) for line in commit.read_text().splitlines()]


def live_files(table: Path) -> list[str]:
    """Return the data files of the newest version, relative to the table."""
    files: dict[str, None] = {}
    for commit in commits(table):
        for action in actions(commit):
            if "add" in action:
                assert "deletionVector" not in action["add"], (
                    "this reader knows no deletion vectors"
                )
                files[unquote(action["add"]["path"])] = None
            if "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
    return list(files)


def count(table: Path) -> int:
    """Return the number of rows in the newest version, by the log's statistics for each file."""
    return sum(map(added_rows, commits(table)))


def added_rows(commit: Path) -> int:
    """Return the number of rows that one commit appended."""
    added = (action["add"] for action in actions(commit) if "add" in action)
    return sum(json.loads(add["stats"])["numRecords"] for add in added)


def unnamed_files(table: Path) -> set[str]:
    """Return the data files that no commit names."""
    there = {
        str(path.relative_to(table)) for path in table.rglob("*.parquet") if _LOG not in path.parts
    }
    return there - {*live_files(table)}


def complete_unnamed_file(table: Path, part: int) -> bool:
    """Return whether a task has completed a data file that no commit names."""
    names = (name for name in unnamed_files(table) if f"-part-{part:05d}-" in name)
    return any((table / name).read_bytes().endswith(_PARQUET_END) for name in names)


def orders(table: Path) -> checker.Records:
    """Yield every row of a table of orders, for the checker."""
    return np.concatenate([np.empty(0, checker.RECORD), *_orders(table)])


def _orders(table: Path) -> Iterator[checker.Records]:
    for name in live_files(table):
        rows = pq.read_table(table / name, partitioning=None).to_pylist()
        yield np.array(
            [
                (
                    row["kafka_partition"],
                    row["kafka_offset"],
                    hash(f"{row['id']}|{row['customer']}|{row['amount']:.2f}"),
                )
                for row in rows
            ],
            checker.RECORD,
        )


class PollingReader(Poller):
    """Reads the newest version of several tables again and again.

    Args:
        tables: by name; they need not exist yet.

    Attributes:
        reads: the number of reads of a table with rows.
        counts: the row counts that a reader has seen, by table.
    """

    def __init__(self, tables: Mapping[str, Path]) -> None:
        super().__init__()
        self.reads = 0
        self.counts: dict[str, set[int]] = {name: set() for name in tables}
        self._tables = tables
        self._rows: dict[Path, int] = {}

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.look()  # at what a kill has left

    def look(self) -> None:
        for name, table in self._tables.items():
            rows = self._count(commits(table))
            self.counts[name].add(rows)
            self.reads += rows > 0

    def _count(self, log: Sequence[Path]) -> int:
        """Return the rows of the newest version. Older commits are read once; the newest commit is
        read again each time.
        """
        for commit in log[-1:]:
            self._rows.pop(commit, None)
        for commit in log:
            if commit not in self._rows:
                self._rows[commit] = added_rows(commit)
        return sum(self._rows[commit] for commit in log)

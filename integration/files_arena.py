"""Jobs that write files, under test: their input, their tables, and an independent look at what is in the tables."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.orc
import pyarrow.parquet

from integration import checker, workload
from integration.files_driver import CONTROL
from integration.nemesis import DriverProcess, Ended, held_at

BATCH = 200
PARTITIONS = 2
_HIDDEN = ("_", ".")
_TIMEOUT_S = 540


class FilesDriver(DriverProcess):
    """A process of `integration.files_driver`, killed like any other driver."""

    module = "integration.files_driver"


class FilesArena:
    """A folder of orders, and jobs that each write all of it into a table of their own.

    Args:
        scratch: a folder for the jobs' folders, the tables and the logs.
        jobs: for each its sink's type and options.
        tables: for each job, where its files are.
        controls: names of jobs without the protocol.
        conf: of Spark.
    """

    def __init__(
        self,
        scratch: Path,
        jobs: Mapping[str, Mapping[str, Any]],
        tables: Mapping[str, Path],
        controls: Sequence[str] = (),
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.produced = 0
        self.jobs = [*jobs]
        self.hit: set[str] = set()
        self.controls = controls
        self._tables = {**tables, **{name: scratch / name for name in controls}}
        self._scratch = scratch
        self._orders = scratch / "orders"
        self._orders.mkdir()
        self._settings = {
            "orders": str(self._orders),
            "location": str(scratch / "jobs"),
            "jobs": {name: dict(options) for name, options in jobs.items()},
            "controls": {name: str(self._tables[name]) for name in controls},
            "master": "local[4]",
            "counts": str(scratch / "counts"),
        }
        self._conf = conf or {}

    def produce(self, batches: int) -> None:
        """Write the orders of the next micro-batches."""
        for _ in range(batches):
            write_orders(self._orders, self.produced)
            self.produced += BATCH

    def finish(self, arm: str = "", **settings: Any) -> Ended:
        """A driver ends cleanly, every job having written everything."""
        ended = FilesDriver(self._settings | settings, self._scratch, arm, self._conf).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output
        return ended

    def kill_at(self, points: Sequence[str], controls: bool = False, **settings: Any) -> None:
        """Wait until a job is held at each of the points, then kill them all at once."""
        held = [*points, *(CONTROL.format(name) for name in self.controls)] if controls else points
        driver = FilesDriver(self._settings | settings, self._scratch, held_at(held), self._conf)
        ended = driver.kill_when_at(held, _TIMEOUT_S)
        assert ended.killed, ended.output
        assert {*ended.points} == {*held}
        self.hit.update(points)

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one table."""
        return checker.compare(written(self.produced), orders(self._tables[job]))

    def counts(self) -> dict[str, int]:
        """How many rows Spark SQL has seen in each table of the metastore, when the last driver ended."""
        return dict(json.loads((self._scratch / "counts").read_text()))

    def staged(self, job: str) -> list[str]:
        """What lies hidden and is not committed."""
        return staged(self._tables[job])


def write_orders(folder: Path, first: int) -> None:
    """Write the orders of one micro-batch, in files that appear whole, each younger than the one before.

    Spark reads files in the order of their time, and two that are written at once would have the same.
    """
    orders = [*workload.orders(first, BATCH)]
    for partition in range(PARTITIONS):
        rows = [
            {**order, "kafka_partition": partition, "kafka_offset": int(str(order["id"])) // PARTITIONS}
            for order in orders[partition::PARTITIONS]
        ]
        path = folder / f"{first:08d}-{partition}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(hidden, times=(first + partition, first + partition))
        hidden.rename(path)


def written(count: int) -> checker.Records:
    """The first `count` orders, for the checker."""
    return _array(*map(_order, workload.orders(0, count)))


def orders(table: Path) -> checker.Records:
    """Every row of a table that is partitioned by `kafka_partition`, for the checker."""
    return np.concatenate([np.empty(0, checker.RECORD), *map(_records, visible(table))])


def parquet_rows(table: Path) -> int:
    """Rows of a table of parquet files, by what each file says of itself."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in visible(table))


def visible(table: Path) -> Iterator[Path]:
    """The files that readers of such a table see. What is hidden is not looked into: it comes and goes meanwhile."""
    for folder, folders, files in os.walk(table):
        folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith(_HIDDEN))


def staged(table: Path) -> list[str]:
    """What lies hidden in the folder of a table and is not committed."""
    return [str(path) for path in table.glob("_twophase~*/fence-*/staged/*")]


def _records(path: Path) -> checker.Records:
    partition = int(path.parent.name.removeprefix("kafka_partition="))
    return _array(*((partition, int(row["kafka_offset"]), _payload(row)) for row in _rows(path)))


def _order(order: dict[str, object]) -> tuple[int, int, int]:
    number = int(str(order["id"]))
    return number % PARTITIONS, number // PARTITIONS, _payload(order)


def _payload(row: Mapping[str, Any]) -> int:
    return hash(f"{row['id']}|{row['customer']}|{float(row['amount']):.2f}")


def _array(*rows: tuple[int, int, int]) -> checker.Records:
    return np.array(list(rows), checker.RECORD)


def _rows(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".parquet":
            return list(pyarrow.parquet.read_table(path, partitioning=None).to_pylist())
        case ".orc":
            return list(pyarrow.orc.read_table(path).to_pylist())
        case ".json":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".csv":
            with path.open(newline="") as file:
                return list(csv.DictReader(file))
        case _:
            raise AssertionError(f"{path} is no file of a table")

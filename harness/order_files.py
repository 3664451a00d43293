"""Orders as files: the input of jobs that need no broker, and the tables of the sinks that write
files, read without the product.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.orc
import pyarrow.parquet

from harness import checker, workload

BATCH = 200
"""The number of orders in one micro-batch."""
PARTITIONS = 2
_HIDDEN = ("_", ".")


def write_orders(folder: Path, first: int) -> None:
    """Write the orders of one micro-batch, in files that appear whole, each younger
    than the one before.

    Spark reads files in the order of their time, and two that are written at once
    would have the same.
    """
    orders = [*workload.orders(first, BATCH)]
    for partition in range(PARTITIONS):
        rows = [
            {
                **order,
                "kafka_partition": partition,
                "kafka_offset": int(str(order["id"])) // PARTITIONS,
            }
            for order in orders[partition::PARTITIONS]
        ]
        path = folder / f"{first:08d}-{partition}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(hidden, times=(first + partition, first + partition))
        hidden.rename(path)


def written(count: int) -> checker.Records:
    """Yield the first `count` orders, for the checker."""
    return _array(*map(_order, workload.orders(0, count)))


def orders(table: Path) -> checker.Records:
    """Yield every row of a table that is partitioned by `kafka_partition`, for the checker."""
    return np.concatenate([np.empty(0, checker.RECORD), *map(_records, visible(table))])


def records(rows: Iterable[Mapping[str, Any]]) -> checker.Records:
    """Yield rows that were read elsewhere, for the checker."""
    return _array(*((row["kafka_partition"], row["kafka_offset"], _payload(row)) for row in rows))


def parquet_rows(table: Path) -> int:
    """Return the number of rows in a table of parquet files, by the footer of each file."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in visible(table))


def visible(table: Path) -> Iterator[Path]:
    """Return the files that readers of such a table see. Hidden folders are not entered: they
    come and go meanwhile.
    """
    for folder, folders, files in os.walk(table):
        folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith(_HIDDEN))


def staged(table: Path) -> list[str]:
    """Return the hidden, uncommitted pieces in the folder of a table, those being aborted too."""
    places = (table.glob(f"_twophase~*/fence-*/{place}/*") for place in ("staged", "aborted"))
    return [str(path) for found in places for path in found]


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

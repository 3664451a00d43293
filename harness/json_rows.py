"""Rows from a folder of JSON files, one file a micro-batch: a source that needs no server."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

ROWS = 20
"""The number of rows in a file."""


def make_input(folder: Path, batches: int) -> int:
    """Write one file of rows per micro-batch; return how many rows there are."""
    folder.mkdir()
    return sum(feed(folder, number) for number in range(batches))


def feed(folder: Path, number: int) -> int:
    """Write one more file of rows, which appears whole; return how many rows it has."""
    ids = range(ROWS * number, ROWS * (number + 1))
    lines = (json.dumps({"id": id, "name": f"row {id}", "amount": id / 2}) for id in ids)
    hidden = folder / f".{number:03d}.json"
    hidden.write_text("\n".join(lines))
    hidden.rename(folder / f"{number:03d}.json")
    return ROWS


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the rows as a stream."""
    reader = spark.readStream.format("json").option("maxFilesPerTrigger", 1)
    return reader.schema("id long, name string, amount double").load(str(folder))

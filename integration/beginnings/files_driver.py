"""A job over Spark's file source, run in a process that is killed.

python -m integration.beginnings.files_driver ROOT [once_each]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import SavepointMaker
from twophase.spark.job.stream_writer import write_stream

_FIRST_FILE_S = 1_700_000_000


class FilesJob:
    """A job that reads folders of files and unites them.

    Attributes:
        inputs: the names of the folders, in the order of the program.
        files: what is read of each.
        kind: the class of the open sink.
        options: of the source.
        transform: makes the rows of what is read.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.inputs: tuple[str, ...] = ("input",)
        self.files = ""
        self.kind = OpenFolderSink
        self.options: dict[str, str] = {}
        self.transform: Callable[[DataFrame], DataFrame] = lambda rows: rows
        self._spark = spark
        self._next = 0

    def add(self, folder: str = "input") -> Path:
        """Add a file of ten numbers; files are read in the order in which they are added."""
        place = self.root / folder
        place.mkdir(exist_ok=True)
        text = "".join(
            json.dumps({"id": number}) + "\n" for number in range(self._next, self._next + 10)
        )
        temporary = self.root / ".temporary"
        temporary.write_text(text)
        os.utime(temporary, (_FIRST_FILE_S + self._next,) * 2)
        self._next += 10
        return temporary.rename(place / f"{self._next:05d}.json")

    def run(self, folder: str = "job", **options: object) -> None:
        """Process what is there, and end."""
        given = {
            "checkpointLocation": str(self.root / folder),
            "restart.strategy": "none",
            **options,
        }
        writer = write_stream(self.transform(self._frame()), name="orders")
        writer.sink("facts", FolderSink(self.root / "facts", self.kind)).options(**given)
        writer.trigger(availableNow=True).start().await_termination(120)

    def _frame(self) -> DataFrame:
        reader = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        reader = reader.options(**self.options)
        first, *others = (reader.json(str(self.root / name / self.files)) for name in self.inputs)
        for other in others:
            first = first.union(other)
        return first

    def save(self, name: str = "saved", folder: str = "job") -> Path:
        """Make a savepoint of the stopped job."""
        path = self.root / name
        maker = SavepointMaker("orders", self.root / folder, SystemClock())
        maker.make(str(path), still_waiting=lambda: False)
        return path

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


def once_each(rows: DataFrame) -> DataFrame:
    """The rows without those whose id has come within the watermark."""
    timed = rows.selectExpr("id", "timestamp_seconds(id + 1) as at")
    return timed.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]).select("id")


if __name__ == "__main__":
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    job = FilesJob(spark, Path(sys.argv[1]))
    if sys.argv[2:]:
        job.transform = once_each
    job.run()

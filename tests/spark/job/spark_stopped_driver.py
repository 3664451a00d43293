"""Stops Spark under a running job, then starts the job again in the same process; prints what it
saw as JSON. See `test_spark_stopped.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from twophase.contract.outcome import RetryLater
from twophase.spark.job.job import Job
from twophase.spark.job.stream_writer import StreamWriter, write_stream

_COMMIT = OpenFolderSink.commit


class Notebook:
    """A process in which Spark is stopped and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.target = FolderTarget(root / "facts")
        self.spark = self.session()

    def session(self) -> SparkSession:
        self.spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")
        return self.spark

    def writer(self, change: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> StreamWriter:
        frame = self.spark.readStream.schema("id long").json(str(self.root / "input"))
        writer = write_stream(change(frame), name="orders")
        return writer.sink("facts", FolderSink(self.root / "facts")).option(
            "checkpointLocation", str(self.root / "job")
        )

    def add(self, number: int) -> None:
        (self.root / "input" / f"{number}.json").write_text(json.dumps({"id": number}))

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.target.rows())

    # -- the moments -------------------------------------------------------------------------------

    def waits(self) -> Job:
        """Spark has noted all records as read, and waits for its next trigger."""
        job = self.writer().trigger(processingTime="1 second").start()
        until(lambda: [*(self.root / "job" / "spark").glob("*/commits/0")])
        return job

    def writes(self) -> Job:
        """A task does not end."""
        started = self.root / "started"

        def linger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            started.touch()
            time.sleep(600)
            yield from batches

        job = self.writer(lambda rows: rows.mapInArrow(linger, "id long")).start()
        until(started.exists)
        return job

    def commits(self) -> Job:
        """A sink does not commit a decided checkpoint."""
        asked = threading.Event()

        def later(sink: OpenFolderSink, requests: Any) -> Any:
            asked.set()
            return [RetryLater("down") for _ in requests]

        setattr(OpenFolderSink, "commit", later)  # noqa: B010
        job = self.writer().start()
        asked.wait(60)
        return job


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError
        time.sleep(0.05)


def main(root: Path, moment: str) -> None:
    (root / "input").mkdir()
    notebook = Notebook(root)
    notebook.add(1)
    job = getattr(notebook, moment)()
    notebook.spark.stop()
    began_s = time.monotonic()
    seen: dict[str, Any] = {}
    try:
        seen["ended"] = job.await_termination(60)
    except BaseException as error:  # noqa: BLE001 shown
        seen["ended"] = f"{type(error).__name__}: {error}"
    seen["after_s"] = time.monotonic() - began_s
    seen["stopped"] = job.stop()
    setattr(OpenFolderSink, "commit", _COMMIT)  # noqa: B010
    notebook.session()
    notebook.add(2)
    notebook.writer().trigger(availableNow=True).start().await_termination(120)
    seen["ids"] = notebook.ids()
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

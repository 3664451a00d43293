"""A job on Spark that has ended keeps its checkpoints: the next start goes on from them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink, FolderTarget
from twophase.events import CheckpointCommitted, Event
from twophase.spark.job.stream_writer import StreamWriter, write_stream


class Orders:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.committed = threading.Event()
        (root / "input").mkdir()

    def add(self, number: int) -> None:
        text = json.dumps({"id": number}) + "\n"
        (self.root / f".{number}").write_text(text)
        (self.root / f".{number}").rename(self.root / "input" / f"{number}.json")

    def notice(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            self.committed.set()

    def writer(self) -> StreamWriter:
        frame = self.spark.readStream.schema("id long").json(str(self.root / "input"))
        options = {"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"}
        writer = write_stream(frame, name="orders").observer(self.notice)
        return writer.sink("facts", FolderSink(self.root / "facts")).options(**options)

    def stop_after_one(self) -> None:
        """A running job is stopped when it has committed a checkpoint."""
        self.committed.clear()
        job = self.writer().trigger(processingTime="0 seconds").start()
        self.committed.wait()
        job.stop()
        assert job.exception() is None

    def run(self) -> None:
        self.writer().trigger(availableNow=True).start().await_termination(120)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


@pytest.mark.spark
def test_a_job_that_was_stopped_or_ended_by_itself_keeps_its_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = Orders(spark, tmp_path)
    orders.add(0)
    orders.stop_after_one()
    for number in (1, 2):
        orders.add(number)
        orders.run()
    assert orders.ids() == [0, 1, 2]

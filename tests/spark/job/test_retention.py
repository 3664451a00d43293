"""What becomes of the checkpoints of a job on Spark that has ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink, FolderTarget
from twophase.errors import (
    CheckpointMissingError,
)
from twophase.events import CheckpointCommitted, Event
from twophase.spark.job.stream_writer import StreamWriter, write_stream


class Orders:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.folder = spark, root, root / "job"
        self.committed = threading.Event()
        (root / "input").mkdir()

    def add(self, number: int) -> None:
        text = json.dumps({"id": number}) + "\n"
        (self.root / f".{number}").write_text(text)
        (self.root / f".{number}").rename(self.root / "input" / f"{number}.json")

    def notice(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            self.committed.set()

    def writer(self, **options: Any) -> StreamWriter:
        frame = self.spark.readStream.schema("id long").json(str(self.root / "input"))
        given = {"checkpointLocation": str(self.folder), "restart.strategy": "none"} | options
        writer = write_stream(frame, name="orders").observer(self.notice)
        return writer.sink("facts", FolderSink(self.root / "facts")).options(**given)

    def stop_after_one(self, **options: Any) -> None:
        """A running job is stopped when it has committed a checkpoint."""
        self.committed.clear()
        job = self.writer(**options).trigger(processingTime="0 seconds").start()
        self.committed.wait()
        job.stop()
        assert job.exception() is None

    def run(self, **options: Any) -> None:
        self.writer(**options).trigger(availableNow=True).start().await_termination(120)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(spark, tmp_path)


@pytest.mark.spark
def test_a_stopped_job_keeps_its_checkpoints_by_default(orders: Orders) -> None:
    orders.add(0)
    orders.stop_after_one()
    orders.add(1)
    orders.run()
    assert orders.ids() == [0, 1]


@pytest.mark.spark
def test_a_stopped_job_deletes_its_checkpoints_and_does_not_start_again_from_the_beginning(
    orders: Orders,
) -> None:
    deletes = {"checkpoint.externalized_retention": "delete_on_cancellation"}
    orders.add(0)
    orders.run(**deletes)
    orders.add(1)
    [before] = (orders.folder / "chk").iterdir()
    orders.stop_after_one(**deletes)
    assert [*(orders.folder / "chk").iterdir()] == [*(orders.folder / "spark").iterdir()] == []
    for options in ({}, {"restore.path": str(before)}):
        with pytest.raises(CheckpointMissingError, match="deleted when"):
            orders.run(**options)
    assert orders.ids() == [0, 1]


@pytest.mark.spark
def test_a_job_whose_query_ends_by_itself_keeps_its_checkpoints(orders: Orders) -> None:
    for number in (0, 1):
        orders.add(number)
        orders.run(**{"checkpoint.externalized_retention": "no_externalized_checkpoints"})
    assert orders.ids() == [0, 1]

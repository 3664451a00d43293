"""What an event on Spark makes of a checkpoint: the reason, and whether it is retried in place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget, WrappedWriter, with_writers
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError
from twophase.events import (
    CheckpointDeclined,
    CheckpointNotTriggered,
    CheckpointTriggered,
    Event,
    JobRestarting,
)
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.job.stream_writer import StreamWriter, write_stream
from twophase.state.checkpoints.checkpoint import FrozenOffsets

pytestmark = pytest.mark.spark

ROWS = list(range(10))
Break = Callable[["Case"], StreamWriter]


class Case:
    """One micro-batch of ten rows, and something that fails while `path` exists."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.path = spark, root, root / "fails"
        self.path.touch()
        (root / "input").mkdir()
        lines = "".join(json.dumps({"id": number}) + "\n" for number in ROWS)
        (root / "input" / "0.json").write_text(lines)
        self.events: list[Event] = []

    def frame(self) -> DataFrame:
        return self.spark.readStream.schema("id long").json(str(self.root / "input"))

    def writer(self, frame: DataFrame, sink: FolderSink, transform: Any = None) -> StreamWriter:
        writer = write_stream(frame, name="orders").sink("facts", sink, transform=transform)
        return writer.observer(self.events.append).options(
            **{
                "checkpointLocation": str(self.root / "job"),
                "checkpoint.tolerable_failures": 3,
                "restart.strategy": "fixed",
                "restart.delay": "10 ms",
                "restart.attempts": 1,
            }
        )

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path)


def fails_once(path: Path) -> None:
    if path.exists():
        path.unlink()
        raise ValueError("broken on purpose")


class BrokenWriter(WrappedWriter):
    """Fails once, with an error of its own or as a sink that declines."""

    def __init__(self, writer: SinkWriter, path: Path, *, declines: bool) -> None:
        super().__init__(writer)
        self._path, self._declines = path, declines

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            fails_once(self._path)
        except ValueError as error:
            if self._declines:
                raise DeclinedError("It declines.") from error
            raise
        super().write(batch)


def broken_sink(case: Case, *, declines: bool) -> FolderSink:
    broken = partial(BrokenWriter, path=case.path, declines=declines)
    return with_writers(case.root / "facts", broken)


def by_a_function(case: Case) -> StreamWriter:
    path = case.path

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fails_once(path)
            yield batch

    frame = case.frame().mapInArrow(apply, "id long")
    return case.writer(frame, FolderSink(case.root / "facts"))


def by_the_death_of_a_worker(case: Case) -> StreamWriter:
    path = case.path

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if path.exists():
                import os
                import signal

                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    frame = case.frame().mapInArrow(apply, "id long")
    return case.writer(frame, FolderSink(case.root / "facts"))


def by_an_expression(case: Case) -> StreamWriter:
    """Of Spark's own, in the JVM: it fails as long as the file is there."""
    path = case.path

    def transform(frame: DataFrame) -> DataFrame:
        if frame.isStreaming or not path.exists():
            return frame
        path.unlink()
        return frame.selectExpr("if(id >= 0, raise_error('broken on purpose'), id) AS id")

    return case.writer(case.frame(), FolderSink(case.root / "facts"), transform)


def by_a_writer(case: Case) -> StreamWriter:
    return case.writer(case.frame(), broken_sink(case, declines=False))


def by_a_writer_that_declines(case: Case) -> StreamWriter:
    return case.writer(case.frame(), broken_sink(case, declines=True))


def by_a_transform(case: Case) -> StreamWriter:
    def transform(frame: DataFrame) -> DataFrame:
        if not frame.isStreaming:
            fails_once(case.path)
        return frame

    return case.writer(case.frame(), FolderSink(case.root / "facts"), transform)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (by_a_function, "TASK_FAILURE"),
        (by_the_death_of_a_worker, "TASK_FAILURE"),
        (by_an_expression, "TASK_FAILURE"),
        (by_a_writer, "TASK_CHECKPOINT_FAILURE"),
        (by_a_transform, "EXCEPTION"),
    ],
)
def test_what_fails_beside_the_protocol_fails_the_query_and_the_restart_strategy_takes_over(
    case: Case, broken: Break, reason: str
) -> None:
    broken(case).trigger(availableNow=True).start().await_termination(120)
    declined = case.of(CheckpointDeclined)
    assert [(event.reason, event.will_retry) for event in declined] == [(reason, False)]
    assert len(case.of(JobRestarting)) == 1
    assert case.ids() == ROWS


def test_a_checkpoint_that_a_sink_declines_is_retried_in_place(case: Case) -> None:
    by_a_writer_that_declines(case).trigger(availableNow=True).start().await_termination(120)
    declined = case.of(CheckpointDeclined)
    assert [(event.reason, event.will_retry) for event in declined] == [
        ("CHECKPOINT_DECLINED", True)
    ]
    assert case.of(JobRestarting) == []
    assert case.ids() == ROWS


def test_a_disk_that_cannot_be_read_when_the_micro_batch_begins_is_a_trigger_failure(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, path = SparkFolder.offsets, case.path

    def unreadable(self: SparkFolder, batch: int) -> FrozenOffsets:
        if path.exists():
            path.unlink()
            raise OSError(5, "Input/output error")
        return offsets(self, batch)

    monkeypatch.setattr(SparkFolder, "offsets", unreadable)
    writer = case.writer(case.frame(), FolderSink(case.root / "facts"))
    writer.trigger(availableNow=True).start().await_termination(120)
    reasons = [event.reason for event in case.of(CheckpointNotTriggered)]
    assert reasons == ["TRIGGER_CHECKPOINT_FAILURE"]
    assert (len(case.of(JobRestarting)), len(case.of(CheckpointTriggered))) == (1, 1)
    assert case.ids() == ROWS

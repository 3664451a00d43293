"""A sink commits ahead on Spark: its rows are visible while the other sink still writes, and an
attempt that fails then neither takes them back nor writes them again.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink, FolderTarget, WrappedWriter, with_writers
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError
from twophase.events import CheckpointDeclined, Event, JobRestarting, SinkDecided
from twophase.spark.job.stream_writer import write_stream

pytestmark = pytest.mark.spark

ROWS = list(range(10))
_TIMEOUT_S = 60.0
_POLL_S = 0.02


class WaitingWriter(WrappedWriter):
    """Writes once the other sink's rows are visible; fails then while a file exists."""

    def __init__(self, writer: SinkWriter, root: Path, *, declines: bool) -> None:
        super().__init__(writer)
        self._root, self._declines = root, declines

    def write(self, batch: pa.RecordBatch) -> None:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while len(FolderTarget(self._root / "fast").rows()) < len(ROWS):
            assert time.monotonic() < deadline_s, "the other sink is not ahead"
            time.sleep(_POLL_S)
        if (self._root / "fails").exists():
            (self._root / "fails").unlink()
            raise DeclinedError("It declines.") if self._declines else ValueError("broken")
        super().write(batch)


def waiting_sink(root: Path, *, declines: bool) -> FolderSink:
    return with_writers(root / "slow", partial(WaitingWriter, root=root, declines=declines))


def run(spark: SparkSession, root: Path, *, declines: bool = False) -> list[Event]:
    """One micro-batch of ten rows for both sinks."""
    (root / "input").mkdir()
    lines = "".join(json.dumps({"id": number}) + "\n" for number in ROWS)
    (root / "input" / "0.json").write_text(lines)
    frame = spark.readStream.schema("id long").json(str(root / "input"))
    events: list[Event] = []
    writer = write_stream(frame, name="orders").sink("fast", FolderSink(root / "fast"))
    writer = writer.sink("slow", waiting_sink(root, declines=declines)).observer(events.append)
    writer = writer.options(
        **{
            "checkpointLocation": str(root / "job"),
            "checkpoint.mode": "at_least_once",
            "checkpoint.tolerable_failures": 3,
            "restart.strategy": "fixed",
            "restart.delay": "10 ms",
            "restart.attempts": 1,
        }
    )
    writer.trigger(availableNow=True).start().await_termination()
    for name in ("fast", "slow"):
        assert sorted(row["id"] for row in FolderTarget(root / name).rows()) == ROWS
    return events


def decided(events: list[Event]) -> list[tuple[str, int]]:
    return [(one.sink, one.checkpoint) for one in events if isinstance(one, SinkDecided)]


def test_its_rows_are_visible_while_the_other_sink_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert decided(run(spark, tmp_path)) == [("fast", 0)]


@pytest.mark.parametrize(
    ("declines", "then"),
    [(True, CheckpointDeclined), (False, JobRestarting)],
    ids=["here", "later"],
)
def test_a_retry_asks_the_other_sink_only(
    spark: SparkSession, tmp_path: Path, declines: bool, then: type[Event]
) -> None:
    (tmp_path / "fails").touch()
    events = run(spark, tmp_path, declines=declines)
    assert decided(events) == [("fast", 0)]
    assert [one for one in events if isinstance(one, then)]

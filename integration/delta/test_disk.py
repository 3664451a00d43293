"""A disk under a Delta table that is full, or read-only: nothing early is visible, nothing is lost,
and then it goes on.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import twophase
from harness.held_jobs import wait_until
from harness.json_rows import make_input, read
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import DeclinedError, PreflightError, TargetUnreachableError
from twophase.events import (
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointTriggered,
    CommitRetried,
    Event,
    JobRestarting,
)
from twophase.ids import Attempt
from twophase.spark.batch.spark_errors import declined
from twophase.testing.harness import LINEAGE

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

_BLOCK = b"\0" * 4096
INTENT = 2 * len(_BLOCK)
"""The room that the record of a piece takes: the file, and its checksum."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk is mounted for this test, which takes root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def table(delta_spark: SparkSession, disk: Path) -> DeltaHarness:
    """A table on that disk."""
    return DeltaHarness(delta_spark, disk / "orders")


def fill(folder: Path, left: int = 0) -> None:
    """Take all room on the disk of a folder but the last `left` bytes."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(_BLOCK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        file.truncate(file.tell() - left)


def remount(folder: Path, how: str) -> None:
    """As soon as nobody has a file open for writing: threads of Delta's may, for a moment."""
    command = ["mount", "-o", f"remount,{how}", str(folder)]
    wait_until(lambda: subprocess.run(command, check=False).returncode == 0, "the disk to be idle")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No room on the disk of a folder."""
    fill(folder)
    try:
        yield
    finally:
        (folder / "filler").unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be written on the disk of a folder."""
    remount(folder, "ro")
    try:
        yield
    finally:
        remount(folder, "rw")


def test_in_phase_1_the_attempt_fails_and_goes(table: DeltaHarness) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    before = table.data_files()
    with full(table.folder.parent), pytest.raises((Py4JJavaError, PySparkException)) as caught:
        table.write(sink, range(1, 3), 1)
    error = declined(caught.value, "sink 'facts'")
    assert isinstance(error, DeclinedError)
    assert "No space left on device" in str(error)
    assert table.ids() == [0]
    sink.abort(sink.in_doubt())
    assert (table.records(), table.data_files()) == ([], before)
    following = Attempt(1, 2)
    sink.fence(following)
    assert commit(sink, table.write(sink, range(1, 3), 1, following)) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_in_phase_2_the_commit_is_repeated_until_there_is_room(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    with full(table.folder.parent):
        [outcome] = commit(sink, piece)
        assert isinstance(outcome, RetryLater)
        assert "No space left on device" in outcome.reason
    assert table.ids() == []
    assert commit(sink, piece, retries=1) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_on_a_full_disk_no_table_is_made(delta_spark: SparkSession, disk: Path) -> None:
    table = DeltaHarness(delta_spark, disk / "new" / "orders", columns="", create=True)
    with full(disk):
        with pytest.raises(PreflightError, match="No space left on device"):
            table.opened()
        assert sorted(path.name for path in disk.iterdir()) == ["filler"]
    sink = table.opened()
    assert commit(sink, table.write(sink, range(3))) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_on_a_read_only_disk_nothing_is_opened_and_no_table_is_made(table: DeltaHarness) -> None:
    table.opened()
    disk = table.folder.parent
    with read_only(disk):
        before = sorted(disk.rglob("*"))
        with pytest.raises(PreflightError, match="cannot be written"):
            table.opened()
        with pytest.raises(PreflightError, match="cannot be written"):
            table.opened(path=str(disk / "new"), create=True)
        assert sorted(disk.rglob("*")) == before


def test_a_disk_that_turns_read_only_in_phase_1_declines_the_attempt(table: DeltaHarness) -> None:
    sink = table.opened()
    with (
        read_only(table.folder.parent),
        pytest.raises((OSError, Py4JJavaError, PySparkException)) as caught,
    ):
        table.write(sink, range(3))
    assert type(declined(caught.value, "sink 'facts'")) is DeclinedError
    sink.abort(sink.in_doubt())
    assert (table.ids(), table.records(), table.data_files()) == ([], [], [])
    following = Attempt(1, 2)
    sink.fence(following)
    assert commit(sink, table.write(sink, range(3), 0, following)) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_disk_that_turns_read_only_in_phase_2_has_the_commit_repeated(
    table: DeltaHarness,
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    with read_only(table.folder.parent):
        [outcome] = commit(sink, piece)
        assert isinstance(outcome, RetryLater)
        assert "Read-only file system" in outcome.reason or "could not" in outcome.reason, (
            outcome.reason
        )
    assert table.ids() == []
    assert commit(sink, piece, retries=1) == [Committed()]
    assert table.ids() == [0, 1, 2]


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        pytest.param(0, "CHECKPOINT_DECLINED", id="for the intent"),
        pytest.param(INTENT, "TASK_FAILURE", id="for the rows"),
    ],
)
def test_a_job_goes_on_when_a_disk_was_full_for_a_while(
    table: DeltaHarness, tmp_path: Path, left: int, reason: str
) -> None:
    """Full in phase 1 of the second checkpoint, where the driver cannot write the piece's intent or
    Spark's tasks fail, and the query restarts; and in phase 2 of the third.
    """
    rows, disk = make_input(tmp_path / "in", 4), table.folder.parent
    heard: list[Event] = []
    fills = {(CheckpointTriggered, 1): left, (CheckpointDecided, 2): 0}

    def observe(event: Event) -> None:
        heard.append(event)
        at = (type(event), getattr(event, "checkpoint", None))
        if at in fills:
            fill(disk, fills.pop(at))
        elif isinstance(event, CheckpointDeclined | CommitRetried):
            (disk / "filler").unlink(missing_ok=True)

    writer = twophase.write_stream(read(table.spark, tmp_path / "in"), name="orders")
    writer.options(checkpointLocation=str(tmp_path / "job")).options(
        **{"restart.strategy": "fixed", "restart.delay": "10 ms", "restart.attempts": 1}
    )
    job = writer.sink("lake", table.new_sink()).observer(observe).trigger(availableNow=True).start()
    assert job.await_termination()
    assert fills == {}
    [refused] = [event for event in heard if isinstance(event, CheckpointDeclined)]
    assert (refused.checkpoint, refused.reason, refused.will_retry) == (1, reason, False)
    assert "No space left on device" in refused.cause
    retried = [event for event in heard if isinstance(event, CommitRetried)]
    assert {event.checkpoint for event in retried} == {2}
    assert "No space left on device" in retried[0].reason
    assert len([event for event in heard if isinstance(event, JobRestarting)]) == 1
    assert table.ids() == list(range(rows))
    assert table.records() == []


def test_a_fence_that_cannot_be_raised_stops_the_start_until_the_disk_is_writable(
    table: DeltaHarness,
) -> None:
    sink = table.opened()
    following = Attempt(2, 1)
    with (
        read_only(table.folder.parent),
        pytest.raises(TargetUnreachableError, match=r"could not be raised to 2\.1") as caught,
    ):
        sink.fence(following)
    assert "check whether the table's folder is writable" in caught.value.remedy
    again = table.opened(following)
    assert commit(again, table.write(again, range(3), 0, following)) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_rewind_that_cannot_be_written_stops_the_start_until_the_disk_is_writable(
    table: DeltaHarness,
) -> None:
    sink = table.opened()
    for number in range(2):
        assert commit(sink, table.write(sink, [number], number)) == [Committed()]
    again, restoring, keep = table.opened(Attempt(2, 0)), Attempt(2, 0), {LINEAGE: 0}
    with (
        read_only(table.folder.parent),
        pytest.raises(TargetUnreachableError, match=r"cannot rewind .* in 10 tries") as caught,
    ):
        again.rewind(keep, restoring)
    assert "check whether the table's folder is writable" in caught.value.remedy
    assert table.ids() == [0, 1]
    table.opened(Attempt(3, 0)).rewind(keep, Attempt(3, 0))
    assert table.ids() == [0]


def test_where_the_records_cannot_be_written_nothing_is_opened_until_they_can(
    table: DeltaHarness,
) -> None:
    """A folder of records that is a mount of its own stands for the rights that root always has."""
    records = table.folder / "_twophase"
    records.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(records)]
    subprocess.run(mounted, check=True)
    try:
        with pytest.raises(PreflightError, match="Cannot create the folder") as caught:
            table.opened()
        assert caught.value.remedy == "give the driver's account the right to write there."
        remount(records, "rw")
        sink = table.opened()
        assert commit(sink, table.write(sink, range(3))) == [Committed()]
        assert table.ids() == [0, 1, 2]
    finally:
        subprocess.run(["umount", "--lazy", str(records)], check=True)

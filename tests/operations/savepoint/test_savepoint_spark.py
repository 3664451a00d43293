"""Savepoints on real Spark: stopped with one, moved, restored elsewhere; every row once, and state
exact.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from harness.counts import KEYS, counts
from harness.folder_sink import FolderSink, OpenFolderSink
from harness.selection import representatives
from tests.spark.job.test_job import Pipeline
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import SavepointUnfinishedError, TwoPhaseError
from twophase.operations.savepoint.make import open_savepoint
from twophase.spark.job.job import Job
from twophase.spark.job.stream_writer import StreamWriter, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CLASS = "org.apache.spark.sql.execution.streaming.state"
HASHMAP, ROCKSDB = (f"{_CLASS}.{name}StateStoreProvider" for name in ("HDFSBacked", "RocksDB"))


def plain(frame: DataFrame) -> DataFrame:
    return frame


def windows(frame: DataFrame) -> DataFrame:
    """A row for each window of ten when it is over: its beginning."""
    timed = frame.withColumn("time", F.timestamp_seconds("id")).withWatermark("time", "2 seconds")
    counted = timed.groupBy(F.window("time", "10 seconds")).count()
    return counted.select((F.unix_seconds("window.start") * 100 + F.col("count")).alias("id"))


def unique(frame: DataFrame) -> DataFrame:
    return frame.select((F.col("id") % 15).alias("id")).dropDuplicates(["id"])


def joined(frame: DataFrame) -> DataFrame:
    """Each record with the one ten earlier, which another micro-batch has read."""
    later = frame.select((F.col("id") - 10).alias("other"))
    return frame.join(later, F.col("id") == F.col("other")).select("id")


class Moved(Pipeline):
    """Runs a job in one folder, stops it with a savepoint, moves that, and continues elsewhere."""

    build: Callable[[DataFrame], DataFrame] = staticmethod(plain)

    def frame(self) -> DataFrame:
        return self.build(super().frame())

    def writing(self, folder: str, **options: Any) -> StreamWriter:
        return self.writer(options={"checkpointLocation": str(self.root / folder), **options})

    def stopped(self, path: Path, folder: str = "job", **options: Any) -> None:
        """All files so far are read; the query idles when it is stopped."""
        rows = len(self.ids())
        job = self.writing(folder, **options).start()
        self.wait_until_read(job, folder)
        assert rows <= len(self.ids())
        assert job.stop_with_savepoint(str(path)) == str(path)
        assert not job.is_active
        assert job.exception() is None

    def wait_until_read(self, job: Job, folder: str = "job") -> None:
        """Wait until all files are in finished micro-batches."""
        while self.read(self.root / folder) < self.files:
            assert not job.await_termination(0.05), "the job has ended"

    def read(self, job: Path) -> int:
        """How many files are in finished micro-batches."""
        commits = [*job.glob("spark/*/commits/[0-9]*")]
        if not commits:
            return 0
        newest = max(commits, key=lambda path: int(path.name))
        line = (newest.parents[1] / "offsets" / newest.name).read_text().split("\n")[2]
        return int(line.partition(":")[2].strip("}")) + 1


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Iterator[Moved]:
    yield Moved(spark, tmp_path)
    for key in (_PROVIDER, _CHANGELOG, _FORMAT):
        spark.conf.unset(key)


_IN_CHANGELOGS, _BY_ID = {_CHANGELOG: "true"}, {_FORMAT: "2"}
PLANS: dict[str, tuple[Callable[[DataFrame], DataFrame], str, dict[str, str]]] = {
    "stateless": (plain, HASHMAP, {}),
    "windows": (windows, HASHMAP, {}),
    "windows, rocksdb": (windows, ROCKSDB, {}),
    "windows, versions by id": (windows, ROCKSDB, _BY_ID),
    "unique, rocksdb changelog": (unique, ROCKSDB, _IN_CHANGELOGS),
    "unique, changelog, versions by id": (unique, ROCKSDB, _IN_CHANGELOGS | _BY_ID),
    "transformWithState": (counts, ROCKSDB, {}),
    "transformWithState, changelog": (counts, ROCKSDB, _IN_CHANGELOGS),
    "transformWithState, versions by id": (counts, ROCKSDB, _BY_ID),
    "joined": (joined, HASHMAP, {}),
    "joined, versions by id": (joined, ROCKSDB, _BY_ID),
}


# 50 records, in micro-batches of ten; the savepoint is made after three of them
_WINDOWS = [start * 100 + 10 for start in (0, 10, 20, 30)]
_COUNTS = sorted(
    key * 1000 + sum(1 for number in range(last) if number % KEYS == key)
    for last in (10, 20, 30, 40, 50)
    for key in range(KEYS)
)
EXPECTED: dict[str, list[int]] = {
    "stateless": [*range(50)],
    "windows": _WINDOWS,
    "windows, rocksdb": _WINDOWS,
    "windows, versions by id": _WINDOWS,
    "unique, rocksdb changelog": [*range(15)],
    "unique, changelog, versions by id": [*range(15)],
    "transformWithState": _COUNTS,
    "transformWithState, changelog": _COUNTS,
    "transformWithState, versions by id": _COUNTS,
    "joined": [*range(40)],
    "joined, versions by id": [*range(40)],
}


@pytest.mark.parametrize(
    "plan",
    representatives(PLANS, {"transformWithState, changelog", "windows, versions by id"}),
)
def test_a_job_goes_on_from_a_savepoint_that_was_moved_as_if_it_had_never_stopped(
    moved: Moved, plan: str
) -> None:
    moved.build, provider, more = PLANS[plan]
    for key, value in {_PROVIDER: provider, **more}.items():
        moved.spark.conf.set(key, value)
    for _ in range(3):
        moved.add()
    made = moved.root / "made here"
    moved.stopped(made)
    shutil.rmtree(moved.root / "job")
    there = moved.root / "moved there"
    made.rename(there)
    open_savepoint(str(there)).verify()
    moved.add()
    moved.add()
    moved.run(moved.writing("again", **{"restore.path": str(there)}))
    assert moved.ids() == EXPECTED[plan]


class Held(FolderSink):
    """Its commits wait, or answer that they have to be tried later."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.go_on, self.answers = Event(), Event(), True

    def open(self, context: SinkContext) -> OpenFolderSink:
        return OpenHeld(self, super().open(context))


class OpenHeld(OpenFolderSink):
    """The same, open."""

    def __init__(self, held: Held, opened: OpenFolderSink) -> None:
        vars(self).update(vars(opened))
        self._held = held

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self._held.begun.set()
        self._held.go_on.wait()
        if self._held.answers:
            return super().commit(requests)
        return [RetryLater("down") for _ in requests]


@pytest.mark.parametrize("answers", [True, False], ids=["committed", "not committed"])
def test_a_stop_ends_with_the_micro_batch_under_way_and_says_if_it_is_not_committed(
    moved: Moved, answers: bool
) -> None:
    for _ in range(3):
        moved.add()
    sink, path = Held(moved.root / "facts"), moved.root / "saved"
    sink.answers = answers
    stopping = moved.root / "job"
    writer = write_stream(moved.frame(), name="orders").sink("facts", sink)
    job = writer.option("checkpointLocation", str(stopping)).start()
    sink.begun.wait()
    errors: list[TwoPhaseError] = []

    def stop() -> None:
        try:
            job.stop_with_savepoint(str(path))
        except TwoPhaseError as error:
            errors.append(error)

    thread = Thread(target=stop)
    thread.start()
    run = job._engine._run
    assert run is not None
    run.context.stopping.wait()
    sink.go_on.set()
    thread.join()
    saved = open_savepoint(str(path))
    assert (saved.manifest.checkpoint, saved.is_committed) == (0, answers)
    assert [type(error) for error in errors] == ([] if answers else [SavepointUnfinishedError])
    assert moved.ids() == ([*range(10)] if answers else [])
    moved.run(moved.writing("again", **{"restore.path": str(path)}))
    assert moved.ids() == [*range(30)]
    assert moved.targets["facts"].prepared() == []


def test_one_of_an_idle_job_that_runs_on(moved: Moved) -> None:
    moved.add()
    job = moved.writing("job").start()
    moved.wait_until_read(job)
    assert job.savepoint(str(moved.root / "saved")) == str(moved.root / "saved")
    assert job.is_active
    job.stop()
    moved.run(moved.writing("again", **{"restore.path": str(moved.root / "saved")}))
    assert moved.ids() == [*range(10)]

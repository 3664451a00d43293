"""A job on real Spark, with a file source and sinks whose writers live in Spark's workers."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from tests.spark.sync_tape import SyncTape
from twophase.cli.main import main
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.contract.sink import SinkContext, WriterFactory
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    CheckpointExpiredError,
    CheckpointMissingError,
    ConfigError,
    DeclinedError,
    FencedError,
    OffsetMismatchError,
    StopJobError,
)
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointTriggered,
    Event,
    JobRestarting,
    JobStopped,
    RecoveryFinished,
    RecoveryStarted,
    SinkAcknowledged,
)
from twophase.ids import Subtask, TransactionId
from twophase.internals.record import kind_of
from twophase.spark.folder import spark_folder as folder_module
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.job.job import Job
from twophase.spark.job.stream_writer import StreamWriter, write_stream
from twophase.state.files.event_file import read_events
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage, UnclearOutcomeError
from twophase.state.journal.entries import Decision, FenceRecord
from twophase.state.journal.log import JobLog

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_FIRST_FILE_S = 1_700_000_000


class Pipeline:
    """A folder of input files, a job, two targets."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.input = root / "input"
        self.input.mkdir()
        self.targets = {name: FolderTarget(root / name) for name in ("facts", "lake")}
        self.files = 0
        self.events: list[Event] = []

    def add(self, rows: int = 10) -> None:
        first = self.files * 10
        text = "".join(json.dumps({"id": first + step}) + "\n" for step in range(rows))
        temporary = self.root / f".{self.files}"
        temporary.write_text(text)
        os.utime(temporary, (_FIRST_FILE_S + self.files,) * 2)  # Spark reads them in this order
        temporary.rename(self.input / f"{self.files:05d}.json")
        self.files += 1

    def frame(self) -> DataFrame:
        return (
            self.spark.readStream.schema("id long")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.input))
        )

    def writer(
        self,
        frame: DataFrame | None = None,
        sinks: tuple[str, ...] = ("facts",),
        options: Mapping[str, Any] | None = None,
    ) -> StreamWriter:
        writer = write_stream(frame if frame is not None else self.frame(), name="orders")
        for name in sinks:
            writer.sink(name, FolderSink(self.root / name))
        given = {"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"}
        return writer.options(**given | dict(options or {})).observer(self.events.append)

    def run(self, writer: StreamWriter | None = None) -> None:
        """Process what is there, and end."""
        (writer or self.writer()).trigger(availableNow=True).start().await_termination(120)

    def overtake(self) -> None:
        """Another driver takes the job over."""
        log = JobLog(LocalStorage(self.root / "job"), "orders")
        log.append(FenceRecord(log.read().generation + 1))

    def ids(self, name: str = "facts") -> list[int]:
        return sorted(row["id"] for row in self.targets[name].rows())

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)


def test_every_row_arrives_once_over_several_starts(pipeline: Pipeline) -> None:
    for expected in (20, 40):
        pipeline.add()
        pipeline.add()
        pipeline.run()
        assert pipeline.ids() == list(range(expected))
    pipeline.run()
    assert pipeline.ids() == list(range(40))
    assert pipeline.targets["facts"].prepared() == []


def test_a_job_shows_what_it_is_doing_and_has_done(pipeline: Pipeline) -> None:
    pipeline.add()
    job = pipeline.writer().trigger(availableNow=True).build()
    assert repr(job) == (
        f"<Job 'orders' in {pipeline.root / 'job'}: starting, 0 checkpoints and 0 rows committed>"
    )
    job.start()
    job.await_termination(120)
    assert (job.status.committed, job.status.rows_by_sink) == (1, {"facts": 10})
    assert job.status.query.records == 10
    past = [one.event for one in read_events(ReadOnlyStorage(pipeline.root / "job")) if one]
    assert [type(event) for event in past] == [
        RecoveryStarted,
        RecoveryFinished,
        CheckpointCommitted,
        JobStopped,
    ]
    assert repr(job).endswith(": stopped, 1 checkpoint and 10 rows committed>")


def test_two_sinks_commit_together_and_the_batch_is_computed_once(pipeline: Pipeline) -> None:
    seen = pipeline.root / "seen"
    seen.mkdir()

    def tracked(batches: Any) -> Any:
        import uuid

        for batch in batches:
            (seen / uuid.uuid4().hex).write_text(str(batch.num_rows))
            yield batch

    pipeline.add()
    frame = pipeline.frame().mapInArrow(tracked, "id long")
    pipeline.run(pipeline.writer(frame, ("facts", "lake")))
    assert pipeline.ids("facts") == pipeline.ids("lake") == list(range(10))
    assert sum(int(path.read_text()) for path in seen.iterdir()) == 10


@pytest.mark.proof
def test_a_transform_is_what_its_sink_sees(pipeline: Pipeline) -> None:
    pipeline.add()
    writer = pipeline.writer()
    writer.sink(
        "lake", FolderSink(pipeline.root / "lake"), transform=lambda rows: rows.where("id >= 7")
    )
    pipeline.run(writer)
    assert pipeline.ids("facts") == list(range(10))
    assert pipeline.ids("lake") == [7, 8, 9]


def fail_if(path: Path) -> Callable[[Any], Any]:
    """A row function that fails, once, while `path` exists."""

    def apply(batches: Any) -> Any:
        for batch in batches:
            if path.exists():
                path.unlink()
                raise ValueError("broken on purpose")
            yield batch

    return apply


def test_a_declined_attempt_is_retried_in_place(pipeline: Pipeline) -> None:
    def declining(
        writers: WriterFactory, transaction: TransactionId, subtask: Subtask
    ) -> SinkWriter:
        if fails.exists():
            fails.unlink()
            raise DeclinedError("It declines.")
        return writers(transaction, subtask)

    class Declining(OpenFolderSink):
        def writers(self) -> Any:
            return partial(declining, super().writers())

    pipeline.add()
    fails = pipeline.root / "fail"
    fails.touch()
    writer = pipeline.writer(sinks=("lake",), options={"checkpoint.tolerable_failures": 1})
    pipeline.run(writer.sink("facts", FolderSink(pipeline.root / "facts", Declining)))
    assert pipeline.ids("facts") == pipeline.ids("lake") == list(range(10))
    assert [event.will_retry for event in pipeline.of(CheckpointDeclined)] == [True]
    assert pipeline.of(JobRestarting) == []


def test_a_failure_that_is_not_tolerated_restarts_the_query(pipeline: Pipeline) -> None:
    pipeline.add()
    (pipeline.root / "fail").touch()
    frame = pipeline.frame().mapInArrow(fail_if(pipeline.root / "fail"), "id long")
    pipeline.run(
        pipeline.writer(frame, options={"restart.strategy": "fixed", "restart.delay": "100 ms"})
    )
    assert pipeline.ids() == list(range(10))
    assert len(pipeline.of(JobRestarting)) == 1


@pytest.mark.proof
def test_a_restart_keeps_the_scheduler_pool_of_the_thread_that_started_the_job(
    pipeline: Pipeline,
) -> None:
    context = pipeline.spark.sparkContext
    pools: list[str | None] = []

    def fail_once(frame: DataFrame) -> DataFrame:
        if not frame.isStreaming:
            pools.append(context.getLocalProperty("spark.scheduler.pool"))
            if len(pools) == 1:
                raise ConnectionError("the first time")
        return frame

    pipeline.add()
    writer = pipeline.writer(
        sinks=(), options={"restart.strategy": "fixed", "restart.delay": "10 ms"}
    )
    writer.sink("facts", FolderSink(pipeline.root / "facts"), transform=fail_once)
    context.setLocalProperty("spark.scheduler.pool", "orders")
    try:
        pipeline.run(writer)
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    assert pools == ["orders", "orders"]


@pytest.mark.proof
def test_a_fence_of_its_own_whose_reply_was_lost_does_not_fence_a_job_out(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, fences = LocalStorage.create, list[str]()

    def create_and_lose_the_second_reply(
        self: LocalStorage, name: str, data: bytes, *more: Any
    ) -> None:
        create(self, name, data, *more)
        if kind_of(data) == FenceRecord.kind:
            fences.append(name)
            if len(fences) == 2:
                raise UnclearOutcomeError("the reply was lost")

    monkeypatch.setattr(LocalStorage, "create", create_and_lose_the_second_reply)
    pipeline.add()
    (pipeline.root / "fail").touch()
    frame = pipeline.frame().mapInArrow(fail_if(pipeline.root / "fail"), "id long")
    pipeline.run(
        pipeline.writer(frame, options={"restart.strategy": "fixed", "restart.delay": "100 ms"})
    )
    assert len(fences) == 3
    assert pipeline.ids() == list(range(10))


@pytest.mark.proof
def test_a_driver_that_is_overtaken_before_its_query_starts_is_told_that_it_is_fenced(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's folder has gone on without it, which looks like a folder of another backup."""
    prepare = SparkFolder.prepare

    def overtaken(folder: SparkFolder, newest: Decision | None) -> None:
        pipeline.overtake()
        (folder.path / "commits" / "7").write_text("v1\n{}")
        prepare(folder, newest)

    pipeline.add()
    pipeline.run()
    monkeypatch.setattr(SparkFolder, "prepare", overtaken)
    with pytest.raises(FencedError, match="written by another driver"):
        pipeline.run()


@pytest.mark.proof
def test_without_restarts_the_error_names_the_cause_and_nothing_is_visible(
    pipeline: Pipeline,
) -> None:
    pipeline.add()
    (pipeline.root / "fail").touch()
    frame = pipeline.frame().mapInArrow(fail_if(pipeline.root / "fail"), "id long")
    with pytest.raises(DeclinedError, match="broken on purpose"):
        pipeline.run(pipeline.writer(frame))
    assert pipeline.ids() == []
    assert pipeline.targets["facts"].prepared() == []


def slow(seconds: float) -> Callable[[Any], Any]:
    def apply(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(seconds)
            yield batch

    return apply


def test_a_checkpoint_that_takes_too_long_expires_and_its_tasks_are_gone(
    pipeline: Pipeline,
) -> None:
    pipeline.add()
    frame = pipeline.frame().mapInArrow(slow(60), "id long")
    with pytest.raises(CheckpointExpiredError, match=r"checkpoint\.timeout"):
        pipeline.run(pipeline.writer(frame, options={"checkpoint.timeout": "2 s"}))
    tracker = pipeline.spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    assert [stage and stage.numActiveTasks for stage in stages] in ([], [0])
    assert pipeline.ids() == []


def test_a_checkpoint_that_has_expired_is_completed_with_a_longer_timeout(
    pipeline: Pipeline,
) -> None:
    def sleepy(timeout: str) -> StreamWriter:
        frame = pipeline.frame().mapInArrow(slow(4), "id long")
        return pipeline.writer(frame, options={"checkpoint.timeout": timeout})

    pipeline.add()
    with pytest.raises(CheckpointExpiredError, match=r"Next: raise checkpoint\.timeout"):
        pipeline.run(sleepy("1 s"))
    pipeline.run(sleepy("10 min"))
    assert pipeline.ids() == list(range(10))


@pytest.mark.proof
def test_stop_in_the_middle_of_a_batch_does_not_count_it_as_done(pipeline: Pipeline) -> None:
    pipeline.add()
    started = pipeline.root / "started"

    def linger(batches: Any) -> Any:
        import time

        for batch in batches:
            started.touch()
            time.sleep(600)
            yield batch

    job = pipeline.writer(pipeline.frame().mapInArrow(linger, "id long")).start()
    wait_for(started.exists, "the batch to begin")
    job.stop()
    assert job.exception() is None
    assert pipeline.ids() == []
    pipeline.run()
    assert pipeline.ids() == list(range(10))


def test_a_driver_that_is_overtaken_while_it_is_being_stopped_is_told_that_it_is_fenced(
    pipeline: Pipeline,
) -> None:
    """Spark's query ends cleanly then, and knows nothing of it."""
    started = threading.Event()
    stopping = threading.Thread(target=lambda: job.stop())

    def overtake(event: Event) -> None:
        if isinstance(event, SinkAcknowledged):
            pipeline.overtake()
            started.wait(60)
            stopping.start()
            wait_for(
                lambda: (run := job._engine._run) is not None and run.context.stopping.is_set(),
                "the stop to begin",
            )

    pipeline.add()
    job = pipeline.writer().observer(overtake).start()
    started.set()
    with pytest.raises(FencedError, match="written by another driver"):
        job.await_termination(120)
    stopping.join()


def test_a_stop_with_a_timeout_says_whether_the_job_has_ended(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink's commit does not answer: the job goes on stopping, and ends when it does."""
    committing, answer, commit = threading.Event(), threading.Event(), OpenFolderSink.commit

    def hold(sink: OpenFolderSink, requests: Any) -> Any:
        committing.set()
        assert answer.wait(60)
        return commit(sink, requests)

    monkeypatch.setattr(OpenFolderSink, "commit", hold)
    pipeline.add()
    job = pipeline.writer().start()
    assert committing.wait(60)
    assert not job.stop(timeout=0.2)
    assert job.is_active
    answer.set()
    assert job.stop(timeout=60)
    assert job.exception() is None
    assert pipeline.ids() == list(range(10))


def test_a_stop_with_a_savepoint_is_refused_with_drain_and_done_without(
    pipeline: Pipeline,
) -> None:
    pipeline.add()
    job = pipeline.writer().start()
    wait_for(lambda: pipeline.ids() == list(range(10)), "the first rows")
    drain: Any = True
    with pytest.raises(ConfigError, match="argument 'drain' is not supported") as caught:
        job.stop_with_savepoint(str(pipeline.root / "saved"), drain=drain)
    assert caught.value.remedy == "leave it out: open windows stay in the savepoint."
    assert job.is_active
    saved = job.stop_with_savepoint(str(pipeline.root / "saved"))
    assert job.await_termination(60)
    pipeline.add()
    again = {"restore.path": saved, "checkpointLocation": str(pipeline.root / "again")}
    pipeline.run(pipeline.writer(options=again))
    assert pipeline.ids() == list(range(20))


@pytest.mark.proof
def test_a_second_query_on_the_folder_is_refused_and_the_first_goes_on(pipeline: Pipeline) -> None:
    pipeline.add()
    job = pipeline.writer().start()
    try:
        with pytest.raises(ConfigError, match=r"already runs on .* in this process"):
            pipeline.writer().start()
        wait_for(lambda: pipeline.ids() == list(range(10)), "the first job to go on")
    finally:
        job.stop()


def test_h51_two_sinks_on_one_target_are_refused(pipeline: Pipeline) -> None:
    pipeline.add()
    writer = pipeline.writer(sinks=("facts",)).sink("copy", FolderSink(pipeline.root / "facts"))
    with pytest.raises(ConfigError, match="sinks 'facts' and 'copy' write to one target"):
        pipeline.run(writer)
    assert pipeline.ids() == []


def test_sinks_are_opened_side_by_side(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits in `open` until the other is there as well."""
    meeting, open_alone = threading.Barrier(2, timeout=30), FolderSink.open

    def meet(sink: FolderSink, context: SinkContext) -> OpenFolderSink:
        meeting.wait()
        return open_alone(sink, context)

    monkeypatch.setattr(FolderSink, "open", meet)
    pipeline.add()
    pipeline.run(pipeline.writer(sinks=("facts", "lake")))
    assert pipeline.ids("facts") == pipeline.ids("lake") == list(range(10))


def test_a_fresh_start_can_be_refused(pipeline: Pipeline) -> None:
    pipeline.add()
    with pytest.raises(
        ConfigError, match=r"has no checkpoint, and restore\.error_if_no_checkpoint is set"
    ):
        pipeline.run(pipeline.writer(options={"restore.error_if_no_checkpoint": True}))
    assert pipeline.ids() == []
    pipeline.run()
    pipeline.add()
    pipeline.run(pipeline.writer(options={"restore.error_if_no_checkpoint": True}))
    assert pipeline.ids() == list(range(20))


def spark_folder(pipeline: Pipeline) -> Path:
    (folder,) = (pipeline.root / "job" / "spark").iterdir()
    return folder


def test_spark_s_folder_deleted_is_noticed(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    shutil.rmtree(spark_folder(pipeline))
    with pytest.raises(CheckpointMissingError, match="is missing, but checkpoint 0"):
        pipeline.run()


@pytest.mark.proof
def test_an_old_copy_of_spark_s_folder_is_noticed(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    folder = spark_folder(pipeline)
    shutil.copytree(folder, pipeline.root / "old")
    for _ in range(2):
        pipeline.add()
        pipeline.run()
    shutil.rmtree(folder)
    (pipeline.root / "old").rename(folder)
    with pytest.raises(OffsetMismatchError, match="planned micro-batch 0"):
        pipeline.run()
    assert pipeline.ids() == list(range(30))


def to_an_old_copy(folder: Path) -> None:
    """Spark has planned the first micro-batch only."""
    for log in ("offsets", "commits"):
        for path in [*(folder / log).glob("1"), *(folder / log).glob(".1.crc")]:
            path.unlink()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("lose", "error"),
    [(shutil.rmtree, CheckpointMissingError), (to_an_old_copy, OffsetMismatchError)],
)
def test_a_restore_from_the_newest_checkpoint_leads_out_where_spark_s_folder_is_gone_or_old(
    pipeline: Pipeline, lose: Callable[[Path], None], error: type[StopJobError]
) -> None:
    def counting(**options: Any) -> StreamWriter:
        numbers = (
            pipeline.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        )
        return pipeline.writer(numbers.selectExpr("value as id"), options=options)

    pipeline.run(counting())
    pipeline.run(counting())
    lose(spark_folder(pipeline))
    for _ in range(2):
        with pytest.raises(error, match=r"restore\.path"):
            pipeline.run(counting())
    newest = {"restore.path": restoring(pipeline)["restore.path"]}
    for rows in (30, 40):
        pipeline.run(counting(**newest))
        assert pipeline.ids() == list(range(rows))


@pytest.mark.proof
@pytest.mark.parametrize("name", ["offsets/1", "commits/1"])
def test_a_file_of_spark_s_log_that_a_power_cut_emptied_is_deleted_and_the_job_goes_on(
    pipeline: Pipeline, name: str
) -> None:
    """Of micro-batch 1 one of them was not on disk: it is planned and undecided, or
    finished and not noted.
    """
    pipeline.add()
    pipeline.run()
    pipeline.add()
    if name == "offsets/1":
        with pytest.raises(DeclinedError):
            pipeline.run(
                pipeline.writer(pipeline.frame().selectExpr("raise_error('poisoned') as id"))
            )
    else:
        pipeline.run()
    path = spark_folder(pipeline) / name
    path.write_text("")
    for _ in range(2):
        with pytest.raises(OffsetMismatchError, match=rf"{name} is empty.*delete it"):
            pipeline.run()
    path.unlink()
    pipeline.add()
    pipeline.run()
    assert pipeline.ids() == list(range(30))


@pytest.mark.proof
def test_the_folder_of_another_query_is_noticed(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    (spark_folder(pipeline) / "metadata").write_text(
        '{"id":"11111111-2222-3333-4444-555555555555"}'
    )
    (spark_folder(pipeline) / ".metadata.crc").unlink(missing_ok=True)
    with pytest.raises(OffsetMismatchError, match="belongs to query 11111111"):
        pipeline.run()


def test_what_spark_wrote_is_durable_before_the_decision_and_its_state_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    monkeypatch.setattr(
        folder_module, "sync_file_system", lambda path: found.extend(path.glob("state/*/*/*.delta"))
    )
    tape = SyncTape(monkeypatch)
    pipeline.add()
    pipeline.run(pipeline.writer(pipeline.frame().dropDuplicates(["id"])))
    assert {"offsets/0", "file system"} <= set(tape.before_decision())
    assert {path.name for path in found} == {"1.delta"}


def test_offsets_that_a_power_cut_emptied_are_named_and_deleting_them_loses_nothing(
    pipeline: Pipeline,
) -> None:
    pipeline.add()
    pipeline.run()
    pipeline.add()
    torn = spark_folder(pipeline) / "offsets" / "1"
    torn.touch()
    with pytest.raises(OffsetMismatchError, match=r"offsets/1 is empty"):
        pipeline.run(pipeline.writer(options={"restart.strategy": "exponential"}))
    torn.unlink()
    pipeline.run()
    assert pipeline.ids() == list(range(20))


@pytest.mark.proof
def test_the_job_s_folder_deleted_is_noticed(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    shutil.rmtree(pipeline.root / "job")
    with pytest.raises(CheckpointMissingError, match="is empty, but sink 'facts'"):
        pipeline.run()
    assert pipeline.ids() == list(range(10))


@pytest.mark.proof
def test_an_old_copy_of_the_job_s_folder_is_noticed(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    shutil.copytree(pipeline.root / "job", pipeline.root / "old")
    pipeline.add()
    pipeline.run()
    shutil.rmtree(pipeline.root / "job")
    (pipeline.root / "old").rename(pipeline.root / "job")
    with pytest.raises(
        CheckpointMissingError,
        match="has committed checkpoint 1, but the checkpoint store ends at 0",
    ):
        pipeline.run()


def lose_spark_commit(pipeline: Pipeline, number: int) -> None:
    """As if the driver had died between the decision and Spark's commit log (C16)."""
    for name in (str(number), f".{number}.crc"):
        (spark_folder(pipeline) / "commits" / name).unlink(missing_ok=True)


@pytest.mark.proof
def test_a_committed_batch_that_spark_has_not_noted_is_not_run_again(pipeline: Pipeline) -> None:
    pipeline.add()
    pipeline.run()
    lose_spark_commit(pipeline, 0)
    pipeline.add()
    pipeline.run()
    assert pipeline.ids() == list(range(20))
    assert pipeline.of(CheckpointReplayed) == []


def test_a_committed_batch_of_a_plan_with_state_is_not_run_again_and_its_state_stays(
    pipeline: Pipeline,
) -> None:
    def deduplicated() -> StreamWriter:
        return pipeline.writer(pipeline.frame().selectExpr("id % 15 as id").dropDuplicates(["id"]))

    pipeline.add()
    pipeline.run(deduplicated())
    lose_spark_commit(pipeline, 0)
    pipeline.add()
    pipeline.run(deduplicated())
    assert pipeline.ids() == list(range(15))
    assert pipeline.of(CheckpointReplayed) == []


def test_an_exit_in_spark_s_callback_is_a_failure_that_ends_the_job(pipeline: Pipeline) -> None:
    """Spark would wait for an answer for ever (H70)."""

    def leave(event: Event) -> None:
        if isinstance(event, CheckpointTriggered):
            raise SystemExit(1)

    pipeline.add()
    with pytest.raises(RuntimeError, match="SystemExit was raised in the job's thread: '1'"):
        pipeline.run(pipeline.writer().observer(leave))
    pipeline.run()
    assert pipeline.ids() == list(range(10))


def test_a_stop_in_the_middle_of_a_checkpoint_declines_it_as_ended_by_the_stop(
    pipeline: Pipeline,
) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(600)
        yield from batches

    pipeline.add()
    job = (
        pipeline.writer(pipeline.frame().mapInArrow(slowly, "id long"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    wait_for(
        lambda: bool(pipeline.spark.sparkContext.statusTracker().getActiveStageIds()),
        "the tasks to run",
    )
    job.stop()
    job.await_termination(60)
    declined = pipeline.of(CheckpointDeclined)
    assert [(event.checkpoint, event.reason, event.will_retry) for event in declined] == [
        (0, "CHECKPOINT_COORDINATOR_SHUTDOWN", False)
    ]
    pipeline.run()
    assert pipeline.ids() == list(range(10))


class Counter:
    """A function with state: how many checkpoints it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self.restored: list[bool] = []
        self.completed: list[int] = []
        self.aborted: list[int] = []

    def snapshot_state(self, context: SnapshotContext) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count}

    def initialize_state(self, context: InitializationContext) -> None:
        self.count = context.state.get("count", 0)
        self.restored.append(context.is_restored)

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self.completed.append(checkpoint)

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        self.aborted.append(checkpoint)

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        pass


def restoring(pipeline: Pipeline) -> dict[str, str]:
    """Options for a restore of the newest checkpoint into another folder."""
    newest = max(
        (pipeline.root / "job" / "chk").iterdir(), key=lambda folder: folder.stat().st_mtime_ns
    )
    return {"restore.path": str(newest), "checkpointLocation": str(pipeline.root / "again")}


def test_a_plan_that_may_keep_state_is_not_restored_without_it_unless_told_that_it_keeps_none(
    pipeline: Pipeline,
) -> None:
    names = pipeline.spark.range(40).hint("broadcast")

    def joined(**options: Any) -> StreamWriter:
        numbers = (
            pipeline.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        )
        return pipeline.writer(numbers.selectExpr("value as id").join(names, "id"), options=options)

    pipeline.run(joined())
    assert pipeline.ids() == list(range(10))
    with pytest.raises(ConfigError, match="allow_non_restored_state"):
        pipeline.run(joined(**restoring(pipeline)))
    assert not (pipeline.root / "again" / "log").exists()
    pipeline.run(joined(**restoring(pipeline), **{"restore.allow_non_restored_state": True}))
    assert pipeline.ids() == list(range(20))


def test_a_restored_job_whose_first_micro_batch_fails_goes_on(pipeline: Pipeline) -> None:
    """Spark plans it, and at the next start reads what is noted with the offsets
    that it begins at.
    """

    def counting(condition: str, **options: Any) -> StreamWriter:
        numbers = (
            pipeline.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        )
        return pipeline.writer(
            numbers.selectExpr(f"if({condition}, raise_error('poisoned'), value) as id"),
            options=options,
        )

    pipeline.run(counting("value < 0"))
    options = restoring(pipeline)
    with pytest.raises(DeclinedError, match="poisoned"):
        pipeline.run(counting("value > 9", **options))
    pipeline.run(counting("value < 0", **options))
    assert pipeline.ids() == list(range(30)), "the micro-batch that failed, and one more"


def test_a_source_whose_offsets_mean_nothing_without_spark_s_folder_is_not_restored(
    pipeline: Pipeline,
) -> None:
    pipeline.add()
    pipeline.run()
    with pytest.raises(ConfigError, match="FileSource") as caught:
        pipeline.run(pipeline.writer(options=restoring(pipeline)))
    assert not (pipeline.root / "again" / "log").exists()
    assert "twophase savepoint create JOB.yaml PATH" in caught.value.remedy
    job_file, saved = pipeline.root / "job.yaml", pipeline.root / "saved"
    job = {
        "name": "orders",
        "source": {"format": "json", "schema": "id long", "options": {"path": str(pipeline.input)}},
        "sinks": {"facts": {"type": "file", "options": {"path": str(pipeline.root / "lake")}}},
        "options": {"checkpointLocation": str(pipeline.root / "job")},
    }
    job_file.write_text(yaml.safe_dump(job))
    result = CliRunner().invoke(main, ["savepoint", "create", str(job_file), str(saved)])
    assert result.exit_code == 0, result.output
    pipeline.add()
    pipeline.run(pipeline.writer(options=restoring(pipeline) | {"restore.path": str(saved)}))
    assert pipeline.ids() == list(range(20))


@pytest.mark.proof
def test_a_function_keeps_its_state_in_the_checkpoints(pipeline: Pipeline) -> None:
    first, second = Counter(), Counter()
    pipeline.add()
    pipeline.add()
    pipeline.run(pipeline.writer().function("counter", first))
    assert (first.restored, first.count, first.completed) == ([False], 2, [0, 1])
    pipeline.add()
    pipeline.run(pipeline.writer().function("counter", second))
    assert (second.restored, second.count, second.completed) == ([True], 3, [2])


def test_stop_ends_a_commit_that_cannot_succeed_and_the_next_start_commits(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def refuse(*_: Any) -> Any:
        tried.set()
        raise ConnectionError("the target is down")

    pipeline.add()
    with monkeypatch.context() as patch:
        patch.setattr(OpenFolderSink, "commit", refuse)
        job: Job = pipeline.writer().start()
        assert tried.wait(60)
        job.stop()
    assert pipeline.ids() == []
    pipeline.run()
    assert pipeline.ids() == list(range(10))

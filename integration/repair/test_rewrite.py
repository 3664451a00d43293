"""Lost pieces are read from Kafka again through the job's own plan: exactly the lost rows,
or refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness.folder_sink import FolderSink, FolderTarget
from harness.memory_driver import NOTE
from harness.selection import representatives
from integration.kafka.topics import Topics, numbers
from twophase.cli.main import main
from twophase.coordinator.commit.context import JobContext
from twophase.errors import (
    ConfigError,
    DeclinedError,
    LostCommittableError,
    OffsetOutOfRangeError,
    StopJobError,
)
from twophase.events import Observers
from twophase.internals import failpoints, sink_entry_points
from twophase.internals.clock import SystemClock
from twophase.operations.repair.rewrite import RewritePlan, RewriteRepair
from twophase.spark.batch.reread import PlanReread
from twophase.spark.job.stream_writer import StreamWriter
from twophase.spark.plugin.registration import register
from twophase.state.files.storage import LocalStorage

pytestmark = pytest.mark.part("repair")

_TIMEOUT_S = 300
_FOLDER = EntryPoint("folder", "harness.folder_sink:FolderSink", sink_entry_points.GROUP)
Plan = Callable[[DataFrame], DataFrame]


class Job:
    """A topic of two partitions, the numbers 0 to 19 in one and 100 to 119 in the other, and a job
    that writes them to two folders.
    """

    def __init__(
        self, spark: SparkSession, topics: Topics, root: Path, topic: str | None = None
    ) -> None:
        register(spark)
        self.root = root
        self.topic = topic or topics.create(2)
        self.read_tasks = 1
        self.plan: Plan = lambda rows: rows
        self.facts_only: Plan = lambda rows: rows
        self.lake_only: Plan = lambda rows: rows
        self._spark, self.topics = spark, topics

    def produce(self, first: int) -> None:
        """Twenty numbers more in each partition."""
        self.topics.send(self.topic, numbers(first, first + 20))
        self.topics.send(self.topic, numbers(first + 100, first + 120), 1)

    def describe(self) -> StreamWriter:
        frame = (
            self._spark.readStream.format("twophase-kafka")
            .option("kafka.bootstrap.servers", self.topics.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("minReadTasks", self.read_tasks)
            .load()
            .selectExpr("cast(cast(value as string) as long) as id")
        )
        return (
            twophase.write_stream(self.plan(frame), name="orders")
            .sink("facts", FolderSink(self.root / "facts"), self.facts_only)
            .sink("lake", FolderSink(self.root / "lake"), self.lake_only)
            .options(**{"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"})
            .trigger(availableNow=True)
        )

    def run(self) -> None:
        """Process what is there, and end."""
        self.describe().start().await_termination(_TIMEOUT_S)

    def decide(self) -> None:
        """The driver dies when the next checkpoint is decided and committed nowhere."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "_rules", failpoints._parse("C11=raise"))
            patch.setattr(failpoints, "_hits", {})
            with pytest.raises((StreamingQueryException, DeclinedError, failpoints.FailpointError)):
                self.run()

    def lose(self, *indices: int) -> None:
        """Somebody deletes pieces of `facts`, counted from 0."""
        names = FolderTarget(self.root / "facts").prepared()
        for index in indices:
            (self.root / "facts" / "prepared" / names[index]).unlink()

    @contextmanager
    def repairing(self) -> Iterator[RewriteRepair]:
        job = self.describe().build()
        sinks, described = job.open_sinks(), job.description
        storage = LocalStorage(self.root / "job")
        reread = PlanReread(job.name, described.frame, described.sinks, sinks, storage)
        yield RewriteRepair(
            JobContext(job.name, storage, sinks, described.options, Observers(), SystemClock()),
            reread,
        )

    def rewrite(self, checkpoint: int = 0) -> RewritePlan:
        with self.repairing() as repairing:
            plan = repairing.plan(checkpoint, "facts")
            repairing.rewrite(plan, NOTE)
        return plan

    def accept_loss(self, checkpoint: int = 0) -> Result:
        """`twophase repair accept-loss` of what `facts` has lost, said yes to."""
        job_file = self.root / "job.yaml"
        options = {"kafka.bootstrap.servers": self.topics.servers, "subscribe": self.topic}
        sinks = ("facts", "lake")
        job = {
            "name": "orders",
            "source": {"format": "twophase-kafka", "schema": "id long", "options": options},
            "sinks": {
                name: {"type": "folder", "options": {"path": str(self.root / name)}}
                for name in sinks
            },
            "options": {"checkpointLocation": str(self.root / "job")},
        }
        job_file.write_text(yaml.safe_dump(job))
        command = ["repair", "accept-loss", str(job_file), "--checkpoint", str(checkpoint)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sink_entry_points, "offered", lambda _: {"folder": _FOLDER})
            return CliRunner().invoke(
                main, [*command, "--sink", "facts", "--yes", "--reason", "expired"]
            )

    def ids(self, sink: str) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / sink).rows())

    def exact(self, expected: list[int]) -> None:
        """The job goes on; both sinks have everything once."""
        self.produce(20)
        self.run()
        expected = sorted([*expected, *range(20, 40), *range(120, 140)])
        assert self.ids("facts") == self.ids("lake") == expected
        assert FolderTarget(self.root / "facts").prepared() == []


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> Job:
    made = Job(spark, topics, tmp_path)
    made.produce(0)
    return made


def evens(rows: DataFrame) -> DataFrame:
    return rows.where("id % 2 = 0")


def twice(rows: DataFrame) -> DataFrame:
    return rows.union(rows.selectExpr("id + 1000"))


def shuffled(rows: DataFrame) -> DataFrame:
    return rows.repartition(3, "id")


ALL = [*range(20), *range(100, 120)]
CASES: dict[str, tuple[int, tuple[int, ...], list[str]]] = {
    "one partition": (1, (1,), ["1:0 to 20"]),
    "both partitions": (1, (0, 1), ["0:0 to 20", "1:0 to 20"]),
    "two ranges of one partition": (4, (0, 1), ["0:0 to 10", "0:10 to 20"]),
    "a range of each partition": (4, (1, 2), ["0:10 to 20", "1:0 to 10"]),
}


@pytest.mark.parametrize("case", representatives(CASES, ["one partition"]))
def test_exactly_the_lost_ranges_are_read_and_written_again(job: Job, case: str) -> None:
    job.read_tasks, lost, ranges = CASES[case]
    job.decide()
    job.lose(*lost)
    with pytest.raises(LostCommittableError):
        job.run()
    plan = job.rewrite()
    assert plan.ranges == [f"{job.topic}-{text} (source kafka)" for text in ranges]
    assert job.ids("facts") == job.ids("lake") == ALL
    job.exact(ALL)


@pytest.mark.proof
def test_a_partition_of_which_nothing_is_lost_may_have_expired(job: Job) -> None:
    job.plan = evens
    job.decide()
    job.lose(1)
    job.topics.cut(job.topic, 20, 0)
    job.rewrite()
    assert job.ids("facts") == job.ids("lake") == [number for number in ALL if number % 2 == 0]


@pytest.mark.proof
def test_where_all_is_lost_the_rows_may_have_been_shuffled(job: Job) -> None:
    job.facts_only = shuffled
    job.decide()
    job.lose(*range(len(FolderTarget(job.root / "facts").prepared())))
    job.rewrite()
    job.exact(ALL)


def test_records_that_have_expired_cannot_be_written_again(job: Job) -> None:
    job.decide()
    job.lose(1)
    job.topics.cut(job.topic, 1, 1)
    with pytest.raises(
        OffsetOutOfRangeError, match="their records are gone from the source"
    ) as caught:
        job.rewrite()
    assert "twophase repair accept-loss JOB.yaml, with the same" in caught.value.remedy
    assert job.ids("facts") == list(range(20)), "what was not lost is committed"
    result = job.accept_loss()
    assert result.exit_code == 0, result.output
    job.produce(20)
    job.run()
    assert job.ids("facts") == [*range(40), *range(120, 140)]
    assert job.ids("lake") == sorted([*ALL, *range(20, 40), *range(120, 140)])


@pytest.mark.proof
@pytest.mark.parametrize("plan", [shuffled, twice])
def test_a_part_of_rows_that_are_not_written_as_they_are_read_is_refused(
    job: Job, plan: Plan
) -> None:
    job.facts_only = plan
    job.decide()
    job.lose(1)
    with pytest.raises(StopJobError, match="nothing tells which records the lost pieces had"):
        job.rewrite()


def drawn(rows: DataFrame) -> DataFrame:
    return rows.where("rand() < 2")


@pytest.mark.proof
def test_only_the_sink_that_lost_pieces_must_not_draw_by_chance(job: Job) -> None:
    job.lake_only = drawn
    job.decide()
    job.lose(1)
    job.facts_only = drawn
    with pytest.raises(StopJobError, match="what sink 'facts' makes of the rows draws by chance"):
        job.rewrite()
    job.facts_only = lambda rows: rows
    job.rewrite()
    assert job.ids("facts") == job.ids("lake") == ALL


@pytest.mark.proof
def test_without_the_time_of_the_micro_batch_nothing_is_written_again(job: Job) -> None:
    job.decide()
    job.lose(1)
    for path in (job.root / "job" / "spark").glob("*/offsets/0"):
        path.unlink()
    with pytest.raises(StopJobError, match="does not tell its time and settings"):
        job.rewrite()
    assert FolderTarget(job.root / "facts").prepared() == []


@pytest.mark.proof
def test_a_piece_that_was_written_again_in_part_and_is_lost_once_more_is_refused(job: Job) -> None:
    job.decide()
    job.lose(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_rules", failpoints._parse("R03=raise"))
        patch.setattr(failpoints, "_hits", {})
        with pytest.raises(failpoints.FailpointError):
            job.rewrite()
    job.lose(0)
    with pytest.raises(StopJobError, match=r"was written again before .* is lost once more"):
        job.rewrite()


@pytest.mark.proof
def test_another_plan_than_the_one_that_wrote_the_checkpoint_is_noticed(job: Job) -> None:
    job.decide()
    job.lose(1)
    job.plan = evens
    with pytest.raises(StopJobError, match=r"20 rows of checkpoint 0 are lost .* gave 10"):
        job.rewrite()
    assert FolderTarget(job.root / "facts").prepared() == []
    job.plan = lambda rows: rows
    job.rewrite()
    job.exact(ALL)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (lambda rows: rows.dropDuplicates(["id"]), "its plan keeps state"),
        (lambda rows: rows.where("rand() < 0.5"), "draws by chance"),
    ],
    ids=["state", "chance"],
)
def test_a_plan_whose_rows_depend_on_more_than_the_records_is_refused(
    job: Job, plan: Plan, why: str
) -> None:
    job.decide()
    job.lose(1)
    job.plan = plan
    with pytest.raises(ConfigError, match=why) as caught, job.repairing():
        pass
    assert "give the job file that wrote the checkpoint" in caught.value.remedy
    job.plan = lambda rows: rows
    job.rewrite()
    assert job.ids("facts") == job.ids("lake") == ALL

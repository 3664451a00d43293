"""A job over Kafka is rewound, and Kafka has not kept what that needs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness.beginning_world import refused
from harness.folder_sink import FolderSink, FolderTarget
from harness.memory_driver import NOTE
from harness.savepoint_world import restoring
from harness.selection import first_of
from integration.kafka.topics import Topics
from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.errors import (
    OffsetOutOfRangeError,
    PartitionVanishedError,
    RestoreRefusedError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.events import Observers
from twophase.internals import failpoints
from twophase.internals.clock import SystemClock
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.release import ReleaseRepair
from twophase.operations.savepoint.make import SavepointMaker
from twophase.options.job_options import JobOptions
from twophase.spark.plan import logical_plan
from twophase.spark.plugin.registration import register
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import StartingOffsets

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.part("kafka")]

RECORDS = 20


class KafkaJob:
    """A topic of two partitions, and a job that writes it into a folder."""

    def __init__(self, spark: SparkSession, topics: Topics, root: Path) -> None:
        register(spark)
        self.root = root
        self.topics = topics
        self.topic = topics.create(2)
        self.group = f"group-of-{self.topic}"
        self.starting = "earliest"
        self._spark = spark
        self._produced = 0

    def produce(self, partition: int | None = None) -> list[int]:
        """Write to both partitions by turns, or to one; return the new ids."""
        new = [*range(self._produced, self._produced + RECORDS)]
        for number in new:
            to = number % 2 if partition is None else partition
            self.topics.send(self.topic, [b'{"id": %d}' % number], to)
        self._produced += RECORDS
        return new

    def frame(self) -> DataFrame:
        return (
            self._spark.readStream.format("twophase-kafka")
            .option("kafka.bootstrap.servers", self.topics.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", self.starting)
            .option("group.id", self.group)
            .option("value.format", "json")
            .schema("id long")
            .load()
            .select("id")
        )

    def run(self, folder: str = "job", **options: str) -> None:
        """Process what is there, and end."""
        given = {"checkpointLocation": str(self.root / folder), "restart.strategy": "none"}
        writer = twophase.write_stream(self.frame(), name="orders")
        writer.sink("facts", FolderSink(self.root / "facts")).options(**given, **options)
        writer.trigger(availableNow=True).start().await_termination(300)

    def context(self) -> JobContext:
        """What a repair has of the job."""
        folder = self.root / "job"
        folder.mkdir(mode=0o700, exist_ok=True)
        options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
        sink = FolderSink(self.root / "facts").open(SinkContext("orders", "facts", None, 0))
        storage, clock = LocalStorage(folder), SystemClock()
        return JobContext("orders", storage, {"facts": sink}, options, Observers(), clock)

    def release(self) -> None:
        """`twophase repair release-topic`."""
        legs = logical_plan.sources(self.frame())
        spark = self.root / "job" / "spark"
        repair = ReleaseRepair(self.context(), legs, lambda lineage: spark / lineage)
        repair.release(repair.plan([self.topic]), NOTE)

    def save(self) -> Path:
        """Make a savepoint of the stopped job."""
        path = self.root / "saved"
        maker = SavepointMaker("orders", self.root / "job", SystemClock())
        maker.make(str(path), still_waiting=lambda: False)
        return path

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> KafkaJob:
    return KafkaJob(spark, topics, tmp_path)


def test_a_job_begins_where_a_query_with_foreach_batch_has_ended(job: KafkaJob) -> None:
    """I give the job the folder of the old query: it is refused, and says where to begin."""
    old: list[int] = []
    job.produce()
    writer = job.frame().writeStream.option("checkpointLocation", f"file://{job.root}/chk")
    writer.foreachBatch(lambda rows, _: old.extend(row["id"] for row in rows.collect()))
    writer.trigger(availableNow=True).start().awaitTermination(300)
    assert sorted(old) == [*range(RECORDS)]
    job.produce()
    with pytest.raises(twophase.ConfigError) as caught:
        job.run("chk")
    [job.starting] = re.findall(r"\{.*?\}\}", str(caught.value))
    assert job.ids() == []
    job.run()
    assert job.ids() == [*range(RECORDS, 2 * RECORDS)]


def expired(job: KafkaJob) -> None:
    """Retention has deleted what came after the savepoint."""
    for partition in (0, 1):
        job.topics.cut(job.topic, RECORDS, partition)


def recreated(job: KafkaJob) -> None:
    """The topic was deleted and made again."""
    job.topics.recreate(job.topic, 2)


def shrunk(job: KafkaJob) -> None:
    """The same, with one partition less."""
    job.topics.recreate(job.topic, 1)


def gone(job: KafkaJob) -> None:
    """The topic was deleted."""
    job.topics.delete(job.topic)


def compacted(job: KafkaJob) -> None:
    """The topic is compacted by now, and most of its records are gone."""
    pad = b"x" * 600_000
    job.topics.compact(job.topic, RECORDS, [b'{"id": %d, "pad": "%s"}' % (1000, pad)] * 3)


LOSSES: dict[Callable[[KafkaJob], None], type[TwoPhaseError]] = {
    expired: OffsetOutOfRangeError,
    recreated: TopicRecreatedError,
    shrunk: TopicRecreatedError,
    gone: PartitionVanishedError,
    compacted: RestoreRefusedError,
}


@pytest.mark.parametrize("folder", first_of(1, ["again", "job"]))
@pytest.mark.parametrize("lose", first_of(1, LOSSES))
def test_no_row_is_taken_back_that_kafka_cannot_give_again(
    job: KafkaJob, lose: Callable[[KafkaJob], None], folder: str
) -> None:
    """I rewind to a savepoint, and Kafka has lost what came after it: the rewind is refused, and
    all rows stay. I start without it, as it says, and release the topic if that is gone.
    """
    job.produce()
    job.run()
    path = job.save()
    job.produce()
    job.run()
    lose(job)
    before = job.ids()
    assert before == [*range(2 * RECORDS)]
    with refused(job.root) as caught:
        job.run(folder, **restoring(path, "rewind"))
    assert caught.type is LOSSES[lose]
    assert "start without restore.path" in caught.value.remedy
    assert "another job" not in caught.value.remedy
    assert job.ids() == before
    if LOSSES[lose] in (TopicRecreatedError, PartitionVanishedError):
        with pytest.raises(LOSSES[lose], match=job.topic) as stopped:
            job.run()
        assert f"repair release-topic JOB.yaml --topic {job.topic}" in stopped.value.remedy
        job.release()
        if lose is gone:
            job.topics.create(2, job.topic)
    # a compacted topic takes no record without a key; the newest ones are not read yet
    new = [1000] * 3 if lose is compacted else job.produce(0 if lose is shrunk else None)
    job.run()
    job.run()
    assert job.ids() == [*before, *new]


def rewind_and_begin_where_the_group_stands(
    job: KafkaJob, monkeypatch: pytest.MonkeyPatch, point: str
) -> list[int]:
    """A rewind dies at a crash point, and the job's folder is lost. Its log is adopted from the
    target, and the job begins at the offsets of its group.

    Returns:
        What was left in the target before that.
    """
    job.produce()
    job.run()
    path = job.save()
    job.produce()
    job.run()
    assert job.topics.committed(job.group) == {0: RECORDS, 1: RECORDS}
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
        patch.setattr(failpoints, "_hits", {})
        with pytest.raises(Exception):  # noqa: B017, PT011 whatever Spark makes of it
            job.run(**restoring(path, "rewind"))
    left = job.ids()
    assert job.topics.committed(job.group) == {0: RECORDS // 2, 1: RECORDS // 2}
    shutil.rmtree(job.root / "job")
    job.starting = "committed"
    repair = AdoptionRepair(job.context(), lambda *_: None)
    repair.adopt(repair.plan(), NOTE, [StartingOffsets("kafka", "committed")])
    job.run()
    return left


@pytest.mark.parametrize("point", first_of(1, ["S13", "C01"]))
def test_a_job_that_begins_where_its_group_stands_after_a_rewind_leaves_out_no_record(
    job: KafkaJob, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Whether the rewind had ended or not."""
    left = rewind_and_begin_where_the_group_stands(job, monkeypatch, point)
    assert left == [*range(RECORDS)]
    assert job.ids() == [*range(2 * RECORDS)]


@pytest.mark.proof
def test_what_it_repeats_where_the_rewind_had_not_reached_the_sink_is_not_noticed(
    job: KafkaJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is told first."""
    left = rewind_and_begin_where_the_group_stands(job, monkeypatch, "S11")
    assert left == [*range(2 * RECORDS)]
    assert job.ids() == sorted([*left, *range(RECORDS, 2 * RECORDS)])


def test_a_job_begins_where_it_was_confirmed_when_its_log_was_adopted(job: KafkaJob) -> None:
    """The folder was gone, and I said where to go on. Then I started the usual program, which
    begins at the earliest offsets: it is refused, and with what I confirmed no row comes twice.
    """
    job.produce()
    job.run()
    shutil.rmtree(job.root / "job")
    job.produce()
    confirmed = json.dumps({job.topic: {"0": RECORDS // 2, "1": RECORDS // 2}})
    repair = AdoptionRepair(job.context(), lambda *_: None)
    repair.adopt(repair.plan(), NOTE, [StartingOffsets("kafka", confirmed)])
    with refused(job.root) as caught:
        job.run()
    assert f"set startingOffsets of the source with uid kafka {confirmed}" in caught.value.remedy
    job.starting = confirmed
    job.run()
    job.starting = "earliest"
    job.produce()
    job.run()
    assert job.ids() == [*range(3 * RECORDS)]

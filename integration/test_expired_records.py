"""Records that expire between a kill and the next start: those of a committed micro-batch are not needed again (H62).

Where Spark's state does need them again, they have to be the same (H35).

A driver is killed after COMMITTED(n) and before Spark has noted micro-batch n as finished, so Spark runs n again.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import twophase
from integration import checker
from integration.arena import Arena
from integration.files_arena import orders
from integration.kafka_topics import Topics
from integration.nemesis import held_at
from integration.plugin_arena import PluginArena
from twophase import errors
from twophase.errors import DeclinedError, OffsetOutOfRangeError, RangeChangedError, TwoPhaseError
from twophase.runtime.registration import register
from twophase.testing.folder import FolderSink, FolderTarget
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("kafka")

RECORDS = 100
_TIMEOUT_S = 300
_KILL_TIMEOUT_S = 540


class Job:
    """A topic, and a job of `write_stream` that writes it into a folder."""

    def __init__(self, spark: SparkSession, topics: Topics, root: Path) -> None:
        register(spark)
        self.root = root
        self.stateful = self.poisoned = False
        self._spark, self._topics = spark, topics
        self.topic = topics.create()
        self._produced = 0

    def produce(self) -> None:
        self._topics.send(
            self.topic, [b'{"id": %d}' % number for number in range(self._produced, self._produced + RECORDS)]
        )
        self._produced += RECORDS

    def expire(self) -> None:
        """All records that are there now are deleted, as retention would."""
        self._topics.cut(self.topic, self._produced)

    def compact(self) -> int:
        """Compaction takes records that are there now; how many are left. Three new ones come behind them."""
        before, self._produced = self._produced, self._produced + 3
        pad = "x" * 600_000
        filler = [b'{"id": %d, "pad": "%s"}' % (number, pad.encode()) for number in range(before, self._produced)]
        return self._topics.compact(self.topic, before, filler)

    def frame(self) -> DataFrame:
        frame = (
            self._spark.readStream.format("twophase-kafka")
            .option("kafka.bootstrap.servers", self._topics.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("value.format", "json")
            .schema("id long")
            .load()
        )
        frame = frame.selectExpr(f"if(id = 99 and {self.poisoned}, raise_error('poisoned'), id) as id")
        return frame.dropDuplicates(["id"]) if self.stateful else frame

    def run(self) -> None:
        """Process what is there, and end."""
        (
            twophase.write_stream(self.frame(), name="orders")
            .sink("facts", FolderSink(self.root / "facts"))
            .options(**{"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"})
            .trigger(availableNow=True)
            .start()
            .await_termination(_TIMEOUT_S)
        )

    def error(self) -> TwoPhaseError:
        """What ends a run that must fail."""
        with pytest.raises(TwoPhaseError) as raised:
            self.run()
        return raised.value

    def fails_once(self) -> None:
        """An attempt fails in its tasks, and nothing is decided."""
        self.poisoned = True
        with pytest.raises((StreamingQueryException, DeclinedError)):
            self.run()
        self.poisoned = False

    def spark_folder(self) -> Path:
        (folder,) = (self.root / "job" / "spark").iterdir()
        return folder

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())

    def expected(self) -> list[int]:
        return list(range(self._produced))

    def lose_commit(self) -> None:
        """As if the driver had been killed before Spark noted its newest micro-batch as finished (C16)."""
        commits = self.spark_folder() / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for name in (f"{newest}", f".{newest}.crc"):
            (commits / name).unlink(missing_ok=True)


class Query(Job):
    """The same in the plugin form."""

    def run(self) -> None:
        query = (
            self.frame()
            .writeStream.format("twophase-file")
            .options(name="orders", checkpointLocation=str(self.root / "job"), path=str(self.root / "facts"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_TIMEOUT_S)

    def error(self) -> TwoPhaseError:
        with pytest.raises(StreamingQueryException) as raised:
            self.run()
        error = errors.from_text(str(raised.value))
        assert error is not None, str(raised.value)
        return error

    def spark_folder(self) -> Path:
        return self.root / "job"

    def ids(self) -> list[int]:
        tables = (pyarrow.parquet.read_table(path) for path in (self.root / "facts").glob("*.parquet"))
        return sorted(number for table in tables for number in table["id"].to_pylist())


@pytest.fixture(params=[Job, Query], ids=["write_stream", "plugin"])
def job(request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path) -> Job:
    made: Job = request.param(spark, topics, tmp_path)
    return made


def test_a_committed_micro_batch_does_not_need_its_records_again(job: Job) -> None:
    job.produce()
    job.run()
    job.lose_commit()
    job.expire()
    job.produce()
    job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_an_undecided_micro_batch_whose_records_are_gone_stops_by_name(job: Job) -> None:
    job.produce()
    job.fails_once()
    job.expire()
    assert isinstance(error := job.error(), OffsetOutOfRangeError)
    assert "100 records are lost: offsets 0 to 99" in str(error)
    assert job.ids() == []


@pytest.mark.proof
def test_a_committed_micro_batch_that_spark_s_state_needs_again_stops_by_name(job: Job) -> None:
    job.stateful = True
    job.produce()
    job.run()
    job.lose_commit()
    job.expire()
    assert isinstance(error := job.error(), OffsetOutOfRangeError)
    assert "100 records are lost: offsets 0 to 99" in str(error)
    assert ("is committed in every sink, and none of its rows is lost" in str(error)) is not isinstance(job, Query)
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_a_micro_batch_that_spark_s_state_needs_again_is_read_again(job: Job) -> None:
    job.stateful = True
    job.produce()
    job.run()
    for _ in range(2):
        job.lose_commit()
        job.run()
    job.produce()
    job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_records_that_compaction_took_since_the_decision_stop_the_job_before_its_state_is_built_of_others(
    job: Job,
) -> None:
    job.stateful = True
    job.produce()
    job.run()
    job.lose_commit()
    written, left = job.ids(), job.compact()
    error = job.error()
    assert isinstance(error, RangeChangedError)
    assert f"[0, 100) (topic '{job.topic}', partition 0) has other records" in str(error)
    assert f"100 then, {left} now (compaction)" in str(error)
    assert ("is committed in every sink, and none of its rows is lost" in str(error)) is not isinstance(job, Query)
    assert job.ids() == written
    assert isinstance(job.error(), RangeChangedError), "it does not pass the second time either"
    way_on = re.search(r"delete (\S+) and start again", error.remedy)
    assert way_on is not None
    shutil.rmtree(way_on[1])
    job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_a_job_of_write_stream_killed_before_spark_s_note_goes_on_without_the_records(
    kafka: KafkaService, mysql: MySqlService, topics: Topics, tmp_path: Path
) -> None:
    arena = Arena(kafka, {"facts": mysql}, tmp_path)
    arena.produce(RECORDS)
    arena.start(held_at(["C16"], 2)).kill_when_at(["C16"], _KILL_TIMEOUT_S)
    expired = expire(topics, arena.topic)
    arena.produce(RECORDS)
    arena.finish()
    with mysql.connect(arena.databases["facts"]) as connection:
        check(topics, arena.topic, expired, checker.read_table(connection, "orders"))


@pytest.mark.proof
def test_a_query_of_the_plugin_form_killed_before_spark_s_note_goes_on_without_the_records(
    kafka: KafkaService, topics: Topics, tmp_path: Path
) -> None:
    arena = PluginArena(kafka, None, tmp_path)
    arena.produce(RECORDS)
    arena.driver(held_at(["C16"], 2)).kill_when_at(["C16"], _KILL_TIMEOUT_S)
    expired = expire(topics, arena.topic)
    arena.produce(RECORDS)
    arena.finish()
    check(topics, arena.topic, expired, orders(tmp_path / arena.jobs[0]))


def expire(topics: Topics, topic: str) -> checker.Records:
    """All records of a topic are deleted; what they were."""
    records = checker.read_topic(topics.servers, topic)
    for partition in {*records["partition"]}:
        topics.cut(topic, int(records["offset"][records["partition"] == partition].max()) + 1, int(partition))
    return records


def check(topics: Topics, topic: str, expired: checker.Records, stored: checker.Records) -> None:
    """Every record once, those that have expired too."""
    left = checker.read_topic(topics.servers, topic)
    assert (len(expired), len(left)) == (RECORDS, RECORDS)
    assert checker.compare(np.concatenate([expired, left]), stored).exact

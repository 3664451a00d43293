"""Records that expire between a kill and the next start: those of a committed micro-batch are not
needed again (H62). Where Spark's state does need them again, they have to be the same (H35).

A driver is killed after DECIDED(n) and before Spark has noted micro-batch n as finished, so Spark
would run n again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import twophase
from harness import checker
from harness.folder_sink import FolderSink, FolderTarget
from harness.nemesis import held_at
from harness.selection import first_of
from harness.spark_settings import changed
from integration.kafka.topics import Topics
from integration.mysql.scenario import Scenario
from integration.plugin.scenario import PluginScenario, in_files
from twophase import errors
from twophase.errors import (
    DeclinedError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    RangeChangedError,
    ReplayLostError,
    SourceLossError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.spark.plugin.registration import register
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("kafka")

STATE = "org.apache.spark.sql.execution.streaming.state"
RECORDS = 100
LATE_S = 10
"""By the watermark of `watermarked`, whose records are a second apart."""
_TIMEOUT_S = 300
_KILL_TIMEOUT_S = 540


class Job:
    """A topic, and a job of `write_stream` that writes it into a folder."""

    def __init__(self, spark: SparkSession, topics: Topics, root: Path) -> None:
        register(spark)
        self.root = root
        self.name, self.folder = "orders", root / "job"
        self.starting, self.restarts = "earliest", "none"
        self.poisoned = False
        self.keep: Callable[[DataFrame], DataFrame] = lambda frame: frame
        self._spark, self._topics = spark, topics
        self.topic = topics.create()
        self._produced = self._sent = 0

    def produce(self) -> None:
        self._send(range(self._produced, self._produced + RECORDS))
        self._produced += RECORDS

    def repeat(self) -> None:
        """All ids until now come once more. A query that remembers them writes none again."""
        self._send(range(self._produced))

    def _send(self, ids: range) -> None:
        self._topics.send(self.topic, [b'{"id": %d}' % number for number in ids])
        self._sent += len(ids)

    def expire(self) -> None:
        """All records that are there now are deleted, as retention would."""
        self._topics.cut(self.topic, self._sent)

    def compact(self) -> int:
        """Compaction takes records that are there now; how many are left. Three new
        ones come behind them.
        """
        before, self._produced = self._sent, self._produced + 3
        pad = "x" * 600_000
        filler = [
            b'{"id": %d, "pad": "%s"}' % (number, pad.encode())
            for number in range(before, self._produced)
        ]
        self._sent += len(filler)
        return self._topics.compact(self.topic, before, filler)

    def recreate(self) -> None:
        """The topic is deleted and made again under its name."""
        self._topics.recreate(self.topic)

    def delete(self) -> None:
        """The topic is gone."""
        self._topics.delete(self.topic)

    def frame(self) -> DataFrame:
        frame = (
            self._spark.readStream.format("twophase-kafka")
            .option("kafka.bootstrap.servers", self._topics.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", self.starting)
            .option("value.format", "json")
            .schema("id long")
            .load()
        )
        return self.keep(
            frame.selectExpr(
                f"if({self.poisoned} and id % 100 = 99, raise_error('poisoned'), id) as id"
            )
        )

    def run(self) -> None:
        """Process what is there, and end."""
        (
            twophase.write_stream(self.frame(), name=self.name)
            .sink("facts", FolderSink(self.root / "facts"))
            .options(**{"checkpointLocation": str(self.folder), "restart.strategy": self.restarts})
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

    def begin_afresh(self) -> None:
        """What the error says, or the log of a query of the plugin form."""
        self.starting = json.dumps({self.topic: {"0": self._sent}})
        self.name, self.folder = "orders_2", self.root / "job_2"

    def begin_at_the_earliest(self) -> None:
        """The same with a topic that has nothing yet."""
        self.begin_afresh()
        self.starting = "earliest"

    def begin_with_another_topic(self) -> None:
        """The same where the old one does not come back."""
        self.begin_at_the_earliest()
        self.topic = self._topics.create()

    def spark_folder(self) -> Path:
        (folder,) = (self.folder / "spark").iterdir()
        return folder

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())

    def expected(self) -> list[int]:
        return list(range(self._produced))

    def lose_commit(self) -> None:
        """As if the driver had been killed before Spark noted its newest micro-batch
        as finished (C16).
        """
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
            .options(
                name=self.name, checkpointLocation=str(self.folder), path=str(self.root / "facts")
            )
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_TIMEOUT_S)

    def error(self) -> TwoPhaseError:
        with pytest.raises(StreamingQueryException) as raised:
            self.run()
        error = errors.carried(raised.value)
        assert error is not None, str(raised.value)
        return error

    def spark_folder(self) -> Path:
        return self.folder

    def ids(self) -> list[int]:
        tables = (
            pyarrow.parquet.read_table(path) for path in (self.root / "facts").glob("*.parquet")
        )
        return sorted(number for table in tables for number in table["id"].to_pylist())


@pytest.fixture(params=[Job, Query], ids=["write_stream", "plugin"])
def job(request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path) -> Job:
    made: Job = request.param(spark, topics, tmp_path)
    return made


def settings(spark: SparkSession, **others: Any) -> AbstractContextManager[None]:
    """Settings of Spark's streaming, for a while."""
    return changed(
        spark, {f"spark.sql.streaming.{key}": str(value) for key, value in others.items()}
    )


def deduplicated(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["id"])


def watermarked(frame: DataFrame) -> DataFrame:
    timed = frame.withColumn("time", F.timestamp_seconds("id")).withWatermark(
        "time", f"{LATE_S} seconds"
    )
    return timed.dropDuplicates(["id"]).select("id")


def test_a_committed_micro_batch_does_not_need_its_records_again(job: Job) -> None:
    job.produce()
    job.run()
    job.lose_commit()
    job.expire()
    job.produce()
    job.run()
    assert job.ids() == job.expected()


LOSSES: dict[
    str, tuple[type[SourceLossError], str, Callable[[Job], None], Callable[[Job], None]]
] = {
    "expired": (
        OffsetOutOfRangeError,
        "100 records are gone: offsets 100 to 199",
        Job.expire,
        Job.begin_afresh,
    ),
    "recreated": (
        TopicRecreatedError,
        "deleted and created again",
        Job.recreate,
        Job.begin_at_the_earliest,
    ),
    "vanished": (
        PartitionVanishedError,
        "the topic no longer exists",
        Job.delete,
        Job.begin_with_another_topic,
    ),
}


@pytest.mark.proof
@pytest.mark.parametrize("loss", LOSSES)
def test_records_that_are_gone_before_they_were_read_stop_the_job_and_another_goes_on(
    job: Job, loss: str
) -> None:
    error, said, lose, begin_afresh = LOSSES[loss]
    way_on = (
        "begin another job, with another name and checkpointLocation"
        if loss == "expired"
        else f"twophase repair release-topic JOB.yaml --topic {job.topic}"
    )
    job.produce()
    job.run()
    written = job.ids()
    job.produce()
    job.fails_once()
    lose(job)
    for _ in range(2):
        assert isinstance(found := job.error(), error)
        assert said in str(found)
        assert way_on in found.remedy
    assert job.ids() == written == list(range(RECORDS))
    begin_afresh(job)
    job.produce()
    job.run()
    assert job.ids() == [*range(RECORDS), *range(2 * RECORDS, 3 * RECORDS)], (
        "all but those that nobody has any more"
    )


@pytest.mark.parametrize(
    ("job", "provider"),
    first_of(
        1,
        [
            (form, f"{kind}StateStoreProvider")
            for form in (Job, Query)
            for kind in ("HDFSBacked", "RocksDB")
        ],
    ),
    indirect=["job"],
)
def test_a_query_that_keeps_state_does_not_need_them_either_and_keeps_it(
    job: Job, spark: SparkSession, provider: str
) -> None:
    with settings(spark, **{"stateStore.providerClass": f"{STATE}.{provider}"}):
        job.keep = deduplicated
        for _ in range(2):
            job.produce()
            job.run()
        job.lose_commit()
        job.expire()
        job.repeat()
        job.produce()
        job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_a_query_with_a_watermark_fails_once_and_goes_on_with_its_state(
    job: Job, spark: SparkSession
) -> None:
    with settings(spark, **{"noDataMicroBatches.enabled": False}):
        job.keep = watermarked
        job.produce()
        job.run()
        job.lose_commit()
        job.expire()
        error = job.error()
        assert isinstance(
            error, OffsetOutOfRangeError if isinstance(job, Query) else ReplayLostError
        )
        assert "100 records are gone: offsets 0 to 99" in str(error)
        assert ("start the query again" in str(error)) is isinstance(job, Query)
        assert job.ids() == job.expected()
        job.repeat()
        job.produce()
        job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_a_job_with_a_watermark_goes_on_by_itself(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = Job(spark, topics, tmp_path)
    with settings(spark, **{"noDataMicroBatches.enabled": False}):
        job.keep = watermarked
        job.produce()
        job.run()
        job.lose_commit()
        job.expire()
        job.repeat()
        job.produce()
        job.restarts = "fixed"
        job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_where_only_spark_s_commit_log_tells_the_state_another_job_goes_on(
    job: Job, spark: SparkSession
) -> None:
    rocksdb = {"stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider"}
    with settings(spark, **rocksdb, **{"stateStore.checkpointFormatVersion": 2}):
        job.keep = deduplicated
        job.produce()
        job.run()
        job.lose_commit()
        job.expire()
        for _ in range(2):
            assert isinstance(error := job.error(), OffsetOutOfRangeError)
        job.begin_afresh()
        # In the plugin form it is a warning in the driver's log.
        begins = f"""("startingOffsets", '{job.starting}')"""
        assert (begins in str(error)) is not isinstance(job, Query)
        job.produce()
        job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_a_replay_whose_records_compaction_took_is_noted_as_finished_and_keeps_the_first_state(
    job: Job, spark: SparkSession
) -> None:
    with settings(spark, **{"noDataMicroBatches.enabled": False}):
        job.keep = watermarked
        job.produce()
        job.run()
        job.lose_commit()
        left = job.compact()
        error = job.error()
        assert isinstance(error, RangeChangedError if isinstance(job, Query) else ReplayLostError)
        assert f"100 then, {left} now (compaction)" in str(error)
        job.repeat()
        job.run()
    assert job.ids() == job.expected()


@pytest.mark.proof
def test_where_only_spark_s_commit_log_tells_the_state_it_is_not_built_of_other_records_by_itself(
    job: Job, spark: SparkSession
) -> None:
    rocksdb = {"stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider"}
    with settings(spark, **rocksdb, **{"stateStore.checkpointFormatVersion": 2}):
        job.keep = deduplicated
        job.produce()
        job.run()
        job.lose_commit()
        job.run()
        job.lose_commit()
        written, left = job.ids(), job.compact()
        for _ in range(2):
            error = job.error()
            assert isinstance(error, RangeChangedError)
            assert (
                f"-0:0 to 100 (topic '{job.topic}', partition 0) does not have the records"
                in str(error)
            )
            assert f"100 then, {left} now (compaction)" in str(error)
        assert job.ids() == written
        way_on = re.search(r"delete (\S+) and start again", error.remedy)
        assert way_on is not None
        shutil.rmtree(way_on[1])
        job.run()
    assert job.ids() == job.expected()


WITH_AND_WITHOUT_STATE = pytest.mark.parametrize(
    "deduplicated", [False, True], ids=["stateless", "stateful"]
)


@pytest.mark.proof
@WITH_AND_WITHOUT_STATE
def test_a_job_of_write_stream_killed_before_spark_s_note_goes_on_without_the_records(
    kafka: KafkaService, mysql: MySqlService, topics: Topics, tmp_path: Path, deduplicated: bool
) -> None:
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path)
    scenario.settings["deduplicated"] = deduplicated
    scenario.produce(RECORDS)
    scenario.start(held_at(["C16"])).kill_when_at(["C16"], _KILL_TIMEOUT_S)
    expired = expire(topics, scenario.topic)
    scenario.produce(RECORDS)
    scenario.finish()
    with mysql.connect(scenario.databases["facts"]) as connection:
        check(topics, scenario.topic, expired, checker.read_table(connection, "orders"))


@pytest.mark.proof
@WITH_AND_WITHOUT_STATE
def test_a_query_of_the_plugin_form_killed_before_spark_s_note_goes_on_without_the_records(
    kafka: KafkaService, topics: Topics, tmp_path: Path, deduplicated: bool
) -> None:
    scenario = killed_query(kafka, tmp_path, "C16", deduplicated=deduplicated)
    expired = expire(topics, scenario.topic)
    scenario.produce(RECORDS)
    scenario.finish()
    check(topics, scenario.topic, expired, scenario.targets[scenario.jobs[0]].rows())


@pytest.mark.proof
@WITH_AND_WITHOUT_STATE
def test_a_query_of_the_plugin_form_killed_before_its_commit_commits_first_and_needs_one_more_start(
    kafka: KafkaService, topics: Topics, tmp_path: Path, deduplicated: bool
) -> None:
    scenario = killed_query(kafka, tmp_path, "C11", deduplicated=deduplicated)
    assert len(scenario.targets[scenario.jobs[0]].rows()) == 0
    expired = expire(topics, scenario.topic)
    failed = scenario.driver().wait(_KILL_TIMEOUT_S)
    assert (failed.code, "OffsetOutOfRangeError" in failed.output) == (
        OffsetOutOfRangeError.exit_code,
        True,
    )
    assert checker.compare(expired, scenario.targets[scenario.jobs[0]].rows()).exact
    scenario.produce(RECORDS)
    scenario.finish()
    check(topics, scenario.topic, expired, scenario.targets[scenario.jobs[0]].rows())


def killed_query(
    kafka: KafkaService, folder: Path, point: str, *, deduplicated: bool
) -> PluginScenario:
    """A query of the plugin form whose driver was killed at a crash point of its
    first micro-batch.
    """
    scenario = PluginScenario(kafka, in_files, folder)
    scenario.settings["deduplicated"] = deduplicated
    scenario.produce(RECORDS)
    scenario.driver(held_at([point])).kill_when_at([point], _KILL_TIMEOUT_S)
    return scenario


def expire(topics: Topics, topic: str) -> checker.Records:
    """All records of a topic are deleted; what they were."""
    records = checker.read_topic(topics.servers, topic)
    for partition in {*records["partition"]}:
        topics.cut(
            topic,
            int(records["offset"][records["partition"] == partition].max()) + 1,
            int(partition),
        )
    return records


def check(topics: Topics, topic: str, expired: checker.Records, stored: checker.Records) -> None:
    """Every record once, those that have expired too."""
    left = checker.read_topic(topics.servers, topic)
    assert (len(expired), len(left)) == (RECORDS, RECORDS)
    assert checker.compare(np.concatenate([expired, left]), stored).exact

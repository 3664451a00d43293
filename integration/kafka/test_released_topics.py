"""A topic goes that a job has read. `twophase repair release-topic` lets the job go on, in its
folder and with its state, and every record of the other topics is written once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import twophase
from harness.spark_settings import changed
from integration.kafka.topics import Topics
from twophase.cli.main import main
from twophase.errors import (
    ConfigError,
    FencedError,
    PartitionVanishedError,
    TopicRecreatedError,
    TwoPhaseError,
    carried,
)
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import SavepointMaker
from twophase.sinks.file.sink import FileSink
from twophase.spark.plugin.registration import register
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Release
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.services import KafkaService

pytestmark = pytest.mark.part("kafka")

JOB = "orders"
REASON = "the shop of 2024 is closed"
_TIMEOUT_S = 300


class Job:
    """A job that reads two topics, one of which goes, into a folder of files.

    Attributes:
        old: the topic that goes.
        new: the one that stays.
        remembers: whether the plan keeps state: ids that it has seen are not written again.
    """

    def __init__(self, spark: SparkSession, topics: Topics, root: Path) -> None:
        register(spark)
        self.topics, self.root = topics, root
        self.old, self.new = topics.create(), topics.create()
        self.remembers = False
        self.poisoned = False
        self.options: dict[str, str] = {}
        self.retained: dict[str, str] = {}
        self._spark = spark
        self._sent = 0

    @property
    def folder(self) -> Path:
        """Where the job keeps its log."""
        return self.root / "job"

    def produce(self, topic: str, count: int = 10) -> None:
        """Ids that no record had before."""
        ids = [b'{"id": %d}' % number for number in range(self._sent, self._sent + count)]
        self._sent += count
        self.topics.send(topic, ids)

    def repeat(self) -> None:
        """The first ten ids come once more, in the topic that stays."""
        self.topics.send(self.new, [b'{"id": %d}' % number for number in range(10)])

    def source(self) -> dict[str, str]:
        """The options of the source."""
        names = {"subscribe": f"{self.old},{self.new}"}
        return {
            "kafka.bootstrap.servers": self.topics.servers,
            "value.format": "json",
            "partition.discovery.interval": "100 ms",
            **(self.options or names),
        }

    def run(self, **options: str) -> None:
        """Process what is there, and end."""
        frame = self._spark.readStream.format("twophase-kafka").options(**self.source())
        rows = frame.schema("id long").load()
        if self.poisoned:
            rows = rows.selectExpr("if(id >= 0, raise_error('poisoned'), id) as id")
        if self.remembers:
            rows = rows.dropDuplicates(["id"])
        with changed(self._spark, {"spark.sql.shuffle.partitions": "1"}):
            (
                twophase.write_stream(rows, name=JOB)
                .sink("facts", FileSink(path=str(self.root / "facts"), format="json"))
                .options(**{"checkpointLocation": str(self.folder), "restart.strategy": "none"})
                .options(**self.retained, **options)
                .trigger(availableNow=True)
                .start()
                .await_termination(_TIMEOUT_S)
            )

    def fails(self, **options: str) -> TwoPhaseError:
        """What ends a run that must fail."""
        with pytest.raises(TwoPhaseError) as raised:
            self.run(**options)
        return raised.value

    def repair(self, command: str, *more: str) -> tuple[int, str]:
        """The command that an error names, and its output."""
        job = {
            "name": JOB,
            "source": {"format": "twophase-kafka", "schema": "id long", "options": self.source()},
            "sinks": {
                "facts": {
                    "type": "file",
                    "options": {"path": str(self.root / "facts"), "format": "json"},
                }
            },
            "options": {"checkpointLocation": str(self.folder)},
        }
        path = self.root / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        program, *arguments = command.replace("JOB.yaml", str(path)).split()
        assert program == "twophase"
        result = CliRunner().invoke(main, [*arguments, *more])
        return result.exit_code, " ".join(result.output.split())

    def release(self, error: TwoPhaseError, *more: str) -> str:
        """What the error says, pasted as it is."""
        command = error.remedy[error.remedy.index("twophase repair") :]
        code, output = self.repair(command, "--yes", "--reason", REASON, *more)
        assert code == 0, output
        return output

    def history(self) -> History:
        """What the log says."""
        return JobLog(LocalStorage(self.folder), JOB).read()

    def ids(self) -> list[int]:
        """What the files have."""
        paths = (self.root / "facts").glob("*.json")
        return sorted(
            json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()
        )


class Query(Job):
    """The same in the plugin form."""

    @property
    def folder(self) -> Path:
        return self.root / "job" / "twophase"

    def run(self, **options: str) -> None:
        frame = self._spark.readStream.format("twophase-kafka").options(**self.source())
        query = (
            frame.schema("id long")
            .load()
            .writeStream.format("twophase-file")
            .options(
                name=JOB,
                sink="facts",
                path=str(self.root / "facts"),
                format="json",
                checkpointLocation=str(self.folder.parent),
                **options,
            )
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_TIMEOUT_S)

    def fails(self, **options: str) -> TwoPhaseError:
        with pytest.raises(StreamingQueryException) as raised:
            self.run(**options)
        found = carried(raised.value)
        assert found is not None
        return found


@pytest.fixture
def job(spark: SparkSession, kafka: KafkaService, topics: Topics, tmp_path: Path) -> Job:
    return Job(spark, topics, tmp_path)


def test_a_deleted_topic_is_released_and_the_job_goes_on_with_its_state(job: Job) -> None:
    job.remembers = True
    job.produce(job.old)
    job.run()
    job.produce(job.new)
    job.run()
    job.topics.delete(job.old)
    job.produce(job.new)
    job.repeat()
    error = job.fails()
    assert isinstance(error, PartitionVanishedError)
    before = job.history()
    output = job.release(error, "--dry-run")
    assert f"{job.old}-0:10" in output
    assert "records from offset 10 on are gone" in output
    assert "Nothing was written." in output
    assert job.history() == before
    job.release(error)
    [release] = job.history().repairs
    assert isinstance(release, Release)
    assert release.note.reason == REASON
    for _ in range(2):
        job.run()
        assert job.ids() == list(range(30)), "ids that the state has seen are not written again"
    assert job.history().lineages == before.lineages
    code, output = job.repair(f"twophase repair release-topic JOB.yaml --topic {job.old} --dry-run")
    assert (code, "nothing to give up" in output) == (3, True), output
    listed = CliRunner().invoke(main, ["checkpoints", str(job.folder)]).output
    assert f"released at {job.old}-0:10, by " in listed


@pytest.mark.proof
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_a_micro_batch_that_was_planned_with_its_records_goes_on_without_them(
    job: Job, begun: bool
) -> None:
    if begun:
        job.produce(job.new)
        job.run()
    job.produce(job.old)
    job.produce(job.new)
    job.poisoned = True
    job.fails()
    job.poisoned = False
    job.topics.delete(job.old)
    error = job.fails()
    assert isinstance(error, PartitionVanishedError)
    job.release(error)
    job.produce(job.new)
    for _ in range(2):
        job.run()
        read = [*range(10)] if begun else []
        start = 20 if begun else 10
        assert job.ids() == [*read, *range(start, start + 20)]


@pytest.mark.proof
@pytest.mark.parametrize("kind", [Job, Query])
def test_a_topic_that_was_created_again_is_read_from_its_first_record(
    kind: type[Job], spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = kind(spark, topics, tmp_path)
    job.produce(job.old)
    job.run()
    topics.recreate(job.old)
    job.produce(job.old)
    error = job.fails()
    assert isinstance(error, TopicRecreatedError)
    job.release(error)
    job.produce(job.new)
    if kind is Query:  # in the same Spark application the repair has fenced out the run before
        assert isinstance(job.fails(), FencedError)
    for _ in range(2):
        job.run()
    assert job.ids() == list(range(30))


@pytest.mark.proof
def test_a_topic_that_has_left_goes_on_where_it_was_left_when_it_is_subscribed_again(
    job: Job,
) -> None:
    job.produce(job.old)
    job.run()
    job.produce(job.old)
    job.produce(job.new)
    job.options = {"subscribe": job.new}
    error = job.fails()
    assert isinstance(error, ConfigError)
    assert "offsets 10 to 19: 10 records are not read" in job.release(error)
    job.run()
    assert job.ids() == [*range(10), *range(20, 30)]
    job.options = {}
    for _ in range(2):
        job.run()
    assert job.ids() == list(range(30))


@pytest.mark.proof
def test_a_restore_knows_what_was_released_and_a_rewind_that_needs_it_is_refused(job: Job) -> None:
    job.retained = {"checkpoint.num_retained": "9"}
    for _ in range(2):
        job.produce(job.old)
        job.run()
    saved = str(job.root / "saved")
    SavepointMaker(JOB, job.folder, SystemClock()).make(saved, still_waiting=lambda: False)
    job.topics.delete(job.old)
    job.release(job.fails())
    older, newest = (str(job.folder / one.folder) for one in job.history().decisions)
    refused = job.fails(**{"restore.path": older, "restore.sink_ahead": "rewind"})
    assert isinstance(refused, PartitionVanishedError)
    assert job.old in refused.what
    assert "release-topic" not in refused.remedy
    job.produce(job.new)
    job.run(**{"restore.path": newest})
    assert job.ids() == list(range(30))
    job.produce(job.new)
    for path in (newest, saved):
        job.run(**{"restore.path": path, "restore.id": "again", "restore.sink_ahead": "rewind"})
        assert job.ids() == list(range(40))

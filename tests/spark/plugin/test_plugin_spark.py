"""The plugin form on real Spark, with a file source and the file sink: what Spark calls, when, and
what it carries out.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from twophase import errors
from twophase.cli.main import main
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    OffsetMismatchError,
    RejectedRowsError,
    SourceLossError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.sinks.file import FileSink
from twophase.spark.plugin import checked_start
from twophase.spark.plugin.registration import register
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

pytestmark = [pytest.mark.spark, pytest.mark.part("plugin")]

_TIMEOUT_S = 300


class Query:
    """Input files, and queries on one checkpoint folder that write them to one table."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        register(spark)
        self.spark = spark
        self.input, self.table, self.folder = root / "input", root / "table", root / "chk"
        self.input.mkdir()
        self.files = 0

    def add(self) -> None:
        text = "".join(json.dumps({"id": 10 * self.files + step}) + "\n" for step in range(10))
        (self.input / f".{self.files}").write_text(text)
        (self.input / f".{self.files}").rename(self.input / f"{self.files:05d}.json")
        self.files += 1

    def frame(self) -> DataFrame:
        return (
            self.spark.readStream.schema("id long")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.input))
        )

    def start(
        self,
        frame: DataFrame | None = None,
        form: str = "twophase-file",
        mode: str = "append",
        **options: Any,
    ) -> StreamingQuery:
        """Begin a run over what is there."""
        return self.writer(
            frame if frame is not None else self.frame(), form, mode, **options
        ).start()

    def writer(
        self, frame: DataFrame, form: str = "twophase-file", mode: str = "append", **options: Any
    ) -> DataStreamWriter:
        """A run over what is there."""
        given = {
            "name": "orders",
            "checkpointLocation": str(self.folder),
            "path": str(self.table),
            **options,
        }
        writer = frame.writeStream.format(form).outputMode(mode)
        return writer.options(**given).trigger(availableNow=True)

    def run(self, *args: Any, **options: Any) -> None:
        """A run to its end."""
        assert self.start(*args, **options).awaitTermination(_TIMEOUT_S)

    def fails(self, *args: Any, **options: Any) -> TwoPhaseError:
        """A run that fails; the twophase error that its text carries."""
        with pytest.raises(StreamingQueryException) as raised:
            self.run(*args, **options)
        error = errors.carried(raised.value)
        assert error is not None, str(raised.value)
        return error

    def ids(self) -> list[int]:
        return sorted(
            number
            for path in self.table.glob("*.parquet")
            for number in pyarrow.parquet.read_table(path)["id"].to_pylist()
        )

    def history(self) -> History:
        return JobLog(LocalStorage(self.folder / "twophase"), "orders").read()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def test_every_row_arrives_once_over_several_runs_however_the_folder_is_spelled(
    query: Query,
) -> None:
    for form in ("{}", "file://{}"):
        query.add()
        query.add()
        query.run(checkpointLocation=form.format(query.folder))
    query.run(checkpointLocation=f"file:{query.folder}")
    assert query.ids() == list(range(40))
    assert query.history().generation == 1  # clean starts in one application
    assert query.history().uncommitted() == []


def test_a_thread_without_an_active_session_finds_the_format_once_it_has_registered(
    query: Query,
) -> None:
    missing: list[BaseException] = []

    def run() -> None:
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND") as caught:
            query.run()
        missing.append(caught.value)
        register(query.spark)
        query.run()

    query.add()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert missing
    assert query.ids() == list(range(10))


def test_a_decided_micro_batch_that_spark_runs_again_is_executed_and_writes_nothing(
    query: Query,
) -> None:
    query.add()
    query.run()
    for path in (query.folder / "commits").glob("*0*"):
        path.unlink()
    query.add()
    query.run()
    assert query.ids() == list(range(20))
    assert [found.checkpoint for found in query.history().decisions] == [0, 1]


def test_a_committed_micro_batch_that_spark_has_not_noted_is_not_run_again_and_a_query_may_have_a_name(  # noqa: E501
    query: Query,
) -> None:
    def run() -> None:
        query.add()
        named = query.writer(query.frame()).queryName("orders of today").start()
        assert named.awaitTermination(_TIMEOUT_S)
        assert named.name == "orders of today"

    run()
    for path in (query.folder / "commits").glob("*0*"):
        path.unlink()
    (query.input / "00000.json").unlink()
    run()
    assert query.ids() == list(range(20))


def test_a_file_that_is_gone_before_its_micro_batch_is_decided_is_not_left_out(
    query: Query,
) -> None:
    """It is named at each start, and with the file there again the query has all rows."""
    query.add()
    query.run()
    query.add()
    with pytest.raises(StreamingQueryException, match="down"):
        query.run(query.frame().selectExpr("cast(raise_error('down') as long) as id"))
    file = query.input / "00001.json"
    text = file.read_text()
    file.unlink()
    query.add()
    for _ in range(2):
        error = query.fails()
        assert isinstance(error, SourceLossError)
        assert f"Checkpoint 1 is not decided: FileSource: the file {file} is gone" in error.what
        assert query.ids() == list(range(10))
    file.write_text(text)
    query.run()
    assert query.ids() == list(range(30))


def test_state_is_not_rebuilt_without_a_file_that_is_gone(query: Query) -> None:
    """A committed micro-batch runs again for the watermark, and its file is gone: the next start
    goes on with the state of the first read.
    """

    def once_each() -> DataFrame:
        timed = query.frame().selectExpr("id", "timestamp_seconds(id + 1) as at")
        return timed.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])

    query.add()
    query.run(once_each().select("id"))
    for path in (query.folder / "commits").glob("*0*"):
        path.unlink()
    gone = (query.input / "00000.json").rename(query.input.parent / "gone.json")
    error = query.fails(once_each().select("id"))
    assert isinstance(error, SourceLossError)
    assert "none of its rows is lost" in error.what
    shutil.copy(gone, query.input / "again.json")
    query.add()
    query.run(once_each().select("id"))
    assert query.ids() == list(range(20))


def test_what_a_failed_task_says_reaches_the_user_and_nothing_of_the_micro_batch_is_left(
    query: Query,
) -> None:
    query.add()
    query.add()
    poisoned = query.frame().selectExpr("id", "if(id = 15, repeat('x', 300), 'good') as part")
    assert isinstance(query.fails(poisoned, partition_by="part"), RejectedRowsError)
    assert not [
        path
        for path in query.table.rglob("*.parquet")
        if "1" in path.name and "staged" in path.parts
    ]
    query.run(query.frame().selectExpr("id", "'good' as part"), partition_by="part")
    found = [
        number
        for path in query.table.glob("part=good/*")
        for number in pyarrow.parquet.read_table(path)["id"].to_pylist()
    ]
    assert sorted(found) == list(range(20))
    assert query.history().generation > 1


@pytest.mark.proof
def test_a_query_that_keeps_state_goes_on_after_its_decided_micro_batch_is_run_again(
    query: Query,
) -> None:
    query.add()

    def distinct() -> DataFrame:
        return query.frame().dropDuplicates(["id"])

    query.run(distinct())
    for path in (query.folder / "commits").glob("*0*"):
        path.unlink()
    query.add()
    query.run(distinct())
    assert query.ids() == list(range(20))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"restore.path": "/somewhere"}, "restore.path"),
        ({"form": "twophase-delta"}, "commits on the driver"),
        ({"form": "twophase-hive", "table": "orders"}, "through a Spark session"),
        ({"form": "twophase-file", "surprise": "1"}, "surprise"),
        ({"form": "Twophase-FILE", "partition_by": "id", "Surprise": "1"}, "surprise"),
        ({"partition_by": "part"}, "part"),
        ({"name": "or ders"}, "The job name 'or ders' is not allowed"),
        ({"execution.checkpointing.dir": "/chk"}, "has no effect in the plugin form"),
        ({"mode": "complete"}, "output mode 'complete'"),
        ({"mode": "update"}, "output mode 'update'"),
    ],
)
def test_what_cannot_work_is_refused_by_start(
    query: Query, settings: dict[str, str], said: str
) -> None:
    query.add()
    with pytest.raises(ConfigError, match=said):
        query.start(query.frame().groupBy("id").count(), **settings)
    assert not query.folder.exists()


def test_what_the_arguments_of_start_say_is_checked_too(query: Query) -> None:
    options = {"name": "orders", "checkpointLocation": str(query.folder)}
    writer = query.frame().writeStream
    with pytest.raises(ConfigError, match="surprise"):
        writer.start(str(query.table), "twophase-file", "append", surprise="1", **options)
    with pytest.raises(ConfigError, match="needs the option 'name'"):
        query.frame().writeStream.format("twophase-file").start(
            checkpointLocation=str(query.folder)
        )
    other = query.frame().writeStream.format("noop").option("surprise", "1")
    other.trigger(availableNow=True).start(
        checkpointLocation=str(query.folder)
    ).stop()  # of no concern


def test_a_target_that_does_not_answer_yet_is_left_to_the_query(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def unreachable(sink: FileSink, _: object) -> None:
        asked.append(repr(sink))
        raise TargetUnreachableError("nobody answers", remedy="wait.")

    monkeypatch.setattr(FileSink, "open", unreachable)
    query.add()
    query.start(path=str(query.table)).stop()
    assert len(asked) == 1


def test_an_old_spark_folder_restored_from_a_backup_is_a_named_error(query: Query) -> None:
    for _ in range(3):
        query.add()
    query.run()
    for log in ("offsets", "commits"):
        for path in (*(query.folder / log).glob("*1*"), *(query.folder / log).glob("*2*")):
            path.unlink()
    assert isinstance(query.fails(), OffsetMismatchError)
    assert query.ids() == list(range(30))


def test_a_query_goes_on_after_an_adoption_where_the_newest_checkpoint_ended_or_where_the_operator_says(  # noqa: E501
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file = query.input.parent / "job.yaml"
    file = {"type": "file", "options": {"path": str(query.table)}}
    confirmed = '{"numbers":{"0":20}}'
    source = {"format": "rate-micro-batch", "options": {"startingOffsets": confirmed}}
    options = {"checkpointLocation": f"{query.folder}/twophase"}
    job = {"name": "orders", "source": source, "sinks": {"file": file}, "options": options}
    job_file.write_text(yaml.safe_dump(job))

    def frame(first: int = 0, starting: str = "earliest") -> DataFrame:
        """Each run reads ten numbers more, of a new folder from `first` on."""
        rate = query.spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=10, numPartitions=1, startingOffsets=starting
        )
        return rate.load().selectExpr(f"value + {first} as id")

    def adopt(*flags: str) -> None:
        command = [
            "repair",
            "adopt-from-target",
            str(job_file),
            *flags,
            "--yes",
            "--reason",
            "it is gone",
        ]
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, "Start the query." in result.output) == (0, True), result.output

    def is_refused(lost: Path) -> None:
        """The application that has written the log takes whoever has emptied it for
        another driver, once.

        Its processes have made the folders of the log, and do not make them
        again: they stay, empty.
        """
        shutil.rmtree(lost)
        for name in ("log", "chk"):
            (query.folder / "twophase" / name).mkdir(parents=True, exist_ok=True)
        assert isinstance(query.fails(frame()), FencedError)
        assert isinstance(query.fails(frame()), CheckpointMissingError)

    query.run(frame())
    is_refused(query.folder / "twophase" / "log")
    adopt()
    query.run(frame())
    assert query.ids() == list(range(20))
    is_refused(query.folder)
    adopt("--from-starting-offsets")
    with pytest.raises(ConfigError, match="now it begins at startingOffsets earliest"):
        query.start(frame())
    assert query.ids() == list(range(20))
    with monkeypatch.context() as patch:  # as another language starts it
        patch.setattr(checked_start, "_check", lambda *_: None)
        assert isinstance(query.fails(frame(first=20, starting=confirmed)), OffsetMismatchError)
    assert query.ids() == list(range(20))
    adopt("--from-starting-offsets")
    query.run(frame(first=20, starting=confirmed))
    assert query.ids() == list(range(30))

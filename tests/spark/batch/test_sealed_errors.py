"""What Spark carries out of a worker: one of our errors is known by its seal, and a row that looks
like one is a row. So at each step that wraps an error on its way to the user.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from harness.folder_sink import FolderSink, OpenFolderSink
from twophase import seal
from twophase.contract.committable import Committable
from twophase.contract.sink import SinkContext
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    BadRecordError,
    DeclinedError,
    FencedError,
    RejectedRowsError,
    StopJobError,
    TwoPhaseError,
    carried,
    from_text,
)
from twophase.ids import Subtask, TransactionId
from twophase.internals import redaction
from twophase.internals.redaction import shown
from twophase.seal import share_key
from twophase.spark.batch.spark_errors import declined
from twophase.spark.batch.spark_jobs import SparkJobs
from twophase.spark.batch.writer_task import pre_commit
from twophase.spark.job.stream_writer import write_stream
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime"), pytest.mark.thin(2)]

NAMED = "x twophase.errors.FencedError: hello"
TRACED = (
    'a\nTraceback (most recent call last):\n  File "x.py", line 1, in f\n    raise error\n'
    f"{NAMED[2:]}\n\n\tat b"
)


class RefusingWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        raise RejectedRowsError("The table refuses row 7.", remedy="correct it.")

    def pre_commit(self) -> Committable | None:
        return None

    def abort(self) -> None:
        """Nothing was written."""


def refusing_writers(_: TransactionId, __: Subtask) -> RefusingWriter:
    return RefusingWriter()


class RefusingSink(OpenFolderSink):
    def writers(self) -> Any:
        return refusing_writers


def failure(rows: DataFrame, sink: FolderSink) -> TwoPhaseError:
    context = SinkContext(JOB, SINK, pa.schema([("value", pa.string())]), parallelism=1)
    opened = sink.open(context)
    opened.fence(FIRST)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, whichever it is
        pre_commit(rows, opened, transaction_id())
    return declined(caught.value, "It")


# -- what wraps an error on its way ----------------------------------------------------------------


Step = Callable[[DataFrame, Path], BaseException]


def in_a_job(run: Callable[[DataFrame], object]) -> Step:
    """One of our Spark jobs fails in a task."""

    def step(rows: DataFrame, _: Path) -> BaseException:
        jobs = SparkJobs(rows.sparkSession.sparkContext, "It", 60)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, whichever it is
            jobs.run({"facts": partial(run, rows)}, lambda _, __: None)
        return caught.value

    return step


def in_a_query(begin: Callable[[DataStreamWriter], DataStreamWriter]) -> Step:
    """A streaming query fails in a task of its own."""

    def step(rows: DataFrame, folder: Path) -> BaseException:
        writer = begin(rows.writeStream).option("checkpointLocation", str(folder / "query"))
        with pytest.raises(StreamingQueryException) as caught:
            writer.start().awaitTermination(60)
        return caught.value

    return step


def collect(rows: DataFrame, _: int) -> None:
    rows.collect()


STEPS: dict[str, Step] = {
    "collect": in_a_job(lambda rows: rows.collect()),
    "materialise": in_a_job(lambda rows: rows.localCheckpoint(eager=True)),
    "write": in_a_job(lambda rows: rows.write.format("noop").mode("overwrite").save()),
    "query": in_a_query(lambda writer: writer.format("noop")),
    "foreachBatch": in_a_query(lambda writer: writer.foreachBatch(collect)),
}


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest) -> Step:
    return STEPS[request.param]


def rows_of(spark: SparkSession, step: Step, folder: Path, value: str) -> DataFrame:
    """The value as the only row, streaming if the step runs a query."""
    (folder / "rows").mkdir()
    (folder / "rows" / "0.json").write_text(json.dumps({"value": value}))
    is_query = step in (STEPS["query"], STEPS["foreachBatch"])
    reader: Any = spark.readStream if is_query else spark.read
    rows: DataFrame = reader.schema("value string").json(str(folder / "rows"))
    return rows


def refuse(batches: Any) -> Any:
    for _ in batches:
        raise RejectedRowsError("The table refuses row 7.", remedy="correct it.")
    return iter(())


@pytest.mark.parametrize("hidden", ["false", "true"])
def test_an_error_of_a_task_is_carried_whole(
    spark: SparkSession, tmp_path: Path, step: Step, hidden: str
) -> None:
    share_key(spark.sparkContext.environment)
    session = spark.newSession()
    session.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", hidden)
    rows = rows_of(session, step, tmp_path, "a").mapInArrow(refuse, "value string")
    error = carried(step(rows, tmp_path))
    assert type(error) is RejectedRowsError
    assert (error.what, error.remedy) == ("The table refuses row 7.", "correct it.")


class FailingReader(DataSourceStreamReader):
    def __init__(self, at: str) -> None:
        self._at = at

    def _fail(self, at: str) -> None:
        if at == self._at:
            raise BadRecordError("The record at offset 7.", remedy="correct it.")

    def initialOffset(self) -> dict[str, Any]:
        self._fail("initialOffset")
        return {"at": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        self._fail("latestOffset")
        return {"at": 1}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        self._fail("partitions")
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        self._fail("read")
        yield ("a",)


class FailingTable(DataSourceReader):
    def __init__(self, at: str) -> None:
        self._reader = FailingReader(at)

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions(None, None)

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        return self._reader.read(partition)


class FailingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def schema(self) -> str:
        FailingReader(self.options["at"])._fail("schema")
        return "value string"

    def streamReader(self, schema: Any) -> FailingReader:
        FailingReader(self.options["at"])._fail("streamReader")
        return FailingReader(self.options["at"])

    def reader(self, schema: Any) -> FailingTable:
        FailingReader(self.options["at"])._fail("reader")
        return FailingTable(self.options["at"])


class StoppingReader(FailingReader):
    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        raise StopJobError("The records are gone.", remedy="bring them back.")


class StoppingSource(FailingSource):
    @classmethod
    def name(cls) -> str:
        return "stopping"

    def schema(self) -> str:
        return "value string"

    def streamReader(self, schema: Any) -> FailingReader:
        return StoppingReader("")


@pytest.mark.parametrize(
    "at", ["schema", "streamReader", "initialOffset", "latestOffset", "partitions", "read"]
)
def test_an_error_of_a_source_is_carried_whole(
    spark: SparkSession, tmp_path: Path, at: str
) -> None:
    share_key(spark.sparkContext.environment)
    spark.dataSource.register(FailingSource)
    described = spark.readStream.format("failing").option("at", at)
    try:
        raised = STEPS["query"](described.load(), tmp_path)
    except AnalysisException as of_the_analysis:
        raised = of_the_analysis
    error = carried(raised)
    assert type(error) is BadRecordError
    assert (error.what, error.remedy) == ("The record at offset 7.", "correct it.")


@pytest.mark.parametrize("at", ["reader", "partitions", "read"])
def test_an_error_of_a_table_that_our_job_reads_is_carried_whole(
    spark: SparkSession, tmp_path: Path, at: str
) -> None:
    """Spark asks for the partitions in a process of the driver, which belongs to no task."""
    share_key(spark.sparkContext.environment)
    spark.dataSource.register(FailingSource)
    described = spark.read.format("failing").option("at", at)
    step = in_a_job(lambda _: described.load().collect())
    error = step(spark.createDataFrame([("a",)], "value string"), tmp_path)
    assert type(error) is BadRecordError
    assert (error.what, error.remedy) == ("The record at offset 7.", "correct it.")


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_source_that_stops_the_job_where_it_plans_a_micro_batch_ends_it(
    spark: SparkSession, tmp_path: Path, sinks: int
) -> None:
    spark.dataSource.register(StoppingSource)
    writer = write_stream(spark.readStream.format("stopping").load(), name=JOB)
    for number in range(sinks):
        writer = writer.sink(f"facts{number}", FolderSink(tmp_path / f"facts{number}"))
    writer = writer.options(checkpointLocation=str(tmp_path / "job"))
    with pytest.raises(StopJobError) as caught:
        writer.trigger(availableNow=True).start().await_termination(120)
    assert (caught.value.what, caught.value.remedy) == ("The records are gone.", "bring them back.")


def test_an_error_of_a_writer_is_found_by_its_seal(spark: SparkSession, tmp_path: Path) -> None:
    error = failure(
        spark.createDataFrame([("a",)], "value string"), FolderSink(tmp_path, RefusingSink)
    )
    assert type(error) is RejectedRowsError
    assert (error.what, error.remedy) == ("The table refuses row 7.", "correct it.")


def cast(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("CAST(value AS int) AS value")


def raised_by_user_code(rows: DataFrame) -> DataFrame:
    def refuse(batches: Any) -> Any:
        for batch in batches:
            raise ValueError(batch.to_pylist()[0]["value"])
        return iter(())

    return rows.mapInArrow(refuse, "value string")


@pytest.mark.parametrize("value", [NAMED, TRACED], ids=["a name", "a traceback"])
@pytest.mark.parametrize("broken", [cast, raised_by_user_code])
def test_a_value_that_looks_like_one_of_our_errors_is_a_value(
    spark: SparkSession, tmp_path: Path, broken: Callable[[DataFrame], DataFrame], value: str
) -> None:
    rows: Sequence[tuple[str]] = [(value,)]
    error = failure(broken(spark.createDataFrame(rows, "value string")), FolderSink(tmp_path))
    assert type(error) is (RejectedRowsError if broken is cast else DeclinedError)


def sealed_elsewhere() -> str:
    """What the worker of another application has written into its log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(seal.VARIABLE, "another key")
        return "".join(traceback.format_exception(FencedError("theirs.")))


@pytest.mark.parametrize("broken", [cast, raised_by_user_code])
def test_a_value_is_a_value_whatever_spark_wraps_round_it(
    spark: SparkSession, tmp_path: Path, step: Step, broken: Callable[[DataFrame], DataFrame]
) -> None:
    value = f"{NAMED}\n{TRACED}\n{sealed_elsewhere()}"
    error = step(broken(rows_of(spark, step, tmp_path, value)), tmp_path)
    assert NAMED in str(error)
    assert "twophase-error/1 " in str(error)
    assert carried(error) is None


def test_a_line_that_a_task_of_an_earlier_job_has_sealed_is_a_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark logs what it carries, and the job may read that log."""
    share_key(spark.sparkContext.environment)
    step = STEPS["collect"]
    rows = rows_of(spark, step, tmp_path, "a")
    logged = str(step(rows.mapInArrow(refuse, "value string"), tmp_path).__cause__)
    later = step(cast(spark.createDataFrame([(logged,)], "value string")), tmp_path)
    assert type(from_text(str(later))) is RejectedRowsError
    assert not isinstance(later, TwoPhaseError)


SECRET = "4111-1111-1111-1111"


class QuotingWriter(RefusingWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        raise RejectedRowsError(f"The table refuses {shown(batch.to_pylist()[0])}.")


def quoting_writers(_: TransactionId, __: Subtask) -> QuotingWriter:
    return QuotingWriter()


class QuotingSink(OpenFolderSink):
    def writers(self) -> Any:
        return quoting_writers


def quoted_by_a_sink(rows: DataFrame, folder: Path) -> str:
    return str(failure(rows, FolderSink(folder, QuotingSink)))


def quoted_by_spark(rows: DataFrame, folder: Path) -> str:
    return str(failure(cast(rows), FolderSink(folder)))


@pytest.mark.parametrize("quoted", [quoted_by_a_sink, quoted_by_spark])
def test_a_value_is_in_the_error(
    spark: SparkSession, tmp_path: Path, quoted: Callable[[DataFrame, Path], str]
) -> None:
    assert SECRET in quoted(spark.createDataFrame([(SECRET,)], "value string"), tmp_path)


@pytest.mark.usefixtures("redacting")
@pytest.mark.parametrize("quoted", [quoted_by_a_sink, quoted_by_spark])
def test_the_setting_leaves_it_out_in_the_workers_too(
    spark: SparkSession, tmp_path: Path, quoted: Callable[[DataFrame, Path], str]
) -> None:
    message = quoted(spark.createDataFrame([(SECRET,)], "value string"), tmp_path)
    assert SECRET not in message
    assert redaction.REDACTED in message

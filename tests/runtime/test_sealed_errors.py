"""What Spark carries out of a worker: one of our errors is known by its seal, and a row that looks
like one is a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from twophase import redaction
from twophase.errors import DeclinedError, RejectedRowsError, TwoPhaseError
from twophase.ids import Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.protocol.sink import SinkContext
from twophase.protocol.writer import SinkWriter
from twophase.redaction import shown
from twophase.runtime.spark_errors import declined
from twophase.runtime.writer_task import pre_commit
from twophase.testing.folder import FolderSink, OpenFolderSink
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = pytest.mark.spark

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
    assert type(error) is DeclinedError


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

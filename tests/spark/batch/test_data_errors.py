"""What Spark's own errors are to a job: a value that an expression does not take ends it at once,
any other error if it comes again and again, and a failing network or process never.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from harness.folder_sink import FolderSink, FolderTarget
from twophase.coordinator.commit.failure_manager import SAME_FAILURES
from twophase.errors import DeclinedError, RejectedRowsError, RepeatedFailureError, TwoPhaseError
from twophase.events import Event, JobRestarting
from twophase.spark.batch.spark_errors import as_declined
from twophase.spark.job.stream_writer import write_stream

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime"), pytest.mark.thin(2)]

Transform = Callable[[DataFrame], DataFrame]
MORE = SAME_FAILURES + 2


def selecting(expression: str) -> Transform:
    return lambda frame: frame.selectExpr(f"{expression} AS id")


def raising(kind: type[Exception]) -> Transform:
    def transform(frame: DataFrame) -> DataFrame:
        def fails(value):  # without types, which Spark would read
            raise kind(f"no {value}")

        return frame.select(F.udf(fails, "long")("v").alias("id"))

    return transform


def ended(
    spark: SparkSession, root: Path, transform: Transform, **reader: str
) -> tuple[TwoPhaseError, int]:
    """Return what ended a job, and after how many restarts."""
    (root / "input").mkdir()
    (root / "input" / "0.json").write_text('{"v": "x", "n": 0}\n{broken\n')
    frame = spark.readStream.schema("v string, n int").options(**reader).json(f"{root}/input")
    events: list[Event] = []
    job = (
        write_stream(frame, name="orders")
        .sink("facts", FolderSink(root / "facts"), transform=transform)
        .observer(events.append)
        .options(
            **{
                "checkpointLocation": str(root / "job"),
                "restart.strategy": "fixed",
                "restart.delay": "1 ms",
                "restart.attempts": MORE,
            }
        )
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(TwoPhaseError) as caught:
        job.await_termination(300)
    assert FolderTarget(root / "facts").rows() == []
    return caught.value, sum(isinstance(event, JobRestarting) for event in events)


FAILFAST = {"mode": "FAILFAST"}


@pytest.mark.parametrize(
    ("transform", "condition", "reader"),
    [
        (selecting("CAST(v AS INT)"), "CAST_INVALID_INPUT", {}),
        (selecting("1 / n"), "DIVIDE_BY_ZERO", {}),
        (selecting("2147483647 + n + 1"), "ARITHMETIC_OVERFLOW", {}),
        (selecting("element_at(array(n), 5)"), "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", {}),
        (selecting("to_date(v, 'yyyy')"), "CANNOT_PARSE_TIMESTAMP", {}),
        (
            selecting("from_json(v, 'a INT', map('mode', 'FAILFAST')).a"),
            "MALFORMED_RECORD_IN_PARSING",
            {},
        ),
        (selecting("n"), "MALFORMED_RECORD_IN_PARSING", FAILFAST),
    ],
    ids=["cast", "division", "overflow", "index", "date", "from_json", "a file"],
)
def test_a_value_that_an_expression_does_not_take_ends_the_job_at_once(
    spark: SparkSession, tmp_path: Path, transform: Transform, condition: str, reader: Any
) -> None:
    error, restarts = ended(spark, tmp_path, transform, **reader)
    assert (type(error), error.exit_code, restarts) == (RejectedRowsError, 3, 0)
    assert condition in str(error)
    assert "try_cast" in error.remedy


@pytest.mark.parametrize(
    ("transform", "said"),
    [(selecting("raise_error(v)"), "USER_RAISED_EXCEPTION"), (raising(KeyError), "KeyError")],
    ids=["raise_error", "a function"],
)
def test_another_error_of_the_job_s_expressions_ends_it_when_it_has_come_so_often(
    spark: SparkSession, tmp_path: Path, transform: Transform, said: str
) -> None:
    error, restarts = ended(spark, tmp_path, transform)
    assert (type(error), error.exit_code) == (RepeatedFailureError, 3)
    assert restarts == SAME_FAILURES - 1
    assert said in str(error)


def test_a_function_whose_network_fails_is_tried_as_long_as_the_strategy_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    error, restarts = ended(spark, tmp_path, raising(ConnectionRefusedError))
    assert (type(error), restarts) == (DeclinedError, MORE)


def test_the_remedy_of_a_rejected_expression_works(spark: SparkSession, tmp_path: Path) -> None:
    ended(spark, tmp_path, selecting("CAST(v AS INT)"))
    frame = spark.readStream.schema("v string, n int").json(f"{tmp_path}/input")
    write_stream(frame, name="orders").sink(
        "facts", FolderSink(tmp_path / "facts"), transform=selecting("try_cast(v AS INT)")
    ).options(checkpointLocation=str(tmp_path / "job")).trigger(
        availableNow=True
    ).start().await_termination(120)
    assert [row["id"] for row in FolderTarget(tmp_path / "facts").rows()] == [None, None]


@pytest.mark.parametrize(
    ("kind", "fingerprint"),
    [
        ("java.nio.file.AccessDeniedException", True),
        ("org.apache.hadoop.security.AccessControlException", True),
        ("java.nio.file.NoSuchFileException", False),
        ("java.net.ConnectException", False),
    ],
)
def test_what_a_file_system_of_spark_denies_counts_and_what_it_does_not_answer_does_not(
    spark: SparkSession, kind: str, fingerprint: bool
) -> None:
    jvm: Any = spark._jvm
    denied = reduce(getattr, kind.split("."), jvm)("/lake/orders")
    with pytest.raises(Py4JJavaError) as caught:
        jvm.java.util.concurrent.CompletableFuture.failedFuture(denied).join()
    declined = as_declined(caught.value, "The commit")
    assert isinstance(declined, DeclinedError)
    assert declined.fingerprint == (kind if fingerprint else "")

"""Before the job is taken over, Spark has refused what it would: folder and target stay free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget
from twophase.errors import ConfigError
from twophase.spark.job.stream_writer import StreamWriter, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_TOO_LONG = "999999999999999 weeks"


class Typos:
    """A folder of one file, and jobs over it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        (root / "input").mkdir()
        (root / "input" / "1.json").write_text('{"id": 1}')

    def frame(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.schema("id long").options(**options)
        return reader.json(str(self.root / "input"))

    def writer(self, frame: DataFrame, folder: str, **options: Any) -> StreamWriter:
        given = {"checkpointLocation": str(self.root / folder), "restart.strategy": "none"}
        writer = write_stream(frame, name="orders").options(**given, **options)
        return writer.sink("facts", FolderSink(self.root / "facts"))


PLANS: Mapping[str, Callable[[Typos], DataFrame]] = {
    "an aggregation without a watermark": lambda job: job.frame().groupBy("id").count(),
    "a sort": lambda job: job.frame().sort("id"),
    "a sort of two sources": lambda job: job.frame().union(job.frame()).sort("id"),
    "an option that is no number": lambda job: job.frame(maxFilesPerTrigger="many"),
    "an option with an unknown value": lambda job: job.frame(cleanSource="sometimes"),
}
TRIGGERS: Mapping[str, Callable[[StreamWriter], StreamWriter]] = {
    "a trigger": lambda writer: writer.trigger(processingTime=_TOO_LONG),
    "an interval": lambda writer: writer.option("checkpoint.interval", "999999999999 d"),
}


def refused(job: Typos, writer: StreamWriter) -> None:
    """The start is refused, and another folder can be the job's."""
    with pytest.raises(ConfigError, match=r"'orders': Spark refuses .*Nothing was written\. Next:"):
        writer.start()
    assert not (job.root / "job").exists()
    assert not (job.root / "facts").exists()
    right = job.writer(job.frame(), "another").trigger(availableNow=True)
    right.start().await_termination(120)
    assert [row["id"] for row in FolderTarget(job.root / "facts").rows()] == [1]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Typos:
    return Typos(spark, tmp_path)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_that_spark_refuses_takes_no_job_over(
    job: Typos, plan: Callable[[Typos], DataFrame]
) -> None:
    refused(job, job.writer(plan(job), "job").trigger(availableNow=True))


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_a_trigger_that_spark_refuses_takes_no_job_over(
    job: Typos, trigger: Callable[[StreamWriter], StreamWriter]
) -> None:
    refused(job, trigger(job.writer(job.frame(), "job")))


def nothing(frame: DataFrame) -> Any:
    """Forgets to return the rows."""
    frame.where("id > 0")


@pytest.mark.parametrize(
    "transform", [nothing, lambda frame: frame.where("no_column > 0")], ids=["none", "wrong"]
)
def test_a_transform_that_gives_no_rows_takes_no_job_over(
    job: Typos, transform: Callable[[DataFrame], Any]
) -> None:
    target = job.root / "facts"

    def writer(transform: Callable[[DataFrame], Any]) -> StreamWriter:
        found = write_stream(job.frame(), name="orders").trigger(availableNow=True)
        found.options(**{"checkpointLocation": str(job.root / "job"), "restart.strategy": "none"})
        return found.sink("facts", FolderSink(target), transform)

    with pytest.raises(ConfigError, match=r"columns for sink 'facts' .*Nothing was wr") as caught:
        writer(transform).start()
    assert caught.value.remedy.startswith("correct the function `transform` of that sink")
    assert not (job.root / "job").exists()
    assert not target.exists()
    writer(lambda frame: frame.where("id > 0")).start().await_termination(120)
    assert [row["id"] for row in FolderTarget(target).rows()] == [1]

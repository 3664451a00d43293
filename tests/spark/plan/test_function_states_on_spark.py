"""Functions with named state in a job on Spark: a restart, a restore, a change of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.job.test_job import Pipeline, restoring
from tests.spark.plan.test_function_states import Seen
from twophase.errors import ConfigError
from twophase.spark.job.stream_writer import StreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]


class Numbers(Pipeline):
    """Ten numbers in each micro-batch, from a source that can be restored elsewhere."""

    def frame(self) -> DataFrame:
        numbers = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        return numbers.selectExpr("value as id")

    def with_function(self, uid: str, function: Seen, **options: Any) -> StreamWriter:
        return self.writer(options=options).function(uid, function)


def test_state_goes_on_after_a_restart_and_after_a_restore_and_is_refused_without_its_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, first, second, third = Numbers(spark, tmp_path), Seen(), Seen(), Seen()
    numbers.run(numbers.with_function("seen", first))
    numbers.run(numbers.with_function("seen", second))
    known = second.numbers()[0]
    assert (first.restored, second.restored) == ([False], [True])
    assert second.numbers() == [known] * 5
    assert first.numbers()[0] == known[: len(first.numbers()[0])]
    with pytest.raises(ConfigError, match="has no place for: function 'seen'"):
        numbers.run(numbers.with_function("renamed", Seen()))
    options = restoring(numbers)
    with pytest.raises(ConfigError, match="has no place for: function 'seen'"):
        numbers.run(numbers.with_function("renamed", Seen(), **options))
    assert not (numbers.root / "again" / "log").exists()
    numbers.run(numbers.with_function("seen", third, **options))
    assert third.restored == [True]
    assert third.numbers()[0][: len(known)] == known
    assert len(third.numbers()[0]) > len(known)
    [files] = (numbers.root / "again" / "state").iterdir()
    assert [name.name for name in files.iterdir()] == ["0"]

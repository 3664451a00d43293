"""A restored lineage that dies before its first checkpoint: the functions still begin with the
state of the restored one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.job.test_job import Counter, Pipeline, restoring
from twophase.contract.listener import SnapshotContext
from twophase.errors import CheckpointMissingError, DeclinedError
from twophase.spark.job.stream_writer import StreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]


class Failing(Counter):
    """Its checkpoints are declined."""

    def snapshot_state(self, context: SnapshotContext) -> dict[str, Any]:
        raise ValueError("not now")


class Restored(Pipeline):
    """Two checkpoints of a function were taken, the newest is restored elsewhere, and no
    checkpoint is taken there.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark, root)
        self.run(self.counting(Counter()))
        self.run(self.counting(Counter()))
        self.options = restoring(self)
        with pytest.raises(DeclinedError):
            self.run(self.counting(Failing(), **self.options))

    def frame(self) -> DataFrame:
        numbers = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        return numbers.selectExpr("value as id")

    def counting(self, function: Counter, **options: Any) -> StreamWriter:
        return self.writer(options=options).function("counter", function)


@pytest.fixture
def restored(spark: SparkSession, tmp_path: Path) -> Restored:
    return Restored(spark, tmp_path)


@pytest.mark.parametrize(
    "keeps_the_option",
    [
        pytest.param(True, id="restore.path is still set", marks=pytest.mark.proof),
        pytest.param(False, id="plain"),
    ],
)
def test_its_functions_begin_with_the_restored_state(
    restored: Restored, keeps_the_option: bool
) -> None:
    counter = Counter()
    options = {
        key: value
        for key, value in restored.options.items()
        if keeps_the_option or key != "restore.path"
    }
    restored.run(restored.counting(counter, **options))
    assert counter.restored == [True]
    assert counter.count > 2  # those before the restore are counted


@pytest.mark.proof
def test_it_does_not_start_without_that_state(restored: Restored) -> None:
    shutil.rmtree(restored.root / "job")
    options = {key: value for key, value in restored.options.items() if key != "restore.path"}
    with pytest.raises(
        CheckpointMissingError,
        match=r"has no checkpoint of its own yet, and the one that it began with",
    ):
        restored.run(restored.counting(Counter(), **options))
    assert restored.ids() == list(range(20))
    restored.run(
        restored.counting(Counter(), **options, **{"restore.allow_non_restored_state": True})
    )
    assert restored.ids() == list(range(40)), "the micro-batch that failed, and one more"

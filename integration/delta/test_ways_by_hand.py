"""Refusals of a job with a Delta table that its error leads out of by hand: what it says is done,
and the job goes on with exactly its rows.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.memory_driver import JOB, NOTE, SCHEMA, Driver, ManualClock, decided, open_sinks
from integration.delta.sink_harness import DeltaHarness
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import LostCommittableError, StopJobError
from twophase.events import Observers
from twophase.operations.repair.accept_loss import LossRepair
from twophase.options.job_options import JobOptions
from twophase.state.files.storage import LocalStorage

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

LAKE = "lake"
FORGETS = (
    "TBLPROPERTIES ('delta.checkpointInterval' = '1', "
    "'delta.setTransactionRetentionDuration' = 'interval 30 days')"
)


class DeltaDriver(Driver):
    """Writes each checkpoint as one piece: ids 10 n to 10 n + 9."""

    def write(self, pending: PendingCheckpoint) -> None:
        """See `Driver`."""
        ids = range(10 * pending.checkpoint, 10 * pending.checkpoint + 10)
        frame = SparkSession.active().createDataFrame([(one,) for one in ids], "id long")
        sink: Any = self.sinks[LAKE]
        pending.acknowledge(LAKE, sink.pre_commit(frame.coalesce(1), pending.transaction(LAKE)))


class World:
    """One job and its table."""

    def __init__(self, spark: SparkSession, root: Path, more: str = "") -> None:
        self.root = root
        self.table = DeltaHarness(spark, root / "orders", "id BIGINT", more)

    def sinks(self) -> dict[str, Any]:
        return open_sinks({LAKE: self.table.new_sink()}, schema=SCHEMA)

    def driver(self, folder: str = "job") -> DeltaDriver:
        return DeltaDriver(self.root / folder, {}, sinks=self.sinks())

    def repair(self) -> LossRepair:
        folder = self.root / "job"
        options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
        return LossRepair(
            JobContext(JOB, LocalStorage(folder), self.sinks(), options, Observers(), ManualClock())
        )

    def goes_on(self, number: int, ids: list[int]) -> None:
        self.driver().recover().run(number)
        left = self.driver().recover()
        assert [*left.sinks[LAKE].in_doubt()] == []
        assert sorted(row["id"] for row in self.table.rows_visible()) == ids


def test_a_piece_of_which_neither_log_nor_mark_tells_is_given_up_as_the_error_says(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """The job was down for longer than the table keeps its log."""
    world = World(delta_spark, tmp_path, FORGETS)
    driver = world.driver().recover()
    driver.run(0)
    decided(driver, 1)
    for number in (100, 101):
        world.table.sql(f"INSERT INTO {{table}} VALUES ({number})")
    for old in sorted((world.table.folder / "_delta_log").glob("*.json"))[:-1]:
        old.unlink()
    for refused in (lambda: world.driver().recover(), lambda: world.repair().plan(1, LAKE)):
        with pytest.raises(StopJobError, match="cleaned of commits") as caught:
            refused()
    [manifest] = re.findall(r"Then delete file:(\S+)", caught.value.remedy)
    Path(manifest).unlink()
    with pytest.raises(LostCommittableError, match=r"manifest of piece .* is gone") as lost:
        world.driver().recover()
    assert "twophase repair rewrite reads their records again" in lost.value.remedy
    assert "accept-loss JOB.yaml --checkpoint 1 --sink lake" in lost.value.remedy
    repairing = world.repair()
    repairing.accept(repairing.plan(1, LAKE), NOTE)
    world.goes_on(2, [*range(10), *range(20, 30), 100, 101])


def test_a_checkpoint_that_the_table_has_already_goes_on_with_the_folder_that_has_it(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """The folder was replaced by its backup under a driver that was paused, after another one had
    gone on.
    """
    world = World(delta_spark, tmp_path)
    paused = world.driver().recover()
    paused.run(0)
    shutil.copytree(tmp_path / "job", tmp_path / "as it was")
    world.driver("as it was").recover().run(1)
    with pytest.raises(StopJobError, match="already has checkpoint 1 of its lineage") as caught:
        paused.run(1)
    assert caught.value.remedy == "restore the job's folder (checkpointLocation) as it was."
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "as it was").rename(tmp_path / "job")
    world.goes_on(2, [*range(30)])

"""Accepted losses and adoptions on a Delta table and a table of a metastore: what they leave, and
that the job goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.memory_driver import (
    JOB,
    NOTE,
    SCHEMA,
    Driver,
    ManualClock,
    decided,
    frozen,
    nothing,
    offsets,
    open_sinks,
    remove_body,
)
from integration.hive.sink_harness import warehouse_of
from twophase.config import JobOptions
from twophase.coordinator.accept_loss import LossPlan, LossRepair
from twophase.coordinator.adopt import AdoptionRepair
from twophase.coordinator.adoption_plan import Frozen
from twophase.coordinator.context import JobContext
from twophase.coordinator.pending import PendingCheckpoint
from twophase.errors import (
    CheckpointMissingError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
)
from twophase.events import Observers
from twophase.ids import Subtask
from twophase.protocol.sink import CommitRequest
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.hive.sink import HiveSink
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.storage import LocalStorage
from twophase.testing.harness import fresh_name

pytestmark = [pytest.mark.part("repair"), pytest.mark.proof]

LAKE, HIVE = "lake", "hive"


class LakeDriver(Driver):
    """Writes one piece into the Delta table, and two into that of the metastore."""

    def write(self, pending: PendingCheckpoint) -> None:
        """Ids 10 n to 10 n + 9."""
        self.write_ids(pending, range(10 * pending.checkpoint, 10 * pending.checkpoint + 10))

    def write_ids(self, pending: PendingCheckpoint, ids: range) -> None:
        """These ids."""
        lake, hive = self.sinks[LAKE], self.sinks[HIVE]
        frame = (
            SparkSession.active().createDataFrame([(one,) for one in ids], "id long").coalesce(1)
        )
        pending.acknowledge(LAKE, lake.pre_commit(frame, pending.transaction(LAKE)))  # type: ignore[attr-defined]
        pieces = []
        for index in (0, 1):
            rows = [{"id": one} for one in ids[5 * index : 5 * index + 5]]
            subtask = Subtask(index, pending.attempt.counter * 100 + index)
            writer = hive.writers()(pending.transaction(HIVE), subtask)
            writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
            pieces.append(writer.pre_commit())
        pending.acknowledge(HIVE, [piece for piece in pieces if piece is not None])


class World:
    """One job, two tables, and what an operator may find of them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.folder = spark, root, root / "job"
        self.lake, self.table = root / "lake", fresh_name("orders")
        spark.sql(f"CREATE TABLE delta.`{self.lake}` (id BIGINT) USING delta")
        spark.sql(f"CREATE TABLE {self.table} (id BIGINT) STORED AS PARQUET")
        self.warehouse = warehouse_of(spark) / self.table

    def sinks(self) -> dict[str, Any]:
        declared = {LAKE: DeltaSink(path=str(self.lake)), HIVE: HiveSink(table=self.table)}
        return open_sinks(declared, schema=SCHEMA)

    def driver(self) -> LakeDriver:
        return LakeDriver(self.folder, {}, sinks=self.sinks())

    def context(self) -> JobContext:
        sinks = self.sinks()
        options = JobOptions.parse({"checkpointLocation": str(self.folder)}, "job")
        return JobContext(
            JOB, LocalStorage(self.folder), sinks, options, Observers(), ManualClock()
        )

    def decided(self) -> None:
        """Checkpoint 0 is committed, 1 decided."""
        driver = self.driver().recover()
        driver.run(0)
        decided(driver, 1)

    def accept(self, sink: str) -> LossPlan:
        repairing = LossRepair(self.context())
        plan = repairing.plan(1, sink)
        repairing.accept(plan, NOTE)
        return plan

    def adopt(self, found: Frozen = frozen) -> None:
        repairing = AdoptionRepair(self.context(), found)
        repairing.adopt(repairing.plan(), NOTE)

    def restore_backup(self, table: Path) -> None:
        """A backup of a table, as it was before checkpoint 1."""
        shutil.rmtree(table)
        shutil.copytree(self.root / f"old-{table.name}", table)
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        self.spark.catalog.refreshTable(self.table)

    def ids(self) -> tuple[list[int], list[int]]:
        """What readers see: of the Delta table, of the other."""
        self.spark.catalog.refreshTable(self.table)
        frames = self.spark.read.format("delta").load(str(self.lake)), self.spark.table(self.table)
        lake, hive = (sorted(row.id for row in frame.collect()) for frame in frames)
        return lake, hive

    def goes_on(self, lake: list[int], hive: list[int]) -> None:
        """A start, one more checkpoint, another start: nothing is left in doubt."""
        driver = self.driver().recover()
        assert self.ids() == (lake, hive)
        coordinator = driver.coordinator
        newest = coordinator.newest()
        number = newest.checkpoint + 1 if newest else coordinator.lineage.first_checkpoint
        start = (
            coordinator.context.store.read(newest).offsets.end
            if newest
            else coordinator.lineage.start or (None,)
        )
        end = FrozenOffsets(tuple(start), ('{"next":110}',))
        coordinator.classify(number, end)
        coordinator.checkpoint(
            number, end, lambda pending: driver.write_ids(pending, range(100, 110))
        )
        left = self.driver().recover()
        assert [list(sink.in_doubt()) for sink in left.sinks.values()] == [[], []]
        assert self.ids() == ([*lake, *range(100, 110)], [*hive, *range(100, 110)])

    def staged(self) -> list[Path]:
        return sorted(self.warehouse.glob("_twophase~*/fence-*/staged/*"))


@pytest.fixture
def world(delta_spark: SparkSession, hive_spark: SparkSession, tmp_path: Path) -> World:
    assert delta_spark is hive_spark
    return World(delta_spark, tmp_path)


def lose_data_file(world: World) -> None:
    next(path for path in world.lake.glob("twophase-*") if "-1-1." in path.name).unlink()


def lose_manifest(world: World) -> None:
    for path in (world.lake / "_twophase").rglob("*.manifest"):
        path.unlink()


def lose_piece(world: World) -> None:
    shutil.rmtree(world.staged()[1])


def lose_pieces(world: World) -> None:
    for path in world.staged():
        shutil.rmtree(path)


def lose_staged_file(world: World) -> None:
    (world.staged()[1] / "0").unlink()


FIRST, ALL, HALF = list(range(10)), list(range(20)), list(range(15))
LOSSES: dict[str, tuple[str, Callable[[World], None], list[int]]] = {
    "a data file of the Delta table": (LAKE, lose_data_file, FIRST),
    "the manifest beside the Delta table": (LAKE, lose_manifest, FIRST),
    "a staged piece": (HIVE, lose_piece, HALF),
    "all staged pieces": (HIVE, lose_pieces, FIRST),
    "a staged file": (HIVE, lose_staged_file, HALF),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_piece_is_given_up(world: World, loss: str) -> None:
    sink, lose, left = LOSSES[loss]
    world.decided()
    lose(world)
    with pytest.raises(LostCommittableError, match="rows are lost until they are written again"):
        world.driver().recover()
    plan = world.accept(sink)
    assert plan.rows == 20 - len(left)
    world.goes_on(*((left, ALL) if sink == LAKE else (ALL, left)))


@pytest.mark.parametrize("sink", [LAKE, HIVE])
def test_what_a_restored_table_lacks_is_given_up(world: World, sink: str) -> None:
    driver = world.driver().recover()
    driver.run(0)
    table = world.lake if sink == LAKE else world.warehouse
    shutil.copytree(table, world.root / f"old-{table.name}")
    driver.run(1)
    world.restore_backup(table)
    with pytest.raises(TargetChangedError) as caught:
        world.driver().recover()
    assert caught.value.remedy.endswith(
        f"twophase repair accept-loss JOB.yaml --checkpoint 1 --sink {sink}"
    )
    world.accept(sink)
    world.goes_on(*((FIRST, ALL) if sink == LAKE else (ALL, FIRST)))


@pytest.mark.parametrize("committed", [LAKE, HIVE])
def test_what_waits_in_the_other_table_is_committed_by_an_adoption(
    world: World, committed: str
) -> None:
    driver = world.driver().recover()
    driver.run(0)
    shutil.copytree(world.folder, world.root / "backup")
    decided(driver, 1)
    sink = driver.sinks[committed]
    sink.commit([CommitRequest(piece) for piece in sink.in_doubt()])
    shutil.rmtree(world.folder)
    shutil.copytree(world.root / "backup", world.folder)
    with pytest.raises(CheckpointMissingError):
        world.driver().recover()
    world.adopt()
    assert world.driver().recover().coordinator.lineage.start == offsets(1).end
    world.goes_on(ALL, ALL)


def test_a_folder_that_is_gone_is_adopted(world: World) -> None:
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)
    shutil.rmtree(world.folder)
    with pytest.raises(CheckpointMissingError):
        world.driver().recover()
    world.adopt(nothing)
    world.goes_on(ALL, ALL)


def cut_manifest(world: World) -> None:
    for path in (world.lake / "_twophase").rglob("*.manifest"):
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("lose", [lose_manifest, cut_manifest])
def test_a_piece_that_may_be_decided_is_ended_by_hand(
    world: World, lose: Callable[[World], None]
) -> None:
    """The body that listed it is lost too."""
    world.decided()
    lose(world)
    remove_body(world.folder, 1)
    with pytest.raises(StopJobError, match="Nothing tells whether they are decided"):
        world.adopt()
    for path in (world.lake / "_twophase").rglob("*-1-*"):
        path.unlink()
    world.adopt()
    world.goes_on(FIRST, ALL)

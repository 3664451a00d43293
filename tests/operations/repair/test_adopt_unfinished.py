"""Pieces whose writer died before it had pre-committed them, in an adoption that has no list of
the decided pieces.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    SCHEMA,
    Driver,
    ManualClock,
    decided,
    dying,
    frozen,
    remove_body,
)
from twophase.contract.sink import CommitRequest, OpenArrowSink, SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.errors import StopJobError
from twophase.events import Observers
from twophase.ids import Subtask, TransactionId
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.adoption_plan import AdoptionPlan
from twophase.options.job_options import JobOptions
from twophase.sinks.file.sink import FileSink
from twophase.state.files.storage import LocalStorage
from twophase.testing.memory import MemoryTarget, OpenMemorySink


class World:
    """A job with a table of files, `lake`, and one in memory, `facts`. Checkpoint 0 is
    committed, 1 is decided.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.table = folder / "lake"
        self.facts = MemoryTarget()
        self.lake: OpenArrowSink
        self.driver = self.start()
        self.driver.run(0)
        decided(self.driver, 1)
        [self.first, self.second] = self.lake.in_doubt()

    def start(self) -> Driver:
        """A driver of the job."""
        self.lake = self.open_lake()
        sinks: Any = {"facts": OpenMemorySink(self.facts, JOB, "facts"), "lake": self.lake}
        return Driver(self.folder, {"facts": self.facts}, sinks=sinks).recover()

    def open_lake(self) -> OpenArrowSink:
        return FileSink(path=str(self.table)).open(SinkContext(JOB, "lake", SCHEMA, 2))

    def begin(self, transaction: TransactionId, subtask: Subtask, *, whole: bool = False) -> None:
        """A task attempt writes rows, and dies before it has pre-committed them,
        unless it is `whole`.
        """
        writer = self.lake.writers()(transaction, subtask)
        writer.write(
            pa.RecordBatch.from_pylist(
                [{"id": 10 + 5 * subtask.index + step} for step in range(5)], schema=SCHEMA
            )
        )
        if whole:
            writer.pre_commit()

    def manifest(self, subtask: Subtask) -> Path:
        """Of a piece of checkpoint 1."""
        return self.staged(subtask) / "manifest"

    def staged(self, subtask: Subtask) -> Path:
        """Where a piece of checkpoint 1 is staged."""
        [found] = self.table.glob(f"_twophase~*/fence-*/staged/*-1-*{subtask}*")
        return found

    def plan(self) -> tuple[AdoptionRepair, AdoptionPlan]:
        """Of an adoption that cannot read the decisions."""
        sinks = {"facts": OpenMemorySink(self.facts, JOB, "facts"), "lake": self.open_lake()}
        options = JobOptions.parse({"checkpointLocation": str(self.folder)}, "job")
        repairing = AdoptionRepair(
            JobContext(JOB, LocalStorage(self.folder), sinks, options, Observers(), ManualClock()),
            frozen,
        )
        return repairing, repairing.plan()

    def adopt(self) -> None:
        """And the next start."""
        repairing, plan = self.plan()
        repairing.adopt(plan, NOTE)
        self.start()

    def visible(self) -> list[int]:
        """What readers of the files see."""
        return sorted(ds.dataset(self.table, SCHEMA, format="parquet").to_table()["id"].to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_piece_that_was_never_pre_committed_does_not_stop_the_adoption(world: World) -> None:
    """Its task was tried again, and the driver died when the checkpoint was decided."""
    world.begin(world.second.transaction, Subtask(1, 900))
    remove_body(world.folder, 1)
    world.adopt()
    assert world.visible() == list(range(20))
    assert world.lake.in_doubt() == []


def test_nor_does_one_of_another_attempt_of_the_checkpoint(world: World) -> None:
    """Where nothing tells which attempt was decided: of `facts` there is a mark only."""
    facts = world.driver.sinks["facts"]
    facts.commit([CommitRequest(piece) for piece in facts.in_doubt()])
    facts.subsume(world.first.transaction.lineage, 1)
    attempt = world.first.transaction.attempt
    later = replace(world.first.transaction, attempt=replace(attempt, counter=attempt.counter + 1))
    world.begin(later, Subtask(7, 907))
    shutil.rmtree(world.folder)
    world.adopt()
    assert world.visible() == list(range(20))
    assert world.lake.in_doubt() == []


def damaged(world: World) -> None:
    """Its manifest is there, and cannot be read."""
    world.manifest(world.second.subtask).write_bytes(b"twophase-files/1")


def missing(world: World) -> None:
    """Its manifest is gone."""
    world.manifest(world.second.subtask).unlink()


def begun(world: World) -> None:
    """Its commit had begun, and its manifest is gone."""
    dying("F04", lambda: world.lake.commit([CommitRequest(world.second)]))
    missing(world)


@pytest.mark.parametrize("state", [missing, damaged, begun])
def test_a_piece_without_a_whole_manifest_that_nothing_replaces_may_be_decided(
    world: World, state: Callable[[World], None]
) -> None:
    state(world)
    remove_body(world.folder, 1)
    with pytest.raises(StopJobError, match="Nothing tells whether they are decided") as caught:
        world.plan()
    assert str(world.second.subtask) in str(caught.value)
    assert str(world.first.subtask) not in str(caught.value)
    assert len(world.lake.in_doubt()) == 2


@pytest.mark.parametrize("state", [missing, damaged])
def test_the_way_on_ends_the_piece_by_hand(world: World, state: Callable[[World], None]) -> None:
    state(world)
    remove_body(world.folder, 1)
    with pytest.raises(StopJobError, match="by hand"):
        world.plan()
    missing = {*range(15, 20)} - {*world.visible()}
    rows = pa.Table.from_pylist([{"id": one} for one in sorted(missing)], schema=SCHEMA)
    pq.write_table(rows, world.table / "by-hand.parquet")
    shutil.rmtree(world.staged(world.second.subtask))
    world.adopt()
    assert world.visible() == list(range(20))
    assert world.lake.in_doubt() == []


def test_an_unfinished_piece_is_not_aborted_for_a_damaged_one(world: World) -> None:
    """Either may be the decided one."""
    damaged(world)
    world.begin(world.second.transaction, Subtask(1, 900))
    remove_body(world.folder, 1)
    with pytest.raises(StopJobError, match="Nothing tells whether they are decided"):
        world.plan()
    assert len(world.lake.in_doubt()) == 3


@pytest.mark.parametrize("state", [damaged, begun])
def test_a_piece_that_may_be_decided_is_not_aborted_for_another_of_its_task(
    world: World, state: Callable[[World], None]
) -> None:
    state(world)
    world.begin(world.second.transaction, Subtask(1, 900), whole=True)
    remove_body(world.folder, 1)
    with pytest.raises(StopJobError, match="nothing tells which of them is decided"):
        world.plan()
    assert len(world.lake.in_doubt()) == 3


def test_what_the_log_lists_is_decided_though_its_manifest_is_gone(world: World) -> None:
    """The body of the checkpoint before it cannot be read, its own can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.driver.coordinator, "_make_room", lambda number: None)
        decided(world.driver, 2)
    [*_, last] = [piece for piece in world.lake.in_doubt() if piece.transaction.checkpoint == 2]
    [path] = world.table.glob(f"_twophase~*/fence-*/staged/*-2-*{last.subtask}*/manifest")
    path.unlink()
    world.begin(last.transaction, Subtask(last.subtask.index, 900), whole=True)
    remove_body(world.folder, 1)
    _, plan = world.plan()
    assert last.subtask in [piece.subtask for piece in plan.sinks["lake"].commits]
    assert [piece.subtask for piece in plan.sinks["lake"].aborts] == [
        Subtask(last.subtask.index, 900)
    ]

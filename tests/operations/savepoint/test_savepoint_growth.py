"""Thousands of checkpoints with a savepoint each hundred: all that the job keeps stays small."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, visible
from harness.savepoint_world import STEP, StatefulHost, World
from twophase.coordinator.commit.checkpoint_completion import SUBSUME_SINKS_EVERY
from twophase.operations.savepoint.make import open_savepoint
from twophase.state.checkpoints.store import _FOLD_AT
from twophase.testing.memory import MemorySink, MemoryTarget

pytestmark = pytest.mark.part("coordinator")

SAVED_EVERY = 100
SPARK_RETAINS = 100
"""Spark's `spark.sql.streaming.minBatchesToRetain`."""
PIECES = 2
MORE_BYTES = 1024 * 1024
"""A body that is kept for each checkpoint is more than that."""
LARGE_BYTES = 1024 * 1024
"""Tables of the interpreter, such as that of its strings, double at once. Their size depends on
what else this process has run; what they hold is counted by itself.
"""


class MemoryWorld(World):
    """Sinks in memory, and Spark's own cleaning of its folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.targets = {name: MemoryTarget() for name in self.sinks}
        self.running: Driver | None = None
        self.looks_on: Callable[[int], None] = lambda _: None

    def _driver(self, folder: str, options: Mapping[str, Any], job: str = JOB) -> Driver:
        declared = {name: MemorySink(target) for name, target in self.targets.items()}
        self.running = Driver(
            self.root / folder,
            self.targets,
            options,
            job=job,
            new_host=partial(StatefulHost, declared),
        )
        return self.running

    def finished(self, number: int) -> None:
        """Ask whoever looks on."""
        self.looks_on(number)

    def forget(self) -> None:
        """Empty what only the test collects: rows and events."""
        assert self.running is not None
        self.running.events.clear()
        for target in self.targets.values():
            target.visible.clear()
            target.written.clear()

    def prune(self, number: int) -> None:
        """Delete what Spark has deleted by micro-batch `number`."""
        spark = self.spark()
        for folder in ("offsets", "commits", "state/0/0"):
            for path in (spark / folder).iterdir():
                if int(path.stem) < number - SPARK_RETAINS:
                    path.unlink()


@dataclass(frozen=True)
class Kept:
    """What a job keeps.

    Attributes:
        files: in its folder, without Spark's.
        ledger: proofs in each target.
        prepared: pieces that wait in each target.
        memory: bytes that this process has allocated, in blocks below `LARGE_BYTES`.
    """

    files: int
    ledger: int
    prepared: int
    memory: int


class Savepoints:
    """Follows a running driver: a savepoint every `SAVED_EVERY` checkpoints replaces the last one.

    Args:
        world: the job.
    """

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.kept: list[Kept] = []
        self.newest: Path | None = None

    def after(self, number: int) -> None:
        """Micro-batch `number` is finished."""
        if (number + 1) % SAVED_EVERY:
            return
        self.world.prune(number)
        self.newest = self.world.root / f"saved-{number}"
        maker = self.world.maker()
        maker.make(str(self.newest), committed_only=True, still_waiting=lambda: True)
        saved = open_savepoint(str(self.newest))
        assert saved.manifest.checkpoint == number
        saved.verify()
        numbers = [*range((number + 1 - SAVED_EVERY) * STEP, (number + 1) * STEP)]
        assert [visible(target) for target in self.world.targets.values()] == [numbers, numbers]
        self.world.forget()
        self.kept.append(self._measured())

    def _measured(self) -> Kept:
        gc.collect()
        job = self.world.root / "job"
        found = [path for path in job.rglob("*") if path.is_file() and "spark" not in path.parts]
        targets = self.world.targets.values()
        return Kept(
            len(found),
            max(len(target.ledger) for target in targets),
            max(len(target.prepared) for target in targets),
            sum(
                trace.size
                for trace in tracemalloc.take_snapshot().traces
                if trace.size < LARGE_BYTES
            ),
        )


@pytest.mark.parametrize(
    "checkpoints", [400, pytest.param(10_000, marks=[pytest.mark.proof, pytest.mark.timeout(1800)])]
)
def test_a_job_with_savepoints_keeps_as_much_after_its_last_checkpoint_as_after_its_first_hundred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: int
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    world = MemoryWorld(tmp_path)
    savepoints = Savepoints(world)
    tracemalloc.start()
    try:
        world.looks_on = savepoints.after
        world.drive(checkpoints)
    finally:
        tracemalloc.stop()
    assert len(savepoints.kept) == checkpoints // SAVED_EVERY
    for kept in savepoints.kept:
        # a body and its folder's log
        assert kept.files <= _FOLD_AT + 3
        assert kept.ledger <= PIECES * (SUBSUME_SINKS_EVERY + 1)
        assert kept.prepared == 0
        assert kept.memory <= savepoints.kept[0].memory + MORE_BYTES
    assert world.state() == sum(range(checkpoints * STEP))
    world.looks_on = lambda _: None
    world.drive(checkpoints + 2, "moved", **{"restore.path": str(savepoints.newest)})
    assert world.state("moved") == sum(range((checkpoints + 2) * STEP))
    numbers = [*range(checkpoints * STEP, (checkpoints + 2) * STEP)]
    assert [visible(target) for target in world.targets.values()] == [numbers, numbers]

"""Thousands of checkpoints of a job whose drivers die anywhere and whose listeners fail: all that
it keeps stays small.

A driver dies before or after any call of the job's folder or of a sink, at any crash point of the
sink that writes files, often in recovery, or where it would clean up; a create that dies leaves its
temporary name. Now and then the job is restored from its newest checkpoint, which
begins another lineage.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from harness.interleaving import (
    PIECES,
    Crash,
    SteppingDriver,
    SteppingStorage,
    Steps,
    between_steps,
)
from harness.memory_driver import JOB, SCHEMA, offsets, restoring
from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.checkpoint_completion import SUBSUME_SINKS_EVERY
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.file.sink import FileSink
from twophase.state.checkpoints.store import _FOLD_AT
from twophase.state.files.storage import NO_CRASH_POINTS, CrashPoints
from twophase.testing.memory import MemoryTarget

pytestmark = pytest.mark.part("coordinator")

FILES = "files"
"""The sink that writes files, and its table beside the job's folder."""
CRASH_POINTS = [
    f"twophase.sinks.common.staging.{module}.failpoint"
    for module in ("committer", "disk", "orphans", "writer")
]
NUM_RETAINED = 2
LOG_RECORDS = _FOLD_AT + 2
"""A recovery that has just not folded the log commits a checkpoint and begins a lineage."""
LEDGER_ROWS = PIECES * (SUBSUME_SINKS_EVERY + 2)
"""What is collapsed at once, and the checkpoint before which a driver died."""


class TearingStorage(SteppingStorage):
    """A death in the middle of a create leaves what it had written.

    Attributes:
        dies_in_folds: whether the first record to be deleted is the driver's end.
        dies_undecided: whether it dies between the body of a checkpoint and the decision.
    """

    dies_in_folds = dies_undecided = False
    _wrote_body = False

    def delete(self, name: str) -> None:
        if self.dies_in_folds and name.startswith("log/"):
            raise Crash
        super().delete(name)

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        try:
            if self.dies_undecided and self._wrote_body:
                raise Crash
            super().create(name, data, crash_points)
            self._wrote_body = name.startswith("chk/")
        except Crash:
            final = self.root / name
            final.parent.mkdir(parents=True, exist_ok=True)
            (final.parent / f".tmp-{final.name}-0011223344556677").write_bytes(
                data[: len(data) // 2]
            )
            raise


def _die(*_: object) -> None:
    raise Crash


class MortalFileSink(OpenStagedSink):
    """Its driver may die before and after each call."""

    def __init__(self, path: Path, steps: Steps) -> None:
        super().__init__(
            FileSink(path=str(path)).open(SinkContext(JOB, FILES, SCHEMA, parallelism=2)).table
        )
        self._steps = steps

    history = between_steps(OpenStagedSink.history)
    fence = between_steps(OpenStagedSink.fence)
    commit = between_steps(OpenStagedSink.commit)
    abort = between_steps(OpenStagedSink.abort)
    in_doubt = between_steps(OpenStagedSink.in_doubt)
    subsume = between_steps(OpenStagedSink.subsume)


class Listener:
    """Fails when it hears of a checkpoint, or never."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        if self._fails:
            raise RuntimeError(f"cannot hear of checkpoint {checkpoint}")

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """Nothing is declined here."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        if self._fails:
            raise AssertionError("it failed before")


class MortalDriver(SteppingDriver):
    """One life.

    Attributes:
        base: the number of the rows with which each lineage begins.
    """

    storage_type = TearingStorage
    base: dict[str, int]

    def other_sinks(self, folder: Path) -> dict[str, Any]:
        return {FILES: MortalFileSink(folder.parent / FILES, self.steps)}

    def doom(self, random: Random) -> None:
        """Decide where it dies."""
        storage, kind = self.stepping_storage, random.randrange(5)
        assert isinstance(storage, TearingStorage)
        storage.dies_in_folds, storage.dies_undecided = kind == 0, kind == 1
        if kind == 2:
            for sink in self.sinks.values():
                mortal: Any = sink
                mortal.subsume = _die
        self.steps.plan(int(random.expovariate(1 / random.choice((20, 200, 2000)))), _die)

    def next_rows(self) -> int:
        newest, lineage = self.coordinator.newest(), self.coordinator.lineage
        return self.base.setdefault(lineage.id, 0) + (
            newest.checkpoint + 1 if newest else lineage.first_checkpoint
        )

    def run_next(self) -> None:
        rows = self.next_rows()
        self.coordinator.checkpoint(
            rows - self.base[self.coordinator.lineage.id], offsets(rows), self.write
        )

    def write(self, pending: PendingCheckpoint) -> None:
        """One row a piece, which names the rows and the piece."""
        rows = self.base[pending.lineage] + pending.checkpoint
        for name, sink in self.stepping_sinks.items():
            transaction = pending.transaction(name)
            pieces = [
                sink.write_direct(
                    transaction,
                    self.subtask(index, pending.attempt),
                    [{"rows": rows, "piece": index}],
                )
                for index in range(PIECES)
            ]
            pending.acknowledge(name, [piece for piece in pieces if piece])
        self.write_files(pending, rows)

    def write_files(self, pending: PendingCheckpoint, rows: int) -> None:
        """The same rows, as numbers."""
        pieces = []
        for index in range(PIECES):
            writer = self.sinks[FILES].writers()(
                pending.transaction(FILES), self.subtask(index, pending.attempt)
            )
            writer.write(pa.RecordBatch.from_pylist([{"id": PIECES * rows + index}], schema=SCHEMA))
            pieces.append(writer.pre_commit())
        pending.acknowledge(FILES, [piece for piece in pieces if piece])

    def restore(self) -> None:
        """Begin another lineage with the newest checkpoint, which is committed."""
        newest, current = self.coordinator.newest(), self.coordinator.lineage
        if newest is None or not newest.committed:
            return
        restore = restoring(self.context.store.read(newest), committed=True)
        lineage = replace(
            restore.lineage, ancestors={**current.ancestors, **restore.lineage.ancestors}
        )
        self.base[lineage.id] = self.base[current.id] + newest.checkpoint
        self.coordinator.begin_lineage(lineage)


class Life:
    """The job, over all its drivers.

    Args:
        folder: of the job and of its table of files.
        random: decides on deaths.
        patch: makes the crash points of the file sink steps of the driver.
    """

    def __init__(self, folder: Path, random: Random, patch: pytest.MonkeyPatch) -> None:
        self.targets = {"facts": MemoryTarget(), "lake": MemoryTarget()}
        self.deaths = self.failures = self.lineages = 0
        self.done = 0
        self.table = folder / FILES
        self._folder = folder / "job"
        self._random = random
        self._steps = Steps()
        for point in CRASH_POINTS:
            patch.setattr(point, lambda name: self._steps())
        self._base: dict[str, int] = {}
        self._in_vain = 0

    def go_on(self, checkpoints: int) -> None:
        """One more driver, until it dies, fails or has so many checkpoints."""
        driver = MortalDriver(
            self._folder,
            self.targets,
            [Listener(fails=self._random.random() < 0.2)],
            **{"checkpoint.num_retained": NUM_RETAINED},
        )
        driver.base, self._steps = self._base, driver.steps
        driver.doom(self._random)
        try:
            self._live(driver, checkpoints)
        except Crash:
            self.deaths += 1
        except RuntimeError:
            self.failures += 1
        driver.steps.clear()
        self.check(died=self._in_vain + 1)

    def _live(self, driver: MortalDriver, checkpoints: int) -> None:
        self._in_vain += 1
        driver.recover()
        if self._random.random() < 0.15:
            driver.restore()
        self._in_vain = 0
        self.lineages = len(driver.history.lineages)
        assert not any(target.prepared for target in self.targets.values())
        self.check(died=0)
        while (rows := driver.next_rows()) < checkpoints:
            self.done = rows
            driver.run_next()
            self.check(died=0)
        self.done = rows

    def check(self, died: int) -> None:
        """Nothing is larger than it may be.

        Args:
            died: so many drivers have died since one got through its recovery or a checkpoint, each
                with a fence, a torn name, and perhaps a fold behind it.
        """
        names = {folder: os.listdir(self._folder / folder) for folder in os.listdir(self._folder)}
        assert set(names) <= {"log", "chk"}
        torn = [name for name in names.get("log", []) if name.startswith(".tmp-")]
        assert len(torn) <= died
        assert len(names.get("log", [])) - len(torn) <= LOG_RECORDS + (
            LOG_RECORDS + 2 * died if died else 0
        )
        assert len(names.get("chk", [])) <= NUM_RETAINED + 2
        for target in self.targets.values():
            assert len(target.ledger) <= LEDGER_ROWS
            assert len(target.prepared) <= PIECES
            assert len(target.high_water) <= max(1, self.lineages)
            assert len(target.fences) <= 1
        self._check_files(died)

    def _check_files(self, died: int) -> None:
        """Of the table's hidden folder; its own has what readers see, which is
        looked at in the end.
        """
        area = self.table / f"_twophase~{JOB}~{FILES}"
        [fence] = os.listdir(area)
        found = {folder: os.listdir(area / fence / folder) for folder in os.listdir(area / fence)}
        aborted = found.pop("aborted", [])
        assert set(found) == {"staged", "done", "marks"}
        assert len(found["staged"]) + len(aborted) <= PIECES
        assert len(found["done"]) <= LEDGER_ROWS
        assert len(found["marks"]) <= max(1, self.lineages) + (1 if died else 0)

    def files(self) -> list[int]:
        """What readers of the files see. Beside its files the table has the hidden folder only."""
        names = [name for name in os.listdir(self.table) if name != f"_twophase~{JOB}~{FILES}"]
        found: Sequence[int] = (
            ds.dataset(self.table, SCHEMA, format="parquet").to_table()["id"].to_pylist()
        )
        assert len(names) == len(found)
        return sorted(found)


@pytest.mark.parametrize("checkpoints", [150, pytest.param(2000, marks=pytest.mark.proof)])
def test_whatever_drivers_die_of_everything_stays_small(
    checkpoints: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    life = Life(tmp_path, Random(checkpoints + 1), monkeypatch)
    while life.done < checkpoints:
        life.go_on(checkpoints)
    assert life.deaths > checkpoints / 20
    assert life.failures > checkpoints / 200
    assert life.lineages > 1
    everything = sorted((rows, piece) for rows in range(checkpoints) for piece in range(PIECES))
    for target in life.targets.values():
        assert sorted((row["rows"], row["piece"]) for row in target.visible) == everything
    assert life.files() == list(range(PIECES * checkpoints))

"""The commands of `twophase repair`.

Real: the repairs of `twophase/operations/repair`, what they take from a driver, and the sinks.
Simulated: the question and its answer; Kafka, which has all records; Spark's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink
from twophase.errors import StopJobError
from twophase.ids import TransactionId
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.rewrite import Lost, RewriteRepair
from twophase.spark.folder.adopted_offsets import frozen_in
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Note
from twophase.state.journal.log import JobLog
from verification.simulation.ending import ACCEPT
from verification.simulation.job import JOB, watched_sinks
from verification.simulation.spark import STRIDE, Executors, chunk_of

if TYPE_CHECKING:
    from verification.simulation.running import Running
    from verification.simulation.world import World

REWRITE, ADOPT, ABANDON = "rewrite", "adopt-from-target", "abandon-rewind"
SEVERAL_LINEAGES = "the targets know several lineages"
_THINKS_S = (0.0, 0.0, 0.01, 0.3)


def _accept(running: Running) -> None:
    command, sinks = running.command, running.open()
    repair = LossRepair(running.context(sinks), watched_sinks(running.world))
    loss = repair.plan(command.checkpoint, command.sink)
    repair.accept(loss, _note(running))
    _close(sinks)


def _rewrite(running: Running) -> None:
    command, sinks = running.command, running.open(writes=True)
    reread = _Reread(running.executors, sinks, running.world)
    repair = RewriteRepair(running.context(sinks), reread)
    rewrite = repair.plan(command.checkpoint, command.sink)
    repair.rewrite(rewrite, _note(running))
    _close(sinks)


def _adopt(running: Running) -> None:
    world, sinks = running.world, running.open()
    world.oracle.adopting.add(running.process)
    repair = AdoptionRepair(running.context(sinks), frozen_in(LocalStorage(running.command.folder)))
    adoption = repair.plan()
    if len([newest for newest in adoption.ancestors.values() if newest >= 0]) > 1:
        world.happens(SEVERAL_LINEAGES)
    if not adoption.end:
        world.starting = _first_missing(world, adoption.ancestors)
    repair.adopt(adoption, _note(running))
    _close(sinks)


def _abandon(running: Running) -> None:
    begun_in, sinks = running.command.begun_in, running.open()
    running.world.oracle.abandoning.add(running.process)
    elsewhere = JobLog(LocalStorage(begun_in), JOB) if begun_in else None
    repair = RewindRepair(running.context(sinks), watched_sinks(running.world), elsewhere)
    plan = repair.plan()
    repair.abandon(plan, _note(running))
    _close(sinks)


REPAIRS: dict[str, Callable[[Running], None]] = {
    ACCEPT: _accept,
    REWRITE: _rewrite,
    ADOPT: _adopt,
    ABANDON: _abandon,
}


def _note(running: Running) -> Note:
    """The operator thinks about what is shown, and agrees."""
    scheduler = running.world.scheduler
    scheduler.sleep(scheduler.random.choice(_THINKS_S))
    return Note("somebody", running.clock.unix_ms(), "simulated")


def _close(sinks: Mapping[str, OpenSink]) -> None:
    for sink in sinks.values():
        sink.close()


def _first_missing(world: World, ancestors: Mapping[str, int]) -> int:
    """What the operator sets `startingOffsets` to: the chunk behind the newest that the targets
    have.
    """
    known = world.oracle.decided.values()
    there = [one.chunk for one in known if one.checkpoint <= ancestors.get(one.lineage, -1)]
    return 1 + max(there, default=-1)


class _Reread:
    """Stands for `twophase.spark.batch.reread.KafkaReread`."""

    def __init__(self, executors: Executors, sinks: Mapping[str, OpenSink], world: World) -> None:
        self._executors = executors
        self._sinks = sinks
        self._world = world

    def ranges(self, lost: Lost) -> Sequence[str]:
        if not lost.whole and any(piece.subtask.index >= STRIDE for piece in lost.pieces):
            raise StopJobError(
                "A piece that a rewrite wrote is lost once more, and no range tells its records."
            )
        return [str(piece.subtask.index) for piece in lost.pieces]

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        """The new pieces of a part are of tasks that have no piece in the checkpoint."""
        listed = [
            piece.subtask.index
            for pieces in lost.checkpoint.committables.values()
            for piece in pieces
        ]
        first = 0 if lost.whole else STRIDE * (1 + max(listed) // STRIDE)
        parts = (
            range(self._world.options.writers)
            if lost.whole
            else [piece.subtask.index for piece in lost.pieces]
        )
        chunk = chunk_of(lost.checkpoint.offsets)
        numbers = [first + part for part in parts]
        found = self._executors.write_again(self._sinks[lost.sink], transaction, numbers, chunk)
        written: dict[int, list[Committable]] = {}
        for index, piece in found.items():
            if piece is not None:
                written.setdefault(-1 if lost.whole else index - first, []).append(piece)
        return written

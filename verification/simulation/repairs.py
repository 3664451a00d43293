"""An operator who reads the error that the job has ended with, and runs the command that it names.

Real: the repairs of `twophase/coordinator`, what they take from a driver, and the sinks. Simulated:
the question and its answer; Kafka, which has all records; Spark's folder. A command may be killed,
stand still, or run while a driver lives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink, SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.errors import StopJobError
from twophase.events import Observers
from twophase.ids import TransactionId
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.rewrite import Lost, RewriteRepair
from twophase.spark.folder.adopted_offsets import frozen_in
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Note
from verification.simulation.decisions import Piece
from verification.simulation.ending import CommandEnding
from verification.simulation.job import JOB, job_options, sink_context, watched_sinks
from verification.simulation.options import Mishap
from verification.simulation.scheduler import Process
from verification.simulation.spark import STRIDE, Executors, chunk_of
from verification.simulation.threads import SimulatedClock

if TYPE_CHECKING:
    from verification.simulation.world import World

ACCEPT, REWRITE, ADOPT = "accept-loss", "rewrite", "adopt-from-target"
SEVERAL_LINEAGES = "the targets know several lineages"
_OF_PIECES = re.compile(rf"{ACCEPT} JOB.yaml --checkpoint (\d+) --sink (\S+)")
_THINKS_S = (0.0, 0.0, 0.01, 0.3)
_POINTS = ("R01", "R02", "R03", "R04", "R05", "C12", "C13", "C14", "C15", "C19")
_PLACES = (
    "disk link",
    "disk sync",
    "XA PREPARE",
    "XA COMMIT",
    "XA ROLLBACK",
    "XA RECOVER",
    "twophase_",
    "",
)
_PAUSES_S = (0.0, 0.0, 0.0, 0.3, 3.0)
_AGAIN, _RIVALS, _MISHAPS = 0.6, 0.15, 0.6
_MAX_IN_VAIN, _MAX_STARTS, _MAX_WITH_MISHAPS = 12, 3, 6
_START_AGAIN = "start the job again: if anything is still missing, its error says what"


@dataclass(frozen=True)
class Command:
    """A command of `twophase repair`.

    Attributes:
        verb: which one.
        checkpoint: its option, if it has it.
        sink: likewise.
    """

    verb: str
    checkpoint: int = -1
    sink: str = ""


def commands_of(error: Exception) -> list[Command]:
    """The commands that an error names."""
    remedy = str(getattr(error, "remedy", ""))
    if found := _OF_PIECES.search(remedy):
        verbs = (REWRITE, ACCEPT) if f"repair {REWRITE}" in remedy else (ACCEPT,)
        return [Command(verb, int(found[1]), found[2]) for verb in verbs]
    return [Command(ADOPT)] if ADOPT in remedy else []


def mishap_of(random: Random) -> Mishap:
    """What befalls a command."""
    place = random.choice(_POINTS if random.random() < 0.6 else _PLACES)
    return Mishap(place, random.randint(1, 2 if place else 40), random.choice(_PAUSES_S))


class Repair:
    """One run of a command.

    Args:
        world: where.
        number: which one it is.
        folder: the job's folder.
        command: the command.
        judge: hears of its failure.

    Attributes:
        process: what can be killed.
        executors: its tasks.
        error: what ended it.
        done: whether it has come to its end.
    """

    def __init__(
        self,
        world: World,
        number: int,
        folder: str,
        command: Command,
        judge: Callable[[CommandEnding], None],
    ) -> None:
        self.process = Process(f"repair{number}")
        self.folder = folder
        self.command = command
        self.executors = Executors(
            self.process, world.scheduler, world.options, world.source, world.faults
        )
        self.error: Exception | None = None
        self.done = False
        self._world = world
        self._judge = judge
        world.oracle.folders[self.process] = folder

    def run(self) -> None:
        """Live."""
        try:
            self._carry_out(self._open())
            self.done = True
        except Exception as error:  # noqa: BLE001 the operator looks at it
            self.error = error
            self._judge(CommandEnding(self.process, self.folder, error, str(self.command)))
        finally:
            self.process.kill()

    def _open(self) -> dict[str, OpenSink]:
        return {
            name: sink.open(
                sink_context(self._world, name)
                if self.command.verb == REWRITE
                else SinkContext(JOB, name, None, parallelism=0)
            )
            for name, sink in watched_sinks(self._world).items()
        }

    def _carry_out(self, sinks: Mapping[str, OpenSink]) -> None:
        world, command = self._world, self.command
        storage, options = LocalStorage(self.folder), job_options(world, self.folder)
        clock = SimulatedClock(world.scheduler)
        parts = JobContext(JOB, storage, sinks, options, Observers(), clock)
        note = Note("somebody", clock.unix_ms(), "simulated")
        match command.verb:
            case "accept-loss":
                accepting = LossRepair(parts)
                loss = accepting.plan(command.checkpoint, command.sink)
                self._think()
                accepting.accept(loss, note)
            case "rewrite":
                rewriting = RewriteRepair(parts, _Reread(self.executors, sinks, world))
                rewrite = rewriting.plan(command.checkpoint, command.sink)
                self._think()
                rewriting.rewrite(rewrite, note)
            case _:
                adopting = AdoptionRepair(parts, frozen_in(storage))
                adoption = adopting.plan()
                if len([newest for newest in adoption.ancestors.values() if newest >= 0]) > 1:
                    world.happens(SEVERAL_LINEAGES)
                if not adoption.end:
                    world.starting = self._first_missing(adoption.ancestors)
                self._think()
                adopting.adopt(adoption, note)
        for sink in sinks.values():
            sink.close()

    def _think(self) -> None:
        self._world.scheduler.sleep(self._world.scheduler.random.choice(_THINKS_S))

    def _first_missing(self, ancestors: Mapping[str, int]) -> int:
        """What the operator sets `startingOffsets` to: the chunk behind the newest
        that the targets have.
        """
        known = self._world.oracle.decided.values()
        there = [one.chunk for one in known if one.checkpoint <= ancestors.get(one.lineage, -1)]
        return 1 + max(there, default=-1)


class Operator:
    """Who runs repairs.

    Args:
        world: where.
        folder: the job's folder.
        start_driver: starts a driver, as a cron job does that knows of no repair.
        judge: hears of each failure.

    Attributes:
        repairs: those that were run.
        on_death: hears of each that is over.
        dies_at_record: whether the first one dies right after its record.
    """

    def __init__(
        self,
        world: World,
        folder: str,
        start_driver: Callable[[], object],
        judge: Callable[[CommandEnding], None],
    ) -> None:
        self.repairs: list[Repair] = []
        self.on_death: Callable[[Repair], None] = lambda repair: None
        self.dies_at_record = False
        self._world = world
        self._folder = folder
        self._start_driver = start_driver
        self._judge = judge
        self._in_vain = self._starts = 0

    def lead_out(self, error: Exception) -> None:
        """Run what the error names, again while it dies, until it comes to its end or refuses. An
        error may also say that the next start says more.
        """
        random, scheduler = self._world.scheduler.random, self._world.scheduler
        commands = commands_of(error)
        if not commands and _START_AGAIN in str(getattr(error, "remedy", "")):
            self._starts += 1
        else:
            self._starts = 0
        self._world.oracle.holds(
            bool(commands) or 0 < self._starts <= _MAX_STARTS, f"no command leads out of {error!r}"
        )
        for command in random.sample(commands, len(commands)):
            repair: Repair | None = None
            while repair is None or (
                repair.error is None and not repair.done and random.random() < _AGAIN
            ):
                repair = self.run(command)
                if not self._world.faults.calm and random.random() < _RIVALS:
                    scheduler.sleep(0.1 * random.random())
                    self._start_driver()
                self._await_end(repair)
            if repair.error is not None and "nothing tells which of them" in str(repair.error):
                self._end_superseded()
            if repair.done or not isinstance(repair.error, StopJobError):
                return

    def recorded(self, withdrawn: set[str]) -> None:
        """A repair is in the log. If it has withdrawn pieces, there are fewer to repair: each
        sink may lack some of each checkpoint that was under way.
        """
        if withdrawn:
            self._in_vain = 0

    def run(self, command: Command) -> Repair:
        """Start a repair, whoever lives."""
        world, random = self._world, self._world.scheduler.random
        if self._in_vain == _MAX_IN_VAIN:
            world.oracle.violated(f"{_MAX_IN_VAIN} repairs did not lead out: {command}")
        self._in_vain += 1
        repair = Repair(world, len(self.repairs), self._folder, command, self._judge)
        world.happens(f"repair: {command.verb}")
        repair.process.on_death.append(lambda _: self.on_death(repair))
        if self.dies_at_record and not self.repairs:
            world.faults.arm(repair.process, Mishap("R03", 1, 0.0))
        elif len(self.repairs) < _MAX_WITH_MISHAPS and random.random() < _MISHAPS:
            world.faults.arm(repair.process, mishap_of(random))
        self.repairs.append(repair)
        world.scheduler.spawn(repair.process, repair.process.name, repair.run)
        return repair

    def _await_end(self, repair: Repair) -> None:
        self._world.scheduler.wait_until(lambda: repair.process.dead, None)

    def _end_superseded(self) -> None:
        """End prepared pieces by hand that lost to another attempt of their task,
        as the error says.
        """
        decided = {xid for decision in self._world.oracle.known() for xid in decision.xids}
        tasks = {replace(Piece.of(xid), task_attempt=0) for xid in decided}
        for server in self._world.servers:
            for xid in [*server.branches]:
                if xid not in decided and replace(Piece.of(xid), task_attempt=0) in tasks:
                    server.resolve(xid, commits=False)


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

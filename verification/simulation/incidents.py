"""What makes a repair necessary, and what makes one dangerous. Once in a run, some time after
so many decisions.

| incident | what happens | what leads out | |---|---|---| | rolled back | pieces of a decided
checkpoint are rolled back by hand | `rewrite`, `accept-loss` | | returned | the same; they are
prepared again after the repair, and the body of their checkpoint is gone | `adopt-from-target`
after that | | target restored | see `target_change` | `accept-loss` | | folder restored,
folder gone | the job's folder is an old copy, or not there | `adopt-from-target` | | body gone |
the newest decided checkpoint has no body | `adopt-from-target` |

A piece that was rolled back may be there again after its repair, as when a server is restored from
a replica. Nobody brings it back while a driver lives that began before the repair: one that is
about to commit it would, and nothing could tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from verification.simulation.decisions import Decision
from verification.simulation.ending import ACCEPT, Command
from verification.simulation.options import Mishap
from verification.simulation.repairs import REWRITE
from verification.simulation.scheduler import Process
from verification.simulation.server import SavedBranch, Server
from verification.simulation.target_change import TargetChange
from verification.simulation.worlds import BODY, FOLDER, NO_FOLDER, RETURNED, ROLLED_BACK, TARGET

if TYPE_CHECKING:
    from verification.simulation.world import World

_MOMENT_S = 0.002
_TRIES = 60


class Incident:
    """Something that happens once.

    Attributes:
        kills_at_record: whether the first repair dies right after its record.
    """

    kills_at_record = False

    def decided(self, decision: Decision) -> None:
        """A checkpoint is decided."""

    def repaired(self, withdrawn: set[str]) -> None:
        """A repair is recorded; these pieces are not to become visible any more."""

    def end(self) -> None:
        """Nothing happens any more."""


def incident(
    world: World,
    living: Callable[[], list[Process]],
    end_all: Callable[[], None],
    run: Callable[[Command], object],
) -> Incident:
    """What befalls a run.

    Args:
        world: where.
        living: the drivers and repairs that live.
        end_all: ends them.
        run: starts a repair.
    """
    random = Random(f"incident {world.options.seed}")
    kind = world.options.incident
    if not kind:
        return Incident()
    if kind in (ROLLED_BACK, RETURNED):
        return RollBack(world, random, living, run, returns_at_once=kind == RETURNED)
    if kind == TARGET:
        return TargetPutBack(world, end_all)
    if kind == BODY:
        return BodyGone(world, random)
    return FolderPutBack(world, random, end_all, is_gone=kind == NO_FOLDER)


class TargetPutBack(Incident):
    """See `TargetChange`."""

    def __init__(self, world: World, end_all: Callable[[], None]) -> None:
        self._change = TargetChange(world, end_all)

    def decided(self, decision: Decision) -> None:
        self._change.decided()

    def end(self) -> None:
        self._change.over = True


class RollBack(Incident):
    """Somebody rolls pieces of a decided checkpoint back, whose driver dies or stands still
    before it commits them.

    Args:
        world: where.
        random: draws when and which.
        living: the drivers and repairs that live.
        run: starts a repair.
        returns_at_once: whether they come back as soon as they are given up, and the body of
            their checkpoint goes.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        living: Callable[[], list[Process]],
        run: Callable[[Command], object],
        *,
        returns_at_once: bool,
    ) -> None:
        self._world = world
        self._random = random
        self._living = living
        self._run = run
        self._returns_at_once = self.kills_at_record = returns_at_once
        self._left = random.randint(1, world.options.checkpoints - 1)
        self._saved: dict[str, tuple[Server, SavedBranch]] = {}

    def decided(self, decision: Decision) -> None:
        self._left -= 1
        if self._left > 0 or not decision.xids or self._saved:
            return
        self._left = self._world.options.checkpoints  # not again
        scheduler, random = self._world.scheduler, self._random
        place = random.choice(("C11", "C11", "C12", "C13"))
        self._world.faults.arm(
            scheduler.current.process, Mishap(place, 1, random.choice((0.0, 0.0, 0.0, 3.0)))
        )
        count = random.choice((1, 1, len(decision.xids), random.randint(1, len(decision.xids))))
        xids = list(decision.xids)
        if self._returns_at_once:  # a loss in another sink would not be known without the body
            one = random.choice(xids)
            xids = [xid for xid in xids if decision.sinks[xid] == decision.sinks[one]]
        for xid in random.sample(xids, min(count, len(xids))):
            self._soon(partial(self._roll_back, decision, xid, _TRIES), random.random() * _MOMENT_S)

    def _roll_back(self, decision: Decision, xid: str, tries: int) -> None:
        for server in self._world.servers:
            branch = server.branches.get(xid)
            if branch is None or self._world.faults.calm or not tries:
                continue
            saved = SavedBranch.of(branch)
            if decision.durable and server.resolve(xid, commits=False):
                self._world.oracle.lost.append(xid)
                self._world.happens(ROLLED_BACK)
                self._saved[xid] = (server, saved)
                if self._random.random() < 0.2:  # before any driver has found out
                    verb = self._random.choice((ACCEPT, REWRITE))
                    of = (decision.checkpoint, decision.sinks[xid])
                    self._run(Command(verb, decision.root, "", *of))
            else:
                self._soon(lambda: self._roll_back(decision, xid, tries - 1), _MOMENT_S)

    def repaired(self, withdrawn: set[str]) -> None:
        older = [
            process
            for process in self._living()
            if process is not self._world.scheduler.current.process
        ]
        for xid in sorted(withdrawn & self._saved.keys()):
            if self._returns_at_once:
                self._soon(partial(self._bring_back, xid, older, _TRIES), 0.0)
            elif self._random.random() < 0.6:
                delay_s = self._random.choice((0.0, 0.03, 0.3, 3.0)) * self._random.random()
                self._soon(partial(self._bring_back, xid, older, _TRIES), delay_s)

    def _bring_back(self, xid: str, older: list[Process], tries: int) -> None:
        held = xid in self._world.oracle.saved.durable  # which a restore elsewhere would commit
        if self._world.faults.calm or not tries or held:
            return
        server, saved = self._saved[xid]
        if any(not process.dead for process in older) or not server.bring_back(saved):
            self._soon(lambda: self._bring_back(xid, older, tries - 1), _MOMENT_S)
            return
        self._world.oracle.repaired.back.add(xid)
        self._world.happens("comes back")
        if self._returns_at_once:
            remove_body(self._world, Decision.of_piece(self._world.oracle.decided.values(), xid))

    def _soon(self, action: Callable[[], None], delay_s: float) -> None:
        self._world.scheduler.at(self._world.scheduler.now_s + delay_s, action)


class BodyGone(Incident):
    """The body of the newest checkpoint is deleted.

    Args:
        world: where.
        random: draws when.
    """

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._left = random.randint(1, world.options.checkpoints - 1)

    def decided(self, decision: Decision) -> None:
        self._left -= 1
        if self._left == 0:
            scheduler, random = self._world.scheduler, self._random
            if random.random() < 0.5:
                place = random.choice(("C11", "C12", "C13", "C15"))
                self._world.faults.arm(scheduler.current.process, Mishap(place, 1, 0.0))
            delay_s = random.choice((0.0, 0.003, 0.03)) * random.random()
            scheduler.at(scheduler.now_s + delay_s, lambda: remove_body(self._world, decision))


class FolderPutBack(Incident):
    """The job's folder is an old copy, or gone; whoever does that ends the drivers first.

    Args:
        world: where.
        random: draws when.
        end_all: ends drivers and repairs.
        is_gone: whether there is no copy.
    """

    def __init__(
        self, world: World, random: Random, end_all: Callable[[], None], *, is_gone: bool
    ) -> None:
        self._world = world
        self._random = random
        self._end_all = end_all
        self._is_gone = is_gone
        self._decisions = 0
        self._changes = random.randint(1 if is_gone else 2, world.options.checkpoints - 1)
        self._backs_up = 0 if is_gone else random.randint(1, self._changes - 1)
        self._known: list[tuple[str, str, int]] = []
        self._root = self._copied = ""

    def decided(self, decision: Decision) -> None:
        self._root = decision.root
        self._decisions += 1
        if self._decisions == self._changes:
            self._later(self._restore_backup)
        elif self._decisions == self._backs_up:
            self._later(self._back_up)

    def _later(self, action: Callable[[], None]) -> None:
        scheduler = self._world.scheduler
        delay_s = self._random.choice((0.0, 0.003, 0.03)) * self._random.random()
        scheduler.at(scheduler.now_s + delay_s, action)

    def _back_up(self) -> None:
        if self._world.oracle.repaired.damaged:
            return  # it is gone already
        self._known, self._copied = [*self._world.oracle.decided], self._root
        self._world.back_up_folder(self._root)

    def _restore_backup(self) -> None:
        if self._world.faults.calm or (self._known and self._copied != self._root):
            return  # the job has left that folder
        self._end_all()
        is_gone = self._is_gone or not self._known
        self._world.restore_folder(self._root, None if is_gone else self._known)
        self._world.happens(NO_FOLDER if is_gone else FOLDER)


def remove_body(world: World, decision: Decision | None) -> None:
    """Delete the body of a decided checkpoint, if it is there."""
    if world.faults.calm or decision is None:
        return
    current = world.oracle.decided.get((decision.root, decision.lineage, decision.checkpoint))
    if current is None or not world.oracle.is_there(current.body):
        return
    if world.disk.is_durable(current.body):
        folder, name = world.disk.folder_of(current.body)
        folder.put(name, None)
        world.disk.sync(folder)
        world.oracle.repaired.damaged = True
        world.happens(BODY)

"""A job is harmed at random, and an operator does what the errors say until it goes on.

Drivers and rewinds die, targets and the folder go back to older copies, and files of the folder are
lost or damaged. The plan keeps no state, which no target could give back.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.memory_driver import NOTE
from harness.savepoint_world import STEP, StatefulHost, killed, restoring
from twophase.engine.host import Plan
from twophase.errors import TwoPhaseError
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.spark.folder.adopted_offsets import frozen_in
from twophase.state.files.storage import LocalStorage

pytestmark = pytest.mark.part("coordinator")

Command = Callable[[], object]

AT_ONCE = 50
"""Seeds of one test."""
IN_TEST = 1
IN_PROOF = 20
CHECKPOINTS = range(12)
MOST_COMMANDS = 14
POINTS_OF_A_CHECKPOINT = [f"C{number:02}" for number in (1, 2, 3, 4, 5, 6, *range(11, 21), 22)]
POINTS_OF_A_REWIND = ["S05", "S06", "S07", "S11", "S12", "S12@2", "S13", "S14"]


class StatelessHost(StatefulHost):
    """A plan that keeps nothing."""

    def plan(self) -> Plan:
        return Plan(stateful=False, keeps_state=False)


class HarmedJob(BeginningWorld):
    """One job, what happens to it, and every command that its operator has.

    Args:
        root: for everything.
        seed: of what happens.

    Attributes:
        story: what has happened, and what the commands have said.
        given_up: whether the operator has given up rows.
        begins_again: whether the operator has let the sources begin where their options say, which
            duplicates rows.
    """

    host = StatelessHost

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        self.random = random.Random(seed)
        self.story: list[str] = []
        self.given_up = self.begins_again = False
        self._folder = "job"
        self._until = 0
        self._savepoints: list[Path] = []

    @staticmethod
    def keep(spark: Path, number: int) -> None:
        """There is no state."""

    # -- what happens ------------------------------------------------------------------------------

    def live(self) -> None:
        harms = [
            self._go_on,
            self._die,
            self._save,
            self._rewind,
            self._die_in_a_rewind,
            self._copy,
            self._restore_a_copy,
            self._harm_a_body,
            self._harm_the_log,
            self._lose_the_spark_folder,
            self._lose_a_savepoint,
        ]
        for _ in range(self.random.randint(2, 7)):
            happens = self.random.choice(harms)
            self.story.append(happens.__name__)
            try:
                happens()
            except TwoPhaseError as error:
                self.story[-1] += f": {error}"

    def _go_on(self) -> None:
        self._until += self.random.randint(0, 2)
        self.drive(self._until)

    def _die(self) -> None:
        hit = self.random.choice(["", "@2", "@3"])
        self._until += 1
        point = self.random.choice(POINTS_OF_A_CHECKPOINT) + hit
        self._kill(point, lambda: self.drive(self._until))

    def _save(self) -> None:
        self._savepoints.append(self.make(f"saved-{len(self.story)}"))

    def _rewind(self) -> None:
        if self._savepoints:
            self.drive(self._until, **restoring(self.random.choice(self._savepoints), "rewind"))

    def _die_in_a_rewind(self) -> None:
        self._save()
        self._go_on()
        self._kill(self.random.choice(POINTS_OF_A_REWIND), self._rewind)

    @staticmethod
    def _kill(point: str, run: Command) -> None:
        with suppress(AssertionError):  # it was refused before it came to the point
            killed(point, run)

    def _copy(self) -> None:
        name = self.random.choice(["job", *self.sinks])
        if (self.root / name).exists():
            self.copy(name, f"{name}-copy")

    def _restore_a_copy(self) -> None:
        name = self.random.choice(["job", *self.sinks])
        if (self.root / f"{name}-copy").exists():
            self.copy(f"{name}-copy", name)

    def _harm_a_body(self) -> None:
        self._harm("chk/*/_metadata")

    def _harm_the_log(self) -> None:
        self._harm("log/[0-9]*")

    def _harm(self, pattern: str) -> None:
        """Lose or damage one of the files, mostly the newest."""
        files = sorted((self.root / "job").glob(pattern), key=lambda file: file.stat().st_mtime_ns)
        if files:
            file = self.random.choice([files[-1], self.random.choice(files)])
            if self.random.random() < 0.5:
                file.unlink()
            else:
                file.write_bytes(b"damaged")

    def _lose_the_spark_folder(self) -> None:
        shutil.rmtree(self.root / "job" / "spark", ignore_errors=True)

    def _lose_a_savepoint(self) -> None:
        if self._savepoints:
            index = self.random.randrange(len(self._savepoints))
            shutil.rmtree(self._savepoints.pop(index), ignore_errors=True)

    # -- what the operator does --------------------------------------------------------------------

    def mend(self) -> None:
        """Do what the errors say until the job goes on; fail if that does not lead on."""
        goal = self._until + 1
        for _ in range(MOST_COMMANDS):
            if self._succeeds("start", lambda: self.drive(goal, self._folder)):
                return
            if not self._follow(goal):
                break
        pytest.fail("\n".join(self.story))

    def _follow(self, goal: int) -> bool:
        """Run commands that the errors name, in any order, until one works; return whether one has.

        What a refused command says counts, too.
        """
        first, tried = len(self.story) - 1, set[str]()
        while True:
            said = "\n".join(self.story[first:])
            left = {
                name: command
                for name, command in (*self._restores(goal, said), *self._repairs(said))
                if name not in tried
            }
            if not left:
                return False
            name = self.random.choice([*left])
            tried.add(name)
            if self._succeeds(name, left[name]):
                return True

    def check(self) -> None:
        """Check that nothing waits, lacks or is duplicated, but for what was said."""
        assert self.prepared() == 0, self.story
        for found in self.ids():
            assert self.begins_again or len(found) == len({*found}), self.story
            assert self.given_up or {*found} == {*range(STEP * (self._until + 1))}, self.story

    def _succeeds(self, name: str, command: Command) -> bool:
        try:
            command()
        except TwoPhaseError as error:
            self.story.append(f"{name}: {type(error).__name__}: {error}")
            return False
        self.story.append(f"{name}: done")
        return True

    def _restores(self, goal: int, said: str) -> Iterator[tuple[str, Command]]:
        paths = [*self._savepoints]
        if "set to the newest checkpoint" in said:
            paths.append(self.root / self._folder / self.history(self._folder).decisions[-1].folder)
        for path in paths:
            for policy in ("refuse", "rewind"):
                where = "other" if "into a new checkpointLocation" in said else self._folder

                yield (
                    f"restore {path.name} {policy}",
                    partial(self._restore, goal, where, restoring(path, policy)),
                )

    def _restore(self, goal: int, where: str, options: Mapping[str, str]) -> None:
        self.drive(goal, where, **options)
        self._folder = where

    def _repairs(self, said: str) -> Iterator[tuple[str, Command]]:
        if "abandon-rewind" in said:
            yield "abandon-rewind", self._abandon
        if "adopt-from-target" in said:
            yield "adopt-from-target", self._adopt
        for number in reversed(CHECKPOINTS) if "accept-loss" in said else ():
            for sink in self.sinks:
                yield f"accept-loss {number} {sink}", partial(self._accept, number, sink)
        log = self.root / self._folder / "log"
        if "mv log log.damaged" in said and log.exists():
            yield "mv log log.damaged", lambda: log.rename(log.with_name(f"log.{len(self.story)}"))

    def _abandon(self) -> None:
        repair = RewindRepair(self.context(self._folder), self.declared)
        repair.abandon(repair.plan(), NOTE)
        self.given_up = True

    def _adopt(self) -> None:
        frozen = frozen_in(LocalStorage(self.root / self._folder))
        repair = AdoptionRepair(self.context(self._folder), frozen)
        plan = repair.plan()
        # the operator has read that a sink may lack rows of the newest checkpoint
        self.given_up |= not all(map(plan.has_newest, plan.sinks)) or bool(plan.gave_up)
        self.begins_again |= not (plan.end or plan.missed)
        repair.adopt(plan, NOTE)

    def _accept(self, number: int, sink: str) -> None:
        repair = LossRepair(self.context(self._folder))
        repair.accept(repair.plan(number, sink), NOTE)
        self.given_up = True


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=[] if block < IN_TEST else [pytest.mark.proof])
        for block in range(IN_PROOF)
    ],
)
def test_what_the_errors_say_leads_on_and_loses_only_what_is_given_up(
    tmp_path: Path, block: int
) -> None:
    for seed in range(block * AT_ONCE, (block + 1) * AT_ONCE):
        job = HarmedJob(tmp_path / str(seed), seed)
        job.live()
        job.mend()
        job.check()

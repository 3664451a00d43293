"""The real coordinator and log with two sinks, under random crashes, rivals, zombies, late
tasks and lost replies.

The model is small: what the log has decided. After every step, whatever happened in it:

- a row is visible only if its checkpoint is decided, under the decided attempt, and
  only once (I1, I3)
- a piece of a decided checkpoint is either visible or still pre-committed, in every sink (I2)
- checkpoints become visible in their order (I4); a checkpoint that the log calls
  committed is visible whole
- once a driver has recovered, nothing that an older driver left undecided is pre-committed, and
  nothing comes (I7)
- a checkpoint that is decided stays decided, by one attempt

At the end one more driver recovers: everything is resolved and both sinks have the same rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.interleaving import PIECES, Crash, SteppingDriver, row
from harness.memory_driver import JOB, offsets
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import Replay
from twophase.errors import (
    CheckpointMissingError,
    DeclinedError,
    FencedError,
    InDoubtError,
    OffsetMismatchError,
    RestoreRefusedError,
    TwoPhaseError,
)
from twophase.ids import Attempt, Subtask
from twophase.state.files.storage import LocalStorage, UnclearOutcomeError
from twophase.state.journal.entries import Decision
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget

SINKS = ("facts", "lake")
STEPS = st.integers(0, 70)
FEW = st.integers(1, 3)
OVERTAKEN = (
    FencedError,
    CheckpointMissingError,
    RestoreRefusedError,
    OffsetMismatchError,
    DeclinedError,
)
"""What a driver may meet that another has overtaken; every other error is a defect."""


class CoordinatorMachine(RuleBasedStateMachine):
    """Drivers over one folder and two targets."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda descriptor: None)
        self.patch.setattr("twophase.state.checkpoints.store._FOLD_AT", 7)
        self.patch.setattr(
            "twophase.coordinator.commit.checkpoint_completion.SUBSUME_SINKS_EVERY", 2
        )
        self.root = Path(tempfile.mkdtemp(prefix="twophase-machine-"))
        self.targets = {name: MemoryTarget() for name in SINKS}
        self.decided: dict[int, Decision] = {}
        self.committed: set[int] = set()
        self.recovered = 0
        self.driver: SteppingDriver
        self.drivers: list[SteppingDriver] = []
        self.torn = 0

    def teardown(self) -> None:
        try:
            if hasattr(self, "driver"):
                self.at_the_end_everything_is_resolved()
        finally:
            self.patch.undo()
            shutil.rmtree(self.root)

    # -- helpers -----------------------------------------------------------------------------------

    def new_driver(self) -> SteppingDriver:
        options: dict[str, Any] = {"checkpoint.tolerable_failures": 1}
        driver = SteppingDriver(self.root / "job", self.targets, **options)
        driver.stepping_storage.on_append = self.read_log
        return driver

    @property
    def zombies(self) -> list[SteppingDriver]:
        """Drivers that were overtaken and do not know it."""
        return [driver for driver in self.drivers if driver is not self.driver]

    def generation(self) -> int:
        return JobLog(LocalStorage(self.root / "job"), JOB).read().generation

    def recover(self, driver: SteppingDriver) -> None:
        driver.recover()
        self.drivers.append(driver)
        self.recovered = max(self.recovered, driver.coordinator.generation)

    def take_over(self) -> None:
        """A new driver recovers, undisturbed."""
        driver = self.new_driver()
        self.recover(driver)
        self.driver = driver

    def settle(self) -> None:
        """Find out who has the job; if that one is dead, another takes it over."""
        generation = self.generation()
        alive = [driver for driver in self.drivers if driver.coordinator.generation == generation]
        if alive:
            (self.driver,) = alive
        else:
            self.take_over()

    def nothing_waits(self) -> bool:
        return not self.driver.history.uncommitted()

    def next_of(self, driver: SteppingDriver) -> int:
        newest = driver.coordinator.newest()
        return newest.checkpoint + 1 if newest else 0

    def run_next(
        self,
        driver: SteppingDriver,
        pre_commit: Callable[[PendingCheckpoint], None] | None = None,
        times: int = 1,
    ) -> None:
        for _ in range(times):
            number = self.next_of(driver)
            driver.run(number, pre_commit)
            newest = driver.coordinator.newest()
            assert newest is not None
            assert newest.checkpoint == number, "it returned without a decision"

    def dies(self, driver: SteppingDriver, steps: int, work: Callable[[], object]) -> None:
        """Do `work` and die after so many steps of it; a driver that is through
        before that lives on.
        """

        def die() -> None:
            raise Crash

        driver.steps.plan(steps, die)
        try:
            work()
        except Crash:
            self.leave_torn_file()
            self.drivers = [other for other in self.drivers if other is not driver]
        finally:
            driver.steps.clear()
        self.settle()

    def leave_torn_file(self) -> None:
        """A killed process leaves its temporary name behind."""
        self.torn += 1
        for folder in (
            "log",
            *(f"chk/{path.name}" for path in (self.root / "job" / "chk").glob("*")),
        ):
            (self.root / "job" / folder / f".tmp-torn-{self.torn}").write_bytes(b"twophase/1 DEC")

    def interrupted(
        self,
        driver: SteppingDriver,
        steps: int,
        action: Callable[[], object],
        work: Callable[[], object],
    ) -> None:
        """Do `work` of `driver`, with `action` in its middle, which may overtake it."""
        driver.steps.plan(steps, action)
        try:
            work()
        except OVERTAKEN as error:
            if self.generation() == driver.coordinator.generation:
                raise AssertionError("nobody overtook it") from error
        finally:
            driver.steps.clear()

    def zombie_works(self, driver: SteppingDriver, times: int = 1) -> None:
        """A driver that was overtaken does not know it, and goes on."""
        try:
            self.run_next(driver, times=times)
        except (*OVERTAKEN, InDoubtError):  # in doubt: as its last append was
            return
        raise AssertionError("a driver that was overtaken took a checkpoint")

    def late_task(self, driver: SteppingDriver, index: int) -> None:
        """A task of some attempt of `driver` ends late, after all others."""
        if not driver.transactions:
            return
        transaction = driver.transactions[index % len(driver.transactions)]
        sink = driver.stepping_sinks[transaction.sink]
        try:
            sink.write_direct(transaction, Subtask(0, 1000 + index), [{"late": str(transaction)}])
        except FencedError:
            return

    def read_log(self) -> None:
        """The model: which checkpoints are decided, by one attempt, for ever. Read whenever a
        record becomes durable.
        """
        log = JobLog(LocalStorage(self.root / "job"), JOB)
        for decision in log.read().decisions:
            known = self.decided.setdefault(decision.checkpoint, decision)
            assert (known.attempt, known.body_digest) == (decision.attempt, decision.body_digest)
            if decision.committed:
                self.committed.add(decision.checkpoint)
            else:
                assert decision.checkpoint not in self.committed

    # -- what a driver does ------------------------------------------------------------------------

    @initialize()
    def first_start(self) -> None:
        self.take_over()

    @rule(times=FEW)
    def checkpoints(self, times: int) -> None:
        self.run_next(self.driver, times=times)

    @rule()
    def restart(self) -> None:
        self.take_over()

    @rule()
    def restart_in_the_same_process(self) -> None:
        previous = self.driver.coordinator.generation
        driver = self.new_driver()
        driver.coordinator.recover(previous)
        self.recovered = driver.coordinator.generation
        self.drivers.append(driver)
        self.driver = driver

    @precondition(lambda self: self.decided)
    @rule()
    def replay(self) -> None:
        """Spark runs the newest micro-batch again."""
        coordinator = self.driver.coordinator
        newest = coordinator.newest()
        assert newest is not None
        found = coordinator.classify(newest.checkpoint, offsets(newest.checkpoint))
        assert isinstance(found, Replay)
        coordinator.replay(found.decision, None)

    @rule(sinks=st.integers(0, len(SINKS)))
    def declined_once(self, sinks: int) -> None:
        """An attempt fails after so many sinks have pre-committed; it is retried whole."""
        left = [1]

        def fail_once(pending: PendingCheckpoint) -> None:
            if left.pop() if left else 0:
                for name in SINKS[:sinks]:
                    transaction = pending.transaction(name)
                    self.driver.transactions.append(transaction)
                    self.driver.stepping_sinks[name].write_direct(
                        transaction, Subtask(0, 0), [{"declined": 1}]
                    )
                raise DeclinedError("no")
            self.driver.write(pending)

        self.run_next(self.driver, fail_once)

    @rule()
    def declined_for_good(self) -> None:
        number = self.next_of(self.driver)

        def fail(pending: PendingCheckpoint) -> None:
            self.driver.write(pending)
            raise DeclinedError("no")

        with pytest.raises(DeclinedError):
            self.driver.run(number, fail)
        assert self.next_of(self.driver) == number
        assert not [
            key for target in self.targets.values() for key in target.prepared if key[3] == number
        ]

    @rule(index=st.integers(0, 5))
    def a_task_attempt_loses_to_another(self, index: int) -> None:
        def with_loser(pending: PendingCheckpoint) -> None:
            name = SINKS[index % len(SINKS)]
            loser = Subtask(index % PIECES, 5000 + index)
            self.driver.stepping_sinks[name].write_direct(
                pending.transaction(name), loser, [{"loser": 1}]
            )
            self.driver.write(pending)

        self.run_next(self.driver, with_loser)

    @rule()
    def fold(self) -> None:
        log = self.driver.context.log
        log.fold(log.history)

    # -- what goes wrong ---------------------------------------------------------------------------

    @rule(steps=STEPS)
    def crash_in_a_checkpoint(self, steps: int) -> None:
        self.dies(self.driver, steps, lambda: self.run_next(self.driver))

    @rule(steps=STEPS, behind=st.booleans())
    def crash_in_recovery(self, steps: int, behind: bool) -> None:
        if behind:
            self.commit_behind()
        driver = self.new_driver()
        self.dies(driver, steps, lambda: self.recover(driver))

    @rule(times=FEW)
    def commit_behind(self, times: int = 2) -> None:
        """Checkpoints are decided, and the driver dies before it commits any of them (H48)."""
        coordinator = self.driver.coordinator
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator, "_complete", lambda *rest: None)
            patch.setattr(coordinator, "_make_room", lambda number: None)
            self.run_next(self.driver, times=times)

    @rule(times=FEW)
    def commit_behind_and_restart(self, times: int) -> None:
        self.commit_behind(times)
        self.take_over()

    @rule(refusals=FEW, lost=st.integers(0, 2), sink=st.sampled_from(SINKS))
    def commit_fails_for_a_while(self, refusals: int, lost: int, sink: str) -> None:
        flaky = self.driver.stepping_sinks[sink]
        flaky.refusals, flaky.lost_replies = refusals, lost
        self.run_next(self.driver)
        flaky.refusals = flaky.lost_replies = 0

    @precondition(lambda self: self.nothing_waits())
    @rule(sink=st.sampled_from(SINKS), goes_on=st.booleans())
    def stop_while_a_sink_is_down(self, sink: str, goes_on: bool) -> None:
        down = self.driver.stepping_sinks[sink]
        self.driver.context.stopping.set()
        down.refusals = 2 if goes_on else 1
        self.run_next(self.driver)
        if goes_on and self.driver.history.uncommitted():
            with pytest.raises(DeclinedError, match="did not begin"):
                self.run_next(self.driver)
        down.refusals = 0
        if goes_on:
            self.run_next(self.driver)
        self.take_over()

    @precondition(lambda self: self.nothing_waits())
    @rule(folder=st.sampled_from(["log/", "chk/"]), carried_out=st.booleans())
    def the_reply_of_a_create_is_lost(self, folder: str, carried_out: bool) -> None:
        planned = (folder, UnclearOutcomeError("reply lost"))
        storage = self.driver.stepping_storage
        if carried_out:
            storage.after_create = planned
        else:
            storage.before_create = planned
        with pytest.raises(InDoubtError if folder == "log/" else DeclinedError):
            self.run_next(self.driver)
        storage.before_create = storage.after_create = None
        self.take_over()

    @precondition(lambda self: self.nothing_waits())
    @rule(folder=st.sampled_from(["log/", "chk/"]))
    def a_create_fails_for_certain(self, folder: str) -> None:
        storage = self.driver.stepping_storage
        storage.before_create = (folder, OSError(28, "No space left on device"))
        with pytest.raises(DeclinedError):
            self.run_next(self.driver)
        storage.before_create = None
        self.run_next(self.driver)

    @rule(sink=st.sampled_from(SINKS))
    def an_abort_fails(self, sink: str) -> None:
        self.driver.stepping_sinks[sink].failing_aborts = 1

        def fail(pending: PendingCheckpoint) -> None:
            self.driver.write(pending)
            raise DeclinedError("no")

        with pytest.raises((ConnectionError, DeclinedError)):
            self.driver.run(self.next_of(self.driver), fail)
        self.take_over()

    # -- who interferes ----------------------------------------------------------------------------

    @rule(steps=STEPS, times=st.integers(0, 3), fold=st.booleans(), nested=st.none() | STEPS)
    def a_rival_overtakes_in_the_middle_of_a_checkpoint(
        self, steps: int, times: int, fold: bool, nested: int | None
    ) -> None:
        """The old driver then goes on as if nothing had happened; a second rival may
        overtake the first.
        """
        driver = self.driver
        self.interrupted(
            driver, steps, lambda: self.overtake(times, fold, nested), lambda: self.run_next(driver)
        )
        self.settle()

    @rule(steps=STEPS, times=st.integers(0, 3), fold=st.booleans(), nested=st.none() | STEPS)
    def a_rival_overtakes_in_the_middle_of_a_recovery(
        self, steps: int, times: int, fold: bool, nested: int | None
    ) -> None:
        driver = self.new_driver()
        self.interrupted(
            driver, steps, lambda: self.overtake(times, fold, nested), lambda: self.recover(driver)
        )
        self.settle()

    def overtake(self, times: int, fold: bool, nested: int | None) -> None:
        rival = self.new_driver()

        def work() -> None:
            self.recover(rival)
            self.run_next(rival, times=times)
            if fold:
                rival.context.log.fold(rival.history)

        if nested is None:
            work()
        else:
            self.interrupted(rival, nested, lambda: self.overtake(1, fold=True, nested=None), work)

    @rule(steps=STEPS, times=FEW, late=st.integers(0, 50))
    def the_old_driver_works_on_while_a_new_one_recovers(
        self, steps: int, times: int, late: int
    ) -> None:
        old, new = self.driver, self.new_driver()

        def old_works_on() -> None:
            try:
                self.run_next(old, times=times)
            except OVERTAKEN:
                self.late_task(old, late)

        new.steps.plan(steps, old_works_on)
        try:
            self.recover(new)
        finally:
            new.steps.clear()
        self.driver = new

    @rule(steps=STEPS, late=st.integers(0, 50))
    def a_late_task_ends_while_a_new_driver_recovers(self, steps: int, late: int) -> None:
        """The old driver died in the middle of an attempt; its tasks did not."""
        old, new = self.driver, self.new_driver()

        def die(pending: PendingCheckpoint) -> None:
            old.write(pending)
            raise Crash

        with pytest.raises(Crash):
            self.run_next(old, die)
        self.drivers.remove(old)
        old.transactions = old.transactions[-len(SINKS) :]
        new.steps.plan(steps, lambda: self.late_task(old, late))
        try:
            self.recover(new)
        finally:
            new.steps.clear()
        self.driver = new

    @precondition(lambda self: self.zombies)
    @rule(which=st.integers(0, 50), times=FEW)
    def a_zombie_works(self, which: int, times: int) -> None:
        self.zombie_works(self.zombies[which % len(self.zombies)], times)

    @precondition(lambda self: self.zombies)
    @rule(which=st.integers(0, 50))
    def a_zombie_folds_the_log(self, which: int) -> None:
        log = self.zombies[which % len(self.zombies)].context.log
        with pytest.raises((FencedError, InDoubtError)):  # in doubt: as its last append was
            log.fold(log.history)

    @precondition(lambda self: self.zombies)
    @rule(which=st.integers(0, 50))
    def a_zombie_restarts_its_query(self, which: int) -> None:
        zombie = self.zombies[which % len(self.zombies)]
        with pytest.raises(FencedError):
            self.new_driver().coordinator.recover(zombie.coordinator.generation)

    @rule(which=st.integers(0, 50), late=st.integers(0, 50))
    def a_late_task_of_a_closed_attempt_ends(self, which: int, late: int) -> None:
        drivers = [*self.zombies, self.driver]
        self.late_task(drivers[which % len(drivers)], late)

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "driver"):
            return
        for target in self.targets.values():
            self.check_visible(target)
            self.check_decided(target)
            self.check_undecided(target)

    def expected(self, checkpoint: int) -> list[dict[str, object]]:
        attempt = self.decided[checkpoint].attempt
        return (
            [row(checkpoint, index, attempt) for index in range(PIECES)]
            if checkpoint % 4 != 3
            else []
        )

    def check_visible(self, target: MemoryTarget) -> None:
        """I1, I3: only decided checkpoints, once; in order."""
        allowed = [found for checkpoint in self.decided for found in self.expected(checkpoint)]
        assert all(found in allowed for found in target.visible)
        assert all(target.visible.count(found) == 1 for found in target.visible)
        order = [found["checkpoint"] for found in target.visible]
        assert order == sorted(order)

    def check_decided(self, target: MemoryTarget) -> None:
        """I2: whole if committed; each piece visible or pre-committed if not."""
        waiting = [found for _, found_rows in target.prepared.values() for found in found_rows]
        for checkpoint in self.decided:
            for found in self.expected(checkpoint):
                assert found in target.visible or (
                    found in waiting and checkpoint not in self.committed
                )

    def check_undecided(self, target: MemoryTarget) -> None:
        """I7: what older drivers left undecided is gone once a newer one has recovered."""
        decided = {(number, decision.attempt) for number, decision in self.decided.items()}
        for _, _, _, checkpoint, attempt, subtask in target.prepared:
            listed = subtask in [SteppingDriver.subtask(index, attempt) for index in range(PIECES)]
            if (checkpoint, attempt) not in decided or not listed:
                assert attempt >= Attempt(self.recovered, 0)

    def at_the_end_everything_is_resolved(self) -> None:
        self.take_over()
        self.everything_holds()
        assert self.committed == set(self.decided) == set(range(len(self.decided)))
        everything = [
            found for checkpoint in sorted(self.decided) for found in self.expected(checkpoint)
        ]
        for target in self.targets.values():
            assert target.prepared == {}
            assert sorted(target.visible, key=str) == sorted(everything, key=str)
        self.run_next(self.driver)


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(
    max_examples=int(os.environ.get("TWOPHASE_MACHINE_EXAMPLES", "60")),
    stateful_step_count=20,
    report_multiple_bugs=False,
)


def test_the_machine_s_drivers_fail_only_with_twophase_errors() -> None:
    assert all(issubclass(kind, TwoPhaseError) for kind in OVERTAKEN)

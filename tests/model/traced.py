"""Runs of the real coordinator over the reference sink, told as one trace.

Every driver can be stopped between any two of its steps, to die there or to let another one run
(`tests.coordinator.interleaving`). Tasks that a dead driver leaves behind may end at any later moment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.conftest import JOB, Driver, offsets
from tests.coordinator.interleaving import Crash, SteppingSink, SteppingStorage, Steps
from tests.model.conformance import Ended
from tests.model.state import Budget
from tests.model.world import MEMORY, World
from twophase.coordinator.coordinator import Replay
from twophase.coordinator.pending import PendingCheckpoint
from twophase.errors import DeclinedError, FencedError, TwoPhaseError
from twophase.events import Event, SinkAcknowledged
from twophase.ids import Subtask, TransactionId, new_lineage_id
from twophase.state.records import Lineage
from twophase.testing.memory import MemoryTarget

SINKS = ("facts", "lake")
PIECES = 2
LOSER = 1000
_PLENTY = 99


class Told(list[Event]):
    """A driver's events, each told to the whole run as well."""

    def __init__(self, number: int, trace: list[tuple[int, Event]]) -> None:
        super().__init__()
        self._number = number
        self._trace = trace

    def append(self, event: Event) -> None:
        """Tell of one event."""
        super().append(event)
        self._trace.append((self._number, event))


class TracedDriver(Driver):
    """A driver of the job whose events are part of a trace.

    Attributes:
        steps: every one of them can be its last.
        unwritten: tasks that it has started and that have not pre-committed yet.
    """

    def __init__(self, folder: Path, targets: dict[str, MemoryTarget], told: Told) -> None:
        self.steps = Steps()
        self.stepping_sinks = {name: SteppingSink(target, self.steps) for name, target in targets.items()}
        self.unwritten: list[tuple[TransactionId, int]] = []
        super().__init__(
            folder,
            targets,
            options={"checkpoint.tolerable_failures": 1},
            sinks={**self.stepping_sinks},
            events=told,
            storage=SteppingStorage(folder, self.steps),
        )

    def write(self, pending: PendingCheckpoint) -> None:
        """Every sink gets one row a piece, and acknowledges, as in `BatchHandler`."""
        self.unwritten = [(pending.transaction(name), index) for name in self.stepping_sinks for index in range(PIECES)]
        for name in self.stepping_sinks:
            pieces = [self._write_piece(pending.transaction(name), index) for index in range(PIECES)]
            pending.acknowledge(name, pieces)
            told = SinkAcknowledged(
                pending.job, pending.checkpoint, pending.attempt, name, len(pieces), len(pieces), 0.0
            )
            self.events.append(told)
            self.steps()

    def _write_piece(self, transaction: TransactionId, index: int, task_attempt: int = 0) -> Any:
        piece = self.stepping_sinks[transaction.sink].write_direct(
            transaction, Subtask(index, task_attempt), [{"checkpoint": transaction.checkpoint, "index": index}]
        )
        if task_attempt < LOSER:
            self.unwritten.remove((transaction, index))
        return piece

    def write_with_loser(self, pending: PendingCheckpoint) -> None:
        """As `write`, after another attempt of the first task of the first sink."""
        self._write_piece(pending.transaction(SINKS[0]), 0, LOSER)
        self.write(pending)

    def write_late(self) -> None:
        """A task that this driver has started ends now."""
        if self.unwritten:
            transaction, index = self.unwritten[0]
            try:
                self._write_piece(transaction, index)
            except FencedError:
                self.unwritten.pop(0)

    def next_number(self) -> int:
        """What Spark runs next."""
        newest = self.coordinator.newest()
        return newest.checkpoint + 1 if newest else self.coordinator.lineage.first_checkpoint

    def run_next(self, write: Callable[[PendingCheckpoint], None] | None = None) -> None:
        """One micro-batch."""
        self.run(self.next_number(), write)


class Run:
    """One job's life.

    Args:
        folder: of the job.
        tidies: how often the log may be folded, and how often the sinks may subsume.

    Attributes:
        trace: what was told.
        driver: who has the job.
    """

    def __init__(self, folder: Path, tidies: int = 0) -> None:
        self.trace: list[tuple[int, Event]] = []
        self._folder = folder
        self._targets = {name: MemoryTarget() for name in SINKS}
        self._started = 0
        self._losers = 0
        self._tidies = tidies
        self._restores = 0
        self.driver = self.start()
        self.driver.recover()

    def world(self) -> World:
        """What the model has to allow."""
        return World(
            "conformance",
            "follows a run of the product",
            (MEMORY,) * len(SINKS),
            branches=PIECES,
            checkpoints=_PLENTY,
            losers=self._losers,
            splits_append=True,
            replays=True,
            budget=Budget(
                rivals=_PLENTY,
                declines=_PLENTY,
                folds=self._tidies,
                subsumptions=self._tidies,
                restores=self._restores,
            ),
        )

    def start(self) -> TracedDriver:
        """A new driver, which has not looked at anything yet."""
        self._started += 1
        return TracedDriver(self._folder, self._targets, Told(self._started, self.trace))

    # -- what happens --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """A checkpoint without trouble."""
        self.driver.run_next()

    def replay(self) -> None:
        """Spark runs the newest checkpoint again after a restart."""
        self._end(self.driver)
        self.driver = self.start()
        self.driver.recover()
        newest = self.driver.coordinator.newest()
        if newest is not None:
            found = self.driver.coordinator.classify(newest.checkpoint, offsets(newest.checkpoint))
            assert isinstance(found, Replay)
            self.driver.coordinator.replay(found.decision, None)

    def declined(self, steps: int) -> None:
        """An attempt fails after so many of its steps, and is retried whole."""
        left = [steps]

        def fail_once(pending: PendingCheckpoint) -> None:
            if left:
                self.driver.steps.plan(left.pop(), _decline)
            try:
                self.driver.write(pending)
            finally:
                self.driver.steps.clear()

        self.driver.run_next(fail_once)

    def with_loser(self) -> None:
        """A task attempt loses to another of its task."""
        self._losers = 1
        self.driver.run_next(self.driver.write_with_loser)

    def commit_fails(self, tries: int) -> None:
        """A sink refuses commits for a while, or carries one out and loses the reply."""
        flaky = self.driver.stepping_sinks[SINKS[tries % 2]]
        flaky.refusals, flaky.lost_replies = tries, tries % 2
        self.driver.run_next()
        flaky.refusals = flaky.lost_replies = 0

    def crashed(self, steps: int, late: int) -> None:
        """The driver dies in a checkpoint; one of its tasks ends while the next driver recovers."""
        dead = self.driver
        dead.steps.plan(steps, _crash)
        try:
            dead.run_next()
        except Crash:
            self._end(dead)
            self._take_over(late, dead.write_late)
        finally:
            dead.steps.clear()

    def crashed_after_the_decision(self) -> None:
        """The driver dies between the decision and the first commit."""
        dead = self.driver
        with pytest.MonkeyPatch.context() as patch, suppress(Crash):
            patch.setattr(dead.coordinator, "_finish", lambda *rest: _crash())
            dead.run_next()
        self._end(dead)
        self._take_over(0, lambda: None)

    def crashed_in_recovery(self, steps: int) -> None:
        """A driver dies while it recovers; the one before it never hears of that."""
        dead = self.start()
        dead.steps.plan(steps, _crash)
        try:
            dead.recover()
            self._end(self.driver)
            self.driver = dead
        except Crash:
            self._end(dead)
            self._end(self.driver)
            self._take_over(0, lambda: None)
        finally:
            dead.steps.clear()

    def taken_over(self, steps: int, times: int) -> None:
        """Another driver takes the job over in the middle of a checkpoint; the old one goes on as if nothing was."""
        old = self.driver

        def overtake() -> None:
            self.driver = self.start()
            self.driver.recover()
            for _ in range(times):
                self.driver.run_next()

        old.steps.plan(steps, overtake)
        try:
            old.run_next()
            old.run_next()
        except TwoPhaseError:
            assert self.driver is not old, "nobody overtook it"
            self._end(old)
        finally:
            old.steps.clear()

    def restored(self) -> None:
        """An operator restores the newest checkpoint into a new lineage."""
        coordinator = self.driver.coordinator
        newest = coordinator.newest()
        if newest is None:
            return
        self._restores += 1
        checkpoint = coordinator.store.read(newest)
        lineage = Lineage(
            new_lineage_id(),
            restored_from=newest.folder,
            first_checkpoint=1,
            start=checkpoint.offsets.end,
            ancestors={**coordinator.lineage.ancestors, newest.lineage: newest.checkpoint},
        )
        self._end(self.driver)
        self.driver = self.start()
        self.driver.coordinator.recover(None, lineage, (checkpoint,))
        self.driver.coordinator.begin_lineage(lineage)

    def _end(self, driver: TracedDriver) -> None:
        driver.events.append(Ended(JOB))

    def _take_over(self, steps: int, meanwhile: Callable[[], object]) -> None:
        self.driver = self.start()
        self.driver.steps.plan(steps, meanwhile)
        try:
            self.driver.recover()
        finally:
            self.driver.steps.clear()


def _crash() -> None:
    raise Crash


def _decline() -> None:
    raise DeclinedError("no")

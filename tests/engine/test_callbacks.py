"""A job is stopped, saved and waited for by its own observers, listeners and functions, which it
waits for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.held_jobs import wait_until
from harness.plain_job import PlainJob
from harness.savepoint_world import restoring
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.errors import SavepointError
from twophase.events import CheckpointCommitted, Event

pytestmark = pytest.mark.part("runtime")

_WAIT_S = 30


class Calls:
    """A function and listener that does something once, in one of its methods.

    Args:
        method: the name of the method.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self.act: Callable[[], object] | None = None

    def initialize_state(self, context: InitializationContext) -> None:
        self._called("initialize_state")

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._called("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self._called("notify_checkpoint_complete")

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        self._called("notify_checkpoint_aborted")

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        self._called("notify_checkpoint_subsumed")

    def observe(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            self._called("observe")

    def _called(self, method: str) -> None:
        act, self.act = (self.act, None) if method == self._method else (None, self.act)
        if act is not None:
            act()


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def job_of(world: BeginningWorld, calls: Calls) -> PlainJob:
    world.functions = {"calls": calls}
    job = PlainJob(world, 4, forever=True)
    job.engine.observers.add(calls.observe)
    return job


METHODS = pytest.mark.parametrize(
    "method",
    [
        "observe",
        "initialize_state",
        "snapshot_state",
        "notify_checkpoint_complete",
        "notify_checkpoint_subsumed",
    ],
)


@METHODS
def test_a_job_that_is_stopped_from_within_ends(world: BeginningWorld, method: str) -> None:
    """I stop my job by an observer after the first checkpoint, say."""
    calls, answers = Calls(method), list[bool]()
    job = job_of(world, calls)
    calls.act = lambda: answers.append(job.engine.stop())
    job.start()
    assert job.engine.await_termination(_WAIT_S)
    assert answers == [False], "it had not ended yet"
    PlainJob(world, 4).run()
    assert world.ids() == [[*range(40)]] * 2


@METHODS
def test_a_job_is_not_waited_for_from_within(world: BeginningWorld, method: str) -> None:
    calls, answers = Calls(method), list[bool]()
    job = job_of(world, calls)
    calls.act = lambda: answers.append(job.engine.await_termination())
    job.start()
    wait_until(lambda: world.ids() == [[*range(40)]] * 2, "all rows")
    assert job.engine.stop(_WAIT_S)
    assert answers == [False]


@METHODS
def test_a_stop_with_a_savepoint_from_within_is_refused_and_the_job_runs_on(
    world: BeginningWorld, method: str
) -> None:
    calls, errors = Calls(method), list[SavepointError]()
    job = job_of(world, calls)

    def stop() -> None:
        with pytest.raises(SavepointError, match="cannot stop it with a savepoint") as caught:
            job.savepoints.stop(str(world.root / "saved"))
        errors.append(caught.value)

    calls.act = stop
    job.start()
    wait_until(lambda: world.ids() == [[*range(40)]] * 2, "all rows")
    assert [one.remedy for one in errors] == ["do it in a thread of its own."]
    path = str(world.root / "from without")
    assert job.savepoints.stop(path) == path
    PlainJob(world, 5, "again", restoring(Path(path), "refuse")).run()
    assert world.ids() == [[*range(50)]] * 2


class OnlyComplete:
    """A function that listens to nothing but completed checkpoints."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def initialize_state(self, context: InitializationContext) -> None:
        """It has no state."""

    def snapshot_state(self, context: SnapshotContext) -> None:
        """It has no state."""

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self.told.append(checkpoint)


def test_a_function_is_told_what_it_has_a_method_for(world: BeginningWorld) -> None:
    """It is no whole listener, and was told nothing; what it has no method for asks for none."""
    only = OnlyComplete()
    world.functions = {"only": only}
    PlainJob(world, 4).run()
    assert only.told == [0, 1, 2, 3]
    assert world.ids() == [[*range(40)]] * 2

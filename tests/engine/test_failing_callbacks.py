"""Whatever an observer, a listener or a function of the job raises, the job ends with what ended
it, and whoever waits for it is told.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld
from harness.plain_job import PlainJob
from tests.engine.conftest import WAIT_S, Failing, World
from tests.engine.test_engine import FIXED
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.coordinator.commit.failure_manager import SAME_FAILURES
from twophase.errors import RepeatedFailureError
from twophase.events import (
    CheckpointCommitted,
    CheckpointTriggered,
    Event,
    JobRestarting,
    JobStopped,
)

pytestmark = pytest.mark.part("runtime")

AT_ONCE = {"restart.strategy": "exponential", "restart.delay": "1 ms", "restart.delay_max": "1 ms"}


@pytest.mark.parametrize("kind", [CheckpointTriggered, CheckpointCommitted, JobRestarting])
def test_an_observer_that_exits_the_interpreter_ends_the_job_with_that(
    world: World, kind: type[Event]
) -> None:
    """I call `sys.exit` in an observer, as I would in a script of my own."""

    def observe(event: Event) -> None:
        if isinstance(event, kind):
            sys.exit(3)

    engine = world.engine(workers=Failing(OSError("once")), options=FIXED)
    engine.observers.add(observe)
    engine.start()
    with pytest.raises(SystemExit, match="3"):
        engine.await_termination(WAIT_S)
    assert not engine.is_active
    [stopped] = world.of(JobStopped)
    assert stopped.cause == "3"
    world.run(3)
    assert world.has_all(3)


def test_an_observer_that_exits_when_the_job_has_ended_keeps_nobody_waiting(world: World) -> None:
    def observe(event: Event) -> None:
        if isinstance(event, JobStopped):
            sys.exit(3)

    engine = world.engine()
    engine.observers.add(observe)
    engine.start()
    with pytest.raises(SystemExit, match="3"):
        engine.await_termination(WAIT_S)
    assert world.has_all(3)


class Raises:
    """A function and listener, each method of which may raise.

    Attributes:
        errors: by the name of the method.
    """

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.initialized = 0

    def initialize_state(self, context: InitializationContext) -> None:
        self.initialized += 1
        if self.initialized > 1:
            self._called("initialize_state")

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._called("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        self._called("notify_checkpoint_aborted")

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None: ...

    def _called(self, method: str) -> None:
        if method in self.errors:
            raise self.errors[method]


def job_of(tmp_path: Path, function: Raises, **options: Any) -> tuple[BeginningWorld, PlainJob]:
    world = BeginningWorld(tmp_path)
    world.functions = {"raises": function}
    return world, PlainJob(world, 4, options={**AT_ONCE, **options})


@pytest.mark.parametrize("tolerated", [0, 2])
def test_a_listener_that_fails_on_an_abort_hides_nothing(tmp_path: Path, tolerated: int) -> None:
    """Mine posts to a webhook that is down. The job ends with what the attempt was declined for,
    and is not started again for ever.
    """
    function = Raises(
        snapshot_state=ValueError("no snapshot"), notify_checkpoint_aborted=OSError("no webhook")
    )
    world, job = job_of(tmp_path, function, **{"checkpoint.tolerable_failures": tolerated})
    job.start()
    with pytest.raises(RepeatedFailureError, match="no snapshot"):
        job.engine.await_termination(WAIT_S)
    assert function.initialized == -(-SAME_FAILURES // (1 + tolerated))
    function.errors.clear()
    PlainJob(world, 4).run()
    assert world.ids() == [[*range(40)]] * 2


def test_a_function_that_does_not_take_its_state_ends_the_job_after_some_starts(
    tmp_path: Path,
) -> None:
    function = Raises(
        snapshot_state=OSError("once"), initialize_state=ValueError("no state of mine")
    )
    _, job = job_of(tmp_path, function)
    job.start()
    with pytest.raises(RepeatedFailureError, match="no state of mine") as caught:
        job.engine.await_termination(WAIT_S)
    assert function.initialized == SAME_FAILURES + 1
    assert caught.value.exit_code == 3
    assert "The job has failed in this way" in caught.value.what


def test_what_a_start_has_failed_with_is_told_to_whoever_waits(world: World) -> None:
    """The thread that waits for the job is not the one that starts it."""
    world.sink.fence_errors = [ValueError("no")]
    engine = world.engine()
    with pytest.raises(ValueError, match="no"):
        engine.start()
    with pytest.raises(ValueError, match="no"):
        engine.await_termination(WAIT_S)
    assert isinstance(engine.error, ValueError)


def test_a_job_that_was_never_started_is_stopped_at_once(world: World) -> None:
    assert not world.engine().stop()

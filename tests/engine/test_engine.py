"""The life of a job, over a host in memory: start, restart, stop, and what is told of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn
from unittest import mock

import pytest

from tests.engine.conftest import WAIT_S, Failing, Held, Watched, World
from twophase.contract.sink import SinkContext
from twophase.engine.engine import Engine
from twophase.errors import ConfigError, FencedError, PreflightError, StopJobError
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    CheckpointTriggered,
    Event,
    JobRestarting,
    JobStopped,
    RecoveryStarted,
)
from twophase.internals.redaction import REDACTED, VARIABLE
from twophase.state.files.event_file import EventFile, read_events
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage, UnclearOutcomeError
from twophase.testing.plain_host import Done, Task

FIXED = {"restart.strategy": "fixed", "restart.attempts": 2, "restart.delay": "1 ms"}


# -- start -----------------------------------------------------------------------------------------


def test_every_row_arrives_once_over_several_engines(world: World) -> None:
    world.run(2)
    world.run(3)
    assert world.has_all(3)
    assert [event.cause for event in world.of(JobStopped)] == ["", ""]
    assert world.sink.closed == 2


def test_h57_a_second_job_on_the_folder_is_refused_while_the_first_runs(world: World) -> None:
    first = world.engine(forever=True)
    first.start()
    second = world.engine()
    with pytest.raises(ConfigError, match="'orders' already runs on"):
        second.start()
    assert not second.is_active
    assert second.stop(WAIT_S)
    assert first.is_active
    assert first.stop(WAIT_S)
    world.run(3)
    assert world.has_all(3)


def test_a_start_that_failed_has_no_claim_on_the_folder(world: World) -> None:
    with pytest.raises(PreflightError):
        world.engine(sinks={"facts": Refusing(world.target)}).start()
    world.run(1)
    assert world.has_all(1)


class Refusing(Watched):
    def open(self, context: SinkContext) -> NoReturn:
        raise PreflightError("not this one")


def test_a_sink_that_cannot_be_opened_closes_the_others(world: World) -> None:
    engine = world.engine(sinks={"facts": world.sink, "lake": Refusing(world.target)})
    with pytest.raises(PreflightError, match="not this one"):
        engine.start()
    assert world.sink.closed == 1
    assert not engine.is_active
    assert world.history().generation == 0


def test_h51_two_sinks_on_one_target_are_refused_and_closed(world: World) -> None:
    copy = Watched(world.target)
    with pytest.raises(ConfigError, match="'facts' and 'copy' write to one target"):
        world.engine(sinks={"facts": world.sink, "copy": copy}).start()
    assert [world.sink.closed, copy.closed] == [1, 1]
    world.run(3)
    assert world.has_all(3), "one sink writes what both would have"


def test_a_sink_is_opened_once_however_often_the_job_restarts(world: World) -> None:
    engine = world.engine(workers=Failing(OSError("1"), OSError("2")), options=FIXED)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.sink.closed == 1


FOR_EVER = str(2**63 - 1)
FLINKS = {
    "execution.checkpointing.timeout": FOR_EVER,
    "restart.strategy": "fixed",
    "restart-strategy.fixed-delay.attempts": 2,
    "restart-strategy.fixed-delay.delay": FOR_EVER,
    "commit.backoff_max": f"{FOR_EVER} ms",
}


def test_a_job_with_the_longest_times_of_flink_runs_waits_and_stops(world: World) -> None:
    engine = world.engine(options=FLINKS)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    engine = world.engine(4, workers=Failing(OSError("1")), options=FLINKS)
    engine.start()
    assert not engine.await_termination(0.5)
    assert [event.restart for event in world.of(JobRestarting)] == [1]
    assert engine.is_active
    assert engine.stop(WAIT_S)


# -- restart ---------------------------------------------------------------------------------------


def test_a_failed_run_starts_again_as_often_as_the_strategy_says(world: World) -> None:
    errors = [OSError("1"), OSError("2"), OSError("3")]
    engine = world.engine(workers=Failing(*errors), options=FIXED)
    engine.start()
    with pytest.raises(OSError, match="3"):
        engine.await_termination(WAIT_S)
    assert engine.error is errors[2]
    told = world.of(JobRestarting)
    assert [(event.restart, event.delay_s) for event in told] == [(1, 0.001), (2, 0.001)]
    assert [event.cause for event in world.of(JobStopped)] == ["3"]
    world.run(3)
    assert world.has_all(3)


def test_a_restart_goes_on_where_the_failed_run_was(world: World) -> None:
    engine = world.engine(workers=Failing(OSError("once")), options=FIXED)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    assert [event.generation for event in world.of(RecoveryStarted)] == [1, 2]


def test_an_error_that_no_restart_resolves_ends_the_job(world: World) -> None:
    engine = world.engine(workers=Failing(StopJobError("look at it")), options=FIXED)
    engine.start()
    with pytest.raises(StopJobError, match="look at it"):
        engine.await_termination(WAIT_S)
    assert world.of(JobRestarting) == []


def test_i7_a_fenced_driver_is_not_restarted(world: World) -> None:
    def overtaken() -> None:
        world.sink.before_commit = lambda: None
        world.overtake()

    world.sink.before_commit = overtaken
    engine = world.engine(options=FIXED)
    engine.start()
    with pytest.raises(FencedError):
        engine.await_termination(WAIT_S)
    assert world.of(JobRestarting) == []
    assert world.history().generation == 2


def test_i7_a_rival_that_comes_between_two_runs_fences_the_restart(world: World) -> None:
    def overtake(event: Event) -> None:
        if isinstance(event, JobRestarting):
            world.overtake()

    engine = world.engine(workers=Failing(OSError("once")), options=FIXED)
    engine.observers.add(overtake)
    engine.start()
    with pytest.raises(FencedError):
        engine.await_termination(WAIT_S)
    assert len(world.of(JobRestarting)) == 1


def test_a_restart_does_not_take_its_own_fence_for_a_rival_s(world: World) -> None:
    """The recovery of the first restart fails behind its fence in the log."""

    def break_once(event: Event) -> None:
        if isinstance(event, JobRestarting):
            world.sink.fence_errors = [ConnectionError("gone")] if event.restart == 1 else []

    engine = world.engine(workers=Failing(OSError("once")), options=FIXED)
    engine.observers.add(break_once)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    assert [event.restart for event in world.of(JobRestarting)] == [1, 2]
    assert [event.generation for event in world.of(RecoveryStarted)] == [1, 2, 3]


def test_a_restart_whose_own_fence_is_unclear_takes_no_fence_for_a_rival_s(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is there, and the folder could not be synced: nobody knows whether it is."""

    def break_once(event: Event) -> None:
        if isinstance(event, JobRestarting) and event.restart == 1:
            monkeypatch.setattr(LocalStorage, "create", unclear)

    create = LocalStorage.create

    def unclear(storage: LocalStorage, name: str, *given: Any) -> None:
        create(storage, name, *given)
        monkeypatch.undo()
        raise UnclearOutcomeError(name)

    engine = world.engine(workers=Failing(OSError("once")), options=FIXED)
    engine.observers.add(break_once)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    restarts = [event.cause for event in world.of(JobRestarting)]
    assert len(restarts) == 2
    assert "unknown" in restarts[1]
    assert world.history().generation == 3


# -- stop ------------------------------------------------------------------------------------------


def test_a_stop_before_the_start_lets_no_micro_batch_begin(world: World) -> None:
    engine = world.engine()
    assert not engine.stop(0)
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.of(CheckpointTriggered) == []
    assert world.visible() == []
    world.run(3)
    assert world.has_all(3)


def test_a_stop_in_a_micro_batch_does_not_count_it_as_done(world: World) -> None:
    held = Held()
    engine = world.engine(workers=held)
    engine.start()
    assert held.began.wait(WAIT_S)
    assert engine.stop(WAIT_S)
    assert engine.error is None
    assert world.visible() == []
    assert world.finished() == [-1]
    assert [event.cause for event in world.of(JobStopped)] == [""]
    world.run(3)
    assert world.has_all(3)


def test_a_stop_between_two_runs_ends_the_job(world: World) -> None:
    """The delay before the restart is an hour; the stop ends it."""
    restarting = threading.Event()

    def notice(event: Event) -> None:
        if isinstance(event, JobRestarting):
            restarting.set()

    options = FIXED | {"restart.delay": "1 h"}
    engine = world.engine(workers=Failing(OSError("once")), options=options)
    engine.observers.add(notice)
    engine.start()
    assert restarting.wait(WAIT_S)
    assert engine.is_active
    assert engine.stop(WAIT_S)
    assert engine.error is None
    assert len(world.of(CheckpointTriggered)) == 1
    assert [event.cause for event in world.of(JobStopped)] == [""]


def test_a_stop_with_a_timeout_says_whether_the_job_has_ended(world: World) -> None:
    committing, answer = threading.Event(), threading.Event()

    def hold() -> None:
        committing.set()
        assert answer.wait(WAIT_S)

    world.sink.before_commit = hold
    engine = world.engine()
    engine.start()
    assert committing.wait(WAIT_S)
    assert not engine.stop(0.05)
    assert engine.is_active
    answer.set()
    assert engine.stop(WAIT_S)
    assert world.has_all(1)


def test_a_job_that_has_ended_is_stopped_at_once_and_told_of_once(world: World) -> None:
    engine = world.engine()
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert engine.stop()
    assert engine.stop(0)
    assert len(world.of(JobStopped)) == 1
    assert world.sink.closed == 1


def test_a_stop_after_the_batch_decides_it_and_begins_no_other(world: World) -> None:
    held = Held()
    engine = world.engine(workers=held)
    engine.start()
    assert held.began.wait(WAIT_S)
    stopping = threading.Thread(target=stop_after_batch, args=[engine])
    stopping.start()
    wait_for_the_gate(engine)
    held.let_go()
    stopping.join(WAIT_S)
    assert not engine.is_active
    assert engine.error is None
    assert world.has_all(1)
    assert world.finished() == [0]
    assert len(world.of(CheckpointTriggered)) == 1


def test_a_job_has_not_ended_for_others_before_the_block_after_its_stop_has(world: World) -> None:
    """A program whose main thread awaits the job would end without its savepoint."""
    engine = world.engine(forever=True)
    engine.start()
    with engine.stopped_after_batch():
        assert not engine.is_active
        assert not engine.await_termination(0)
    assert engine.await_termination(0)


def test_a_sink_that_cannot_be_closed_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All is decided and committed; the savepoint that the job is stopped for is still to come."""
    closing = mock.Mock(side_effect=ConnectionError("broken pipe"))
    monkeypatch.setattr("tests.engine.conftest._OpenWatched.close", closing)
    engine = world.engine(forever=True)
    engine.start()
    with engine.stopped_after_batch():
        saved = True
    assert saved
    assert closing.called
    assert engine.await_termination(0)
    assert engine.error is None
    assert "sink facts could not be closed: broken pipe" in caplog.text


def test_a_stop_after_the_batch_raises_what_ended_the_job_instead(world: World) -> None:
    held = HeldThenFailing()
    engine = world.engine(workers=held)
    engine.start()
    assert held.began.wait(WAIT_S)
    raised: list[BaseException] = []

    def stop() -> None:
        try:
            stop_after_batch(engine)
        except StopJobError as error:
            raised.append(error)

    stopping = threading.Thread(target=stop)
    stopping.start()
    wait_for_the_gate(engine)
    held.let_go()
    stopping.join(WAIT_S)
    assert [str(error) for error in raised] == ["look at it"]


class HeldThenFailing(Held):
    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        super().run(tasks, timeout_s, stopping, done)
        raise StopJobError("look at it")


def stop_after_batch(engine: Engine) -> None:
    with engine.stopped_after_batch():
        pass


def wait_for_the_gate(engine: Engine) -> None:
    run = engine._run
    assert run is not None
    deadline_s = time.monotonic() + WAIT_S
    while not run.gate._closed:
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_checkpoints_that_are_not_committed_are_kept(world: World) -> None:
    """The job is stopped while its sink does not take the commit."""
    asked = threading.Event()

    def refuse() -> None:
        asked.set()
        raise ConnectionError("not now")

    world.sink.before_commit = refuse
    engine = world.engine(options={"commit.backoff": "1 ms"})
    engine.start()
    assert asked.wait(WAIT_S)
    assert engine.stop(WAIT_S)
    assert len(world.history().uncommitted()) == 1
    world.sink.before_commit = lambda: None
    world.run(3)
    assert world.has_all(3)


def test_a_stop_waits_for_the_queued_commits(world: World) -> None:
    """With commits behind the next micro-batch, those that are decided are committed first."""
    going_on = threading.Event()
    world.sink.before_commit = lambda: going_on.wait(WAIT_S)
    engine = world.engine(options={"checkpoint.max_concurrent": 3})
    engine.start()
    assert not engine.await_termination(0.05)
    going_on.set()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    assert world.history().uncommitted() == []


# -- the file of events ----------------------------------------------------------------------------


def keep_events(world: World, engine: Engine) -> list[Event]:
    """As a job does; return what the file has."""
    engine.observers.add(EventFile(engine.storage, engine.clock))
    engine.start()
    assert engine.await_termination(WAIT_S)
    return [past.event for past in read_events(ReadOnlyStorage(world.folder)) if past]


def test_the_folder_keeps_what_has_happened(world: World) -> None:
    found = keep_events(world, world.engine(2, Failing(OSError("boom")), options=FIXED))
    committed = [event for event in found if isinstance(event, CheckpointCommitted)]
    assert [event.checkpoint for event in committed] == [0, 1]
    assert [event.cause for event in found if isinstance(event, JobRestarting)] == ["boom"]
    assert [type(found[0]), type(found[-1])] == [RecoveryStarted, JobStopped]


@pytest.mark.parametrize("broken", ["append", "names"])
def test_a_file_of_events_that_cannot_be_written_declines_nothing(
    world: World, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, real = world.engine(3), getattr(LocalStorage, broken)

    def fail(storage: LocalStorage, name: str, *rest: Any) -> Any:
        if name.startswith("events"):
            raise OSError("no space")
        return real(storage, name, *rest)

    monkeypatch.setattr(LocalStorage, broken, fail)
    caplog.set_level("WARNING", "twophase")
    engine.observers.add(EventFile(engine.storage, engine.clock))
    engine.start()
    assert engine.await_termination(WAIT_S)
    assert world.has_all(3)
    assert not world.of(CheckpointDeclined)
    assert caplog.text.count("Events are not kept") == 1


def test_a_start_that_fails_is_told_from_its_fence_on(world: World) -> None:
    """Before, the folder may be another job's."""
    with pytest.raises(PreflightError):
        world.engine(sinks={"facts": Refusing(world.target)}).start()
    assert not world.of(JobStopped)
    world.sink.fence_errors = [StopJobError("gone")]
    with pytest.raises(StopJobError):
        world.engine().start()
    (stopped,) = world.of(JobStopped)
    assert "gone" in stopped.cause
    world.run(3)
    assert world.has_all(3)


def test_what_others_raise_is_not_told_where_rows_are_redacted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    engine = world.engine(2, Failing(OSError("canary")), options=FIXED)
    assert "canary" not in str(keep_events(world, engine))
    assert [event.cause for event in world.of(JobRestarting)] == [REDACTED]

"""What a refusal of the product says is what the operator does."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    GoOn,
    HalfRewound,
    Observed,
    Refusal,
    RewindUnfinished,
)
from twophase.coordinator.recovery.refusal import refused
from twophase.errors import TwoPhaseError
from twophase.events import Observers
from twophase.options.job_options import SinkAhead
from twophase.state.journal.entries import Rewinding
from twophase.state.journal.history import History
from verification.simulation.decisions import Decision
from verification.simulation.ending import ACCEPT, FORK, Command
from verification.simulation.operators import Operator
from verification.simulation.repairs import ABANDON, ADOPT
from verification.simulation.saved import SavedOnes
from verification.simulation.savepoints import FINISH

OLDER, NEWER, JOB, OTHER = "/data/job/chk/a-0-1.1", "/data/job/chk/a-1-1.2", "/data/job", "/data/x"


class _Oracle(SimpleNamespace):
    """Two checkpoints are decided."""

    def __init__(self, rewinding: dict[str, str]) -> None:
        super().__init__(decided={}, saved=SavedOnes(rewinding=rewinding))

    def known(self) -> list[Decision]:
        return [
            Decision(f"{JOB}/log/1", f"{path}/_metadata", "a", number, (1, 1), number, ())
            for number, path in enumerate((OLDER, NEWER))
        ]

    def holds(self, condition: bool, what: str) -> None:
        assert condition, what


@pytest.fixture
def operator() -> Any:
    """In the job's folder; a rewind to the older checkpoint has begun in another."""
    world: Any = SimpleNamespace(options=SimpleNamespace(seed=1), oracle=_Oracle({OTHER: OLDER}))
    drivers: Any = mock.Mock(folder=JOB, restore_path=None)
    return Operator(world, drivers, mock.Mock(), lambda: None)


def error_of(why: Refusal) -> TwoPhaseError:
    observed = Observed("orders", History(), {})
    context: Any = SimpleNamespace(job="orders", options=SimpleNamespace(checkpoint_location=JOB))
    return refused(why, observed, GoOn(), context, lambda *_: ())


def done(operator: Any, label: str, error: TwoPhaseError, command: Command | None = None) -> Any:
    """Do what an error says; return what the operator runs, or restores."""
    with mock.patch.multiple(operator, _run=mock.DEFAULT, _restore=mock.DEFAULT) as acts:
        operator._ways(error, command)[label]()
    [call] = [act.call_args for act in acts.values() if act.called]
    return call.args


def test_a_rewind_is_finished_with_the_path_that_the_refusal_names(operator: Any) -> None:
    error = error_of(RewindUnfinished(Rewinding(OLDER, {})))
    assert operator._ways(error).keys() == {"way: finish", f"way: {ABANDON}"}
    assert done(operator, "way: finish", error) == (OLDER, "rewind")


def test_a_path_that_was_never_there_is_a_violation(operator: Any) -> None:
    with pytest.raises(AssertionError, match="nothing was ever at /data/job/chk/b"):
        operator._ways(error_of(RewindUnfinished(Rewinding("/data/job/chk/b-0-1.1", {}))))


@pytest.mark.parametrize("why", [HalfRewound("facts"), DriverMissed("facts", 3)])
def test_a_rewind_that_has_died_elsewhere_is_repeated_here_or_given_up(
    operator: Any, why: Refusal
) -> None:
    error = error_of(why)
    assert done(operator, "way: finish", error) == (OLDER, "rewind")
    assert done(operator, f"way: {ABANDON}", error) == (Command(ABANDON, JOB, begun_in=OTHER),)


def test_what_a_refused_command_names_is_done_and_not_the_command_again(operator: Any) -> None:
    error = error_of(DriverMissed("facts", 3))
    accept, adopt = Command(ACCEPT, JOB, "", 1, "facts"), Command(ADOPT, JOB)
    assert done(operator, f"way: {ADOPT}", error, accept) == (adopt,)
    assert f"way: {ADOPT}" not in operator._ways(error, adopt)


def test_what_a_fork_lacks_is_given_up_for_it_or_left_to_the_first_job(operator: Any) -> None:
    saved, checkpoint = "/data/saved1", cast("Any", SimpleNamespace(job="orders", checkpoint=1))
    loop = CommitLoop({}, Observers(), mock.Mock(), threading.Event(), 1, 1)
    says = loop.over({}, saved, SinkAhead.FORK)._ways_on(checkpoint, "facts")
    error, fork = TwoPhaseError("lost.", remedy=says), Command(FORK, "/data/fork1", saved)
    accept = replace(fork, verb=ACCEPT, checkpoint=1, sink="facts", sink_ahead="fork")
    assert done(operator, f"way: {ACCEPT}", error, fork) == (accept,)
    assert done(operator, f"way: {FINISH}", error, fork) == (Command(FINISH, JOB, saved),)


@pytest.mark.parametrize("living", [[], ["a driver"]], ids=["nobody lives", "somebody lives"])
def test_a_command_is_run_again_after_what_is_done_by_hand(
    operator: Any, living: list[str]
) -> None:
    """Nothing is deleted before it is said again when nobody writes any more."""
    error = TwoPhaseError(
        "checkpoint 1 of lineage a is committed in facts.", remedy="delete its rows and proofs."
    )
    operator._drivers.living.return_value = living
    command, deleted = Command(ADOPT, JOB), "verification.simulation.operators.delete_checkpoint"
    with mock.patch(deleted) as delete:
        assert done(operator, "way: delete by hand", error, command) == (command,)
    assert delete.called != operator._drivers.end_all.called == bool(living)
    assert living or delete.call_args.args[1:] == ("a", 1)

"""The life of an attempt, as a table: what it may do, and above all what it may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.coordinator.commit.state_machine import TRANSITIONS, Action, Phase, Signal, step

FINAL = {Phase.IN_DOUBT, Phase.COMMITTED, Phase.ABORTED, Phase.STOPPED}
DECIDED = {Phase.DECIDED, Phase.COMMITTED}
UNDECIDED = {Phase.PENDING, Phase.ACKNOWLEDGED, Phase.DECIDING, Phase.DECLINED}


def reachable(start: Phase) -> set[Phase]:
    """All phases that `start` can come to, itself included."""
    found, open_ = {start}, [start]
    while open_:
        here = open_.pop()
        new = {after for (phase, _), (after, _) in TRANSITIONS.items() if phase is here} - found
        found |= new
        open_ += new
    return found


def rows(phase: Phase) -> Iterator[tuple[Signal, Phase, Action]]:
    return (
        (signal, after, action)
        for (found, signal), (after, action) in TRANSITIONS.items()
        if found is phase
    )


def test_every_phase_can_be_reached() -> None:
    assert reachable(Phase.PENDING) == set(Phase)


def test_every_signal_and_every_action_is_used() -> None:
    assert {signal for _, signal in TRANSITIONS} == set(Signal)
    assert {action for _, action in TRANSITIONS.values()} == set(Action)


def test_every_phase_is_either_final_or_has_a_way_on() -> None:
    assert {phase for phase in Phase if not list(rows(phase))} == FINAL
    assert all(reachable(phase) & FINAL for phase in Phase)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("signal", Signal)
def test_a_signal_is_answered_as_the_table_says_or_is_a_defect(
    phase: Phase, signal: Signal
) -> None:
    expected = TRANSITIONS.get((phase, signal))
    if expected is None:
        with pytest.raises(
            AssertionError, match=f"^{signal.name} cannot occur in phase {phase.name}$"
        ):
            step(phase, signal)
    else:
        assert step(phase, signal) == expected


def test_a_timeout_or_a_refusal_may_come_at_any_time_before_the_end() -> None:
    for phase in set(Phase) - FINAL:
        assert {Signal.EXPIRED, Signal.DECLINED} <= {signal for signal, _, _ in rows(phase)}


def test_an_acknowledgement_may_come_late() -> None:
    assert step(Phase.DECLINED, Signal.ACKNOWLEDGED) == (Phase.DECLINED, Action.IGNORE)
    assert step(Phase.DECLINED, Signal.ALL_ACKNOWLEDGED) == (Phase.DECLINED, Action.IGNORE)


def test_i2_a_decided_checkpoint_never_aborts() -> None:
    for phase in DECIDED:
        assert not reachable(phase) & {Phase.DECLINED, Phase.ABORTED}
        assert Action.ABORT not in {action for _, _, action in rows(phase)}


def test_i1_nothing_commits_before_the_decision_is_written() -> None:
    entering = [
        (phase, signal)
        for (phase, signal), (after, _) in TRANSITIONS.items()
        if after is Phase.DECIDED
    ]
    assert [found for found in entering if found[0] is not Phase.DECIDED] == [
        (Phase.DECIDING, Signal.WRITTEN)
    ]
    for phase in UNDECIDED:
        assert all(
            after is Phase.DECIDED for _, after, action in rows(phase) if action is Action.COMMIT
        )


def test_i3_what_is_declined_never_commits() -> None:
    assert not reachable(Phase.DECLINED) & DECIDED


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.ACKNOWLEDGED])
def test_until_the_decision_is_tried_the_attempt_may_expire_and_be_declined(phase: Phase) -> None:
    for signal in (Signal.EXPIRED, Signal.DECLINED):
        assert step(phase, signal) == (Phase.DECLINED, Action.ABORT)


def test_from_the_moment_the_decision_is_tried_the_attempt_can_neither_expire_nor_be_declined() -> (
    None
):
    for signal in (Signal.EXPIRED, Signal.DECLINED):
        assert step(Phase.DECIDING, signal) == (Phase.DECIDING, Action.IGNORE)


def test_h21_an_attempt_in_doubt_has_no_way_on_and_stops() -> None:
    assert list(rows(Phase.IN_DOUBT)) == []
    assert step(Phase.DECIDING, Signal.UNCLEAR) == (Phase.IN_DOUBT, Action.STOP)


def test_i7_a_fenced_driver_stops_and_neither_commits_nor_aborts() -> None:
    fenced = [outcome for (_, signal), outcome in TRANSITIONS.items() if signal is Signal.FENCED]
    assert set(fenced) == {(Phase.STOPPED, Action.STOP)}


@given(st.lists(st.sampled_from(Signal), max_size=30))
def test_no_sequence_of_signals_commits_and_aborts_one_attempt(signals: list[Signal]) -> None:
    phase, actions = Phase.PENDING, set()
    for signal in signals:
        if (phase, signal) in TRANSITIONS:
            phase, action = step(phase, signal)
            actions.add(action)
    assert not {Action.COMMIT, Action.ABORT} <= actions
    assert not {Action.SUBSUME, Action.ABORT} <= actions

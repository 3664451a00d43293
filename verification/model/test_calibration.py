"""The checker counts what everybody counts, and finds what is there to be found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.model.explore import STUCK, Specification, Transition, explore
from verification.model.lamport import tcommit, twophase


def test_tcommit_with_three_managers_has_34_states() -> None:
    found = explore(tcommit(3))
    assert (found.states, found.complete, found.violation) == (34, True, None)


def test_twophase_with_three_managers_has_288_states() -> None:
    found = explore(twophase(3))
    assert (found.states, found.complete, found.violation) == (288, True, None)


def count(limit: int, *, jump: bool = False) -> Specification[int]:
    """0, 1, ... up to `limit`; a jump goes from 1 to 100, where nothing goes on, by a fault."""

    def transitions(state: int) -> Iterator[Transition[int]]:
        if state < limit:
            yield Transition(("increment", state), state + 1)
        if jump and state == 1:
            yield Transition(("jump", state), 100, fault=True)

    return Specification(
        [0],
        transitions,
        {"below 5": lambda state: state < 5 or state == 100},
        lambda state: state == 4,
    )


def test_the_first_violation_has_a_shortest_trace() -> None:
    found = explore(count(10))
    assert found.violation is not None
    assert found.violation.claim == "below 5"
    assert [state for _, state in found.violation.trace] == [0, 1, 2, 3, 4, 5]
    assert [label for label, _ in found.violation.trace] == [
        (),
        *(("increment", state) for state in range(5)),
    ]


def test_a_state_from_which_the_goal_is_out_of_reach_is_found() -> None:
    found = explore(count(4, jump=True))
    assert found.violation is not None
    assert found.violation.claim == STUCK
    assert [state for _, state in found.violation.trace] == [0, 1, 100]


def test_nobody_may_count_on_a_fault_to_reach_the_goal() -> None:
    way_out = Specification(
        [0], lambda state: [Transition(("fault",), 1, fault=True)] if state == 0 else [], {}, bool
    )
    found = explore(way_out)
    assert found.violation is not None
    assert found.violation.trace == (((), 0),)


def test_a_goal_that_can_always_be_reached_is_no_violation() -> None:
    assert explore(count(4)).violation is None


@pytest.mark.parametrize("limit", [1, 3])
def test_a_bounded_exploration_says_that_it_is_not_complete(limit: int) -> None:
    found = explore(count(4), limit)
    assert (found.states, found.complete) == (limit, False)

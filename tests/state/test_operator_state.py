"""Redistribution of operator state, for any parallelism p before and q after."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.protocol.operator_state import Redistribution
from twophase.state.operator_state import redistribute

STATES = st.lists(st.lists(st.integers(), max_size=8), max_size=8)
PARALLELISM = st.integers(1, 12)
SPLIT, UNION, BROADCAST = Redistribution.SPLIT, Redistribution.UNION, Redistribution.BROADCAST


def flat(states: list[list[int]]) -> list[int]:
    return [entry for state in states for entry in state]


@given(STATES, PARALLELISM)
def test_split_hands_every_entry_to_exactly_one_subtask(states: list[list[int]], q: int) -> None:
    assert Counter(flat(redistribute(SPLIT, states, q))) == Counter(flat(states))


@given(STATES, PARALLELISM)
def test_split_keeps_the_order_of_entries(states: list[list[int]], q: int) -> None:
    assert flat(redistribute(SPLIT, states, q)) == flat(states)


@given(STATES, PARALLELISM)
def test_split_is_even_within_one_entry(states: list[list[int]], q: int) -> None:
    sizes = [len(state) for state in redistribute(SPLIT, states, q)]
    assert len(sizes) == q
    assert max(sizes) - min(sizes) <= 1


@given(STATES, PARALLELISM, PARALLELISM)
def test_split_twice_is_split_once(states: list[list[int]], q: int, between: int) -> None:
    assert redistribute(SPLIT, redistribute(SPLIT, states, between), q) == redistribute(
        SPLIT, states, q
    )


@given(STATES, PARALLELISM)
def test_union_hands_all_entries_to_every_subtask_in_their_order(
    states: list[list[int]], q: int
) -> None:
    assert redistribute(UNION, states, q) == [flat(states)] * q


@given(st.lists(st.integers(), max_size=8), PARALLELISM, PARALLELISM)
def test_broadcast_hands_the_one_state_to_every_subtask(state: list[int], p: int, q: int) -> None:
    assert redistribute(BROADCAST, [state] * p, q) == [state] * q


@given(PARALLELISM)
def test_broadcast_of_nothing_is_empty_everywhere(q: int) -> None:
    assert redistribute(BROADCAST, [], q) == [[]] * q


@given(STATES.filter(lambda states: any(state != states[0] for state in states)), PARALLELISM)
def test_broadcast_states_that_differ_are_refused(states: list[list[int]], q: int) -> None:
    with pytest.raises(ValueError, match="broadcast state differs between subtasks"):
        redistribute(BROADCAST, states, q)


@given(STATES, PARALLELISM)
def test_subtasks_do_not_share_their_lists(states: list[list[int]], q: int) -> None:
    for scheme in (SPLIT, UNION):
        found = redistribute(scheme, states, q)
        assert len({id(state) for state in found}) == q
        assert not {id(state) for state in found} & {id(state) for state in states}


@pytest.mark.parametrize("q", [0, -1])
@pytest.mark.parametrize("scheme", list(Redistribution))
def test_a_parallelism_below_one_is_refused(scheme: Redistribution, q: int) -> None:
    with pytest.raises(ValueError, match=f"parallelism {q} is less than 1"):
        redistribute(scheme, [[1]], q)

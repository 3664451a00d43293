"""Calibration: Lamport's `TCommit` and `TwoPhase` with the same checker, and the counts
that everybody gets.

Gray and Lamport, "Consensus on Transaction Commit", section 3 and the TLA+ modules TCommit and
TwoPhase. With three resource managers TLC reports 34 distinct states for TCommit and 288 for
TwoPhase. A checker that visits too few states or takes two for one would give other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from verification.model.explore import Specification, Transition

WORKING, PREPARED, COMMITTED, ABORTED = "working", "prepared", "committed", "aborted"
INIT = "init"
COMMIT, ABORT = "Commit", "Abort"

Managers = tuple[str, ...]


class Commit(NamedTuple):
    """The variables of TwoPhase.

    Attributes:
        managers: rmState.
        coordinator: tmState.
        heard: tmPrepared, the managers that the coordinator knows to be prepared.
        messages: msgs: the managers that have sent Prepared, and what the coordinator has sent.
    """

    managers: Managers
    coordinator: str
    heard: frozenset[int]
    messages: frozenset[int | str]


def is_consistent(managers: Managers) -> bool:
    """TCConsistent: no two managers come to opposite ends."""
    return not {COMMITTED, ABORTED} <= set(managers)


def tcommit(managers: int) -> Specification[Managers]:
    """Transaction commit as its problem is stated, without messages."""
    return Specification([(WORKING,) * managers], _tcommit, {"TCConsistent": is_consistent})


def twophase(managers: int) -> Specification[Commit]:
    """Two-phase commit: one coordinator, messages that are never lost nor taken away."""
    first = Commit((WORKING,) * managers, INIT, frozenset(), frozenset())
    return Specification(
        [first], _twophase, {"TCConsistent": lambda state: is_consistent(state.managers)}
    )


def _tcommit(states: Managers) -> Iterator[Transition[Managers]]:
    for manager, state in enumerate(states):
        if state == WORKING:
            yield Transition(("Prepare", manager), _with(states, manager, PREPARED))
        if state == PREPARED and set(states) <= {PREPARED, COMMITTED}:
            yield Transition(("DecideC", manager), _with(states, manager, COMMITTED))
        if state in (WORKING, PREPARED) and COMMITTED not in states:
            yield Transition(("DecideA", manager), _with(states, manager, ABORTED))


def _twophase(state: Commit) -> Iterator[Transition[Commit]]:
    return chain(
        _coordinator(state), *(_manager(state, manager) for manager in range(len(state.managers)))
    )


def _coordinator(state: Commit) -> Iterator[Transition[Commit]]:
    if state.coordinator != INIT:
        return
    if len(state.heard) == len(state.managers):
        yield Transition(
            ("TMCommit",), state._replace(coordinator=COMMITTED, messages=state.messages | {COMMIT})
        )
    yield Transition(
        ("TMAbort",), state._replace(coordinator=ABORTED, messages=state.messages | {ABORT})
    )
    for manager in range(len(state.managers)):
        if manager in state.messages:
            yield Transition(
                ("TMRcvPrepared", manager), state._replace(heard=state.heard | {manager})
            )


def _manager(state: Commit, manager: int) -> Iterator[Transition[Commit]]:
    def becomes(to: str) -> Managers:
        return _with(state.managers, manager, to)

    if state.managers[manager] == WORKING:
        prepared = state._replace(managers=becomes(PREPARED), messages=state.messages | {manager})
        yield Transition(("RMPrepare", manager), prepared)
        yield Transition(("RMChooseToAbort", manager), state._replace(managers=becomes(ABORTED)))
    if COMMIT in state.messages:
        yield Transition(("RMRcvCommitMsg", manager), state._replace(managers=becomes(COMMITTED)))
    if ABORT in state.messages:
        yield Transition(("RMRcvAbortMsg", manager), state._replace(managers=becomes(ABORTED)))


def _with(states: Managers, manager: int, state: str) -> Managers:
    return (*states[:manager], state, *states[manager + 1 :])

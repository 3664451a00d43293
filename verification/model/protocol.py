"""The protocol as a specification: the first state, everything that can happen next, what must
hold, and the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from verification.model import (
    checkpoint,
    closing,
    log,
    recovery,
    repairs,
    savepoints,
    sinks,
    steps,
    targets,
)
from verification.model.explore import Specification, Transition
from verification.model.faults import faults
from verification.model.invariants import INVARIANTS, is_settled
from verification.model.pieces import Sink
from verification.model.state import Driver, State
from verification.model.world import NOTHING_GOES_WRONG, World

Actions = Callable[[World, State, Driver], Iterator[Transition[State]]]

_DRIVER: dict[str, Actions] = {
    **dict.fromkeys((steps.REMEMBER, steps.READ, steps.FENCE), recovery.starting),
    **dict.fromkeys((steps.APPEND_WRITE, steps.APPEND_SYNC, steps.APPEND_CHECK), log.appending),
    **dict.fromkeys((steps.SCAN, steps.ABORT, steps.FINAL_SCAN, steps.FINAL_ABORT), closing.close),
    **dict.fromkeys((steps.END_SESSIONS, steps.RAISE, steps.END_SESSIONS_AGAIN), closing.close),
    **dict.fromkeys((steps.RECOVERED, steps.LINEAGE), recovery.begin_lineage),
    **dict.fromkeys((steps.SWEEP, steps.SWEEP_ABORT), checkpoint.sweep),
    **dict.fromkeys(
        (steps.REPAIR, steps.WRITE_AGAIN, steps.WRITING_AGAIN, steps.REPAIRED), repairs.repair
    ),
    steps.IDLE: checkpoint.idle,
    steps.RUNNING: checkpoint.running,
    steps.DELETE: log.deleting,
    steps.COLLAPSE: checkpoint.collapse,
    **dict.fromkeys((steps.AHEAD, steps.AHEAD_FIRST), checkpoint.commit_ahead),
    steps.REWINDING: savepoints.begin_rewind,
    steps.REWIND: savepoints.rewind,
    steps.FORK: savepoints.fork,
}
_COMMITS_BEHIND = frozenset(
    {steps.RUNNING, *(step for step, act in _DRIVER.items() if act is closing.close)}
)


def first_state(world: World) -> State:
    """Nothing was ever started; or, with a head start, only the first driver was, and is idle
    after one checkpoint.
    """
    nothing = State((), tuple(Sink() for _ in world.servers), (), (), NOTHING_GOES_WRONG)
    return (_head_start(world, nothing) if world.head_start else nothing)._replace(
        budget=world.budget
    )


def _head_start(world: World, state: State) -> State:
    correct = replace(world, mistake=None)
    while not (
        state.drivers and isinstance(first := state.drivers[0], Driver) and _is_through(first)
    ):
        state = next(transitions(correct, state)).state
    return state


def _is_through(driver: Driver) -> bool:
    return (
        driver.step == steps.IDLE
        and bool(driver.history.decisions)
        and driver.history.decisions[-1].committed
    )


def driver_transitions(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """What one driver can do next."""
    if driver.folder:
        for transition in _driver_transitions(world, targets.swapped(state), driver):
            yield transition._replace(state=targets.swapped(transition.state))
    else:
        yield from _driver_transitions(world, state, driver)


def _driver_transitions(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    act = _DRIVER.get(driver.step)
    if act is not None:
        yield from act(world, state, driver)
    if driver.step in (steps.RECOMMIT, steps.IDLE, steps.REPLAY) or (
        world.max_concurrent > 1
        and driver.step in _COMMITS_BEHIND
        and driver.then in ("", steps.IDLE, steps.ENDED)
    ):
        yield from checkpoint.commit(world, state, driver)


def transitions(world: World, state: State) -> Iterator[Transition[State]]:
    """Everything that can happen next."""
    for driver in state.drivers:
        if isinstance(driver, Driver):
            yield from driver_transitions(world, state, driver)
    yield from sinks.tasks(world, state)
    yield from recovery.starts(world, state)
    yield from repairs.starts(state)
    yield from savepoints.makes(world, state)
    yield from savepoints.starts(world, state)
    yield from faults(world, state)


def specification(world: World) -> Specification[State]:
    """What is checked of a world."""
    return Specification(
        initial=[first_state(world)],
        transitions=lambda state: transitions(world, state),
        invariants={name: _bound(holds, world) for name, holds in INVARIANTS.items()},
        goal=lambda state: is_settled(world, state),
    )


def _bound(holds: Callable[[World, State], bool], world: World) -> Callable[[State], bool]:
    return lambda state: holds(world, state)

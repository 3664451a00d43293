"""A job that is stopped gives its checkpoints up (`checkpoint.externalized_retention`).

`twophase.coordinator.release`: all decisions have to be committed, every attempt is closed in each
sink (SCAN to FINAL_ABORT), then RELEASED is appended. Bodies and Spark's folder are not
in the model. What follows is a start that is refused, or a restore from a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import log, steps
from verification.model.explore import Transition
from verification.model.state import DEAD, Driver, Release, State
from verification.model.steps import begin_closing, with_driver, without_driver
from verification.model.world import Mistake, World


def stops(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """An operator stops a driver between two micro-batches or in one."""
    waiting = log.uncommitted(driver.history)
    if waiting and world.mistake is not Mistake.RELEASE_BEFORE_COMMIT:
        return
    if not state.budget.releases or not driver.history.decisions:
        return
    fewer = state._replace(budget=state.budget._replace(releases=state.budget.releases - 1))
    stopped, below = driver._replace(acknowledged=()), (driver.generation, driver.counter + 1)
    if world.mistake is Mistake.RELEASE_WITHOUT_CLOSING:
        ended = with_driver(fewer, stopped._replace(step=steps.RELEASE))
    else:
        ended = begin_closing(fewer, stopped, below, steps.RELEASE)
    yield Transition(("is stopped for good", driver.owner), ended)


def release(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Every attempt is closed."""
    if driver.step == steps.RELEASED:
        yield Transition(("has ended the job", driver.owner), without_driver(state, driver, DEAD))
        return
    newest = driver.history.decisions[-1]
    record = Release("RELEASED", newest.lineage, newest.number)
    yield from log.append(world, state, driver, record, steps.RELEASED)

"""Sinks that commit a checkpoint ahead of the others.

`twophase.coordinator.commit.sink_decisions`:

    1. a sink has acknowledged: SINK_DECIDED           in `checkpoint.running`
    2. its pieces are tried once                       AHEAD
    3. what is left is committed before a declined     AHEAD_FIRST
       attempt is closed, and in recovery              RECOMMIT

Which sinks commit ahead, and whether one does, is a choice of the model: so it has drivers of both
modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verification.model import log, steps
from verification.model.explore import Transition
from verification.model.pieces import Xid
from verification.model.state import DecideSink, Decision, Driver, History, State
from verification.model.steps import declined, with_driver
from verification.model.world import Mistake, World

CommitPiece = Callable[[World, State, Driver, Decision, int, int], Iterator[Transition[State]]]


def places(history: History, lineage: int, number: int) -> tuple[int, ...]:
    """The sinks that are ahead in a checkpoint."""
    return tuple(found[0] for found in history.ahead if found[1:3] == (lineage, number))


def listed(history: History, decision: Decision) -> Decision:
    """The decision on a checkpoint lists the pieces that sinks have ahead of it."""
    rewritten = tuple(
        (found[0], *found[3:]) for found in history.ahead if found[1:3] == decision[:2]
    )
    return decision._replace(rewritten=rewritten)


def xids(world: World, history: History, place: int) -> list[Xid]:
    """The pieces that a sink has ahead."""
    return [
        (*found[1:], branch)
        for found in history.ahead
        if found[0] == place
        for branch in range(world.pieces_of(place, found[3:]))
    ]


def decide(
    world: World, state: State, driver: Driver, decision: Decision
) -> Iterator[Transition[State]]:
    """Step 1, of any sink that has acknowledged and is not the last."""
    known = places(driver.history, *decision[:2])
    for place in driver.acknowledged if world.ahead else ():
        if place in known:
            continue
        record = DecideSink("SINK_DECIDED", place, decision)
        if world.mistake is Mistake.AHEAD_UNRECORDED:
            believes = log.apply(driver.history, record)
            changed = driver._replace(history=believes, step=steps.AHEAD)
            yield Transition(
                ("decides without a record", driver.owner), with_driver(state, changed)
            )
        else:
            yield from log.append(world, state, driver, record, steps.AHEAD)


def try_once(
    world: World, state: State, driver: Driver, commit_piece: CommitPiece
) -> Iterator[Transition[State]]:
    """Step 2."""
    yield from _commit(world, state, driver, commit_piece)
    goes_on = driver._replace(step=steps.RUNNING, proven=())
    yield Transition(("goes on behind a sink", driver.owner), with_driver(state, goes_on))


def first(
    world: World, state: State, driver: Driver, commit_piece: CommitPiece
) -> Iterator[Transition[State]]:
    """Step 3, after a declined attempt."""
    yield from _commit(world, state, driver, commit_piece)
    if not _left(world, driver):
        label = ("has committed ahead", driver.owner)
        yield Transition(label, declined(state, driver._replace(proven=()), driver.then))


def decline(state: State, driver: Driver, then: str = steps.IDLE) -> State:
    """The state in which an attempt is declined: what is ahead is committed, all is closed."""
    if not driver.history.ahead:
        return declined(state, driver, then)
    waiting = driver._replace(step=steps.AHEAD_FIRST, then=then, record=None, proven=())
    return with_driver(state, waiting)


def recommit(
    world: World,
    state: State,
    driver: Driver,
    commit_piece: CommitPiece,
    then: Transition[State],
) -> Iterator[Transition[State]]:
    """Step 3, in recovery, when all that is decided as a whole is committed."""
    if world.mistake is Mistake.AHEAD_TAKEN_FOR_ORPHANS or not _left(world, driver):
        yield then
    else:
        yield from _commit(world, state, driver, commit_piece)


def _left(world: World, driver: Driver) -> list[tuple[int, Xid]]:
    return [
        (place, xid)
        for place in range(len(world.servers))
        for xid in xids(world, driver.history, place)
        if (place, xid[4]) not in driver.proven
    ]


def _commit(
    world: World, state: State, driver: Driver, commit_piece: CommitPiece
) -> Iterator[Transition[State]]:
    for place, xid in _left(world, driver):
        yield from commit_piece(world, state, driver, Decision(*xid[:4]), place, xid[4])

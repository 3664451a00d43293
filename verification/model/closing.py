"""Closing older attempts: afterwards nothing of them is left in a sink, and nothing can come.

`twophase.coordinator.commit.orphans` and `twophase.sinks.mysql.fence`, sink by sink:

    1. scan, and abort the orphans          SCAN, ABORT
    2. end the sessions of all writers      END_SESSIONS
    3. raise the fence                      RAISE: somebody's share lock may be in the way
    4. end the sessions again               END_SESSIONS_AGAIN
    5. scan and abort again                 FINAL_SCAN, FINAL_ABORT

A sink without sessions has only 1, 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from verification.model import ahead, log, recovery, sinks, steps, targets
from verification.model.explore import Transition
from verification.model.pieces import COMMITTING, HELD, LEAVING, LIMBO, NOTHING, OPEN, Sink, Xid
from verification.model.state import DEAD, LOST, Driver, State
from verification.model.steps import begin_closing, with_driver, with_sink, without_driver
from verification.model.world import Mistake, Server, World

After = Callable[[State, Driver], State]


def begins_closing(state: State, driver: Driver) -> Transition[State]:
    """Everything decided is committed."""
    begun = begin_closing(state, driver, (driver.generation, 0), steps.RECOVERED)
    return Transition(("closes older attempts", driver.owner), begun)


def close(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Step 3c of a start, and what follows a declined attempt."""
    server, sink = world.servers[driver.sink], state.sinks[driver.sink]
    if driver.step in (steps.SCAN, steps.FINAL_SCAN):
        yield _scan(world, state, driver, sink)
    elif driver.step in (steps.ABORT, steps.FINAL_ABORT):
        yield from aborting(world, state, driver, partial(_after_abort, world))
    elif sink.fence[0] > driver.closing[0]:
        yield Transition(
            ("is fenced by a sink", driver.owner, driver.sink), without_driver(state, driver, DEAD)
        )
    elif driver.step == steps.RAISE and not server.has_sessions:
        raised = with_sink(state, driver.sink, sinks.raise_fence(sink, driver.closing))
        yield Transition(
            ("raises the fence", driver.owner, driver.sink), _after_raise(world, raised, driver)
        )
    else:
        yield from _fence(world, state, driver, server, sink)


def _scan(world: World, state: State, driver: Driver, sink: Sink) -> Transition[State]:
    found = sinks.in_doubt(world, sink, driver.closing, kept(world, driver))
    label = ("scans", driver.owner, driver.sink)
    if found:
        step = steps.ABORT if driver.step == steps.SCAN else steps.FINAL_ABORT
        return Transition(label, with_driver(state, driver._replace(step=step, work=found)))
    return Transition(label, _after_abort(world, state, driver))


def aborting(
    world: World, state: State, driver: Driver, then: After
) -> Iterator[Transition[State]]:
    """One try at the first piece of the list; after the last one `then`."""
    place, xid = driver.sink, driver.work[0]
    asks = driver.step != steps.SWEEP_ABORT and world.mistake is not Mistake.ABORT_WITHOUT_ASKING
    # For each piece; the product asks once for all that a scan has found.
    if asks and isinstance(word := recovery.planned_again(world, state, driver), str):
        yield targets.ends(state, driver, word)
        return
    state = targets.aborted(state, place, xid)
    answer, sink = sinks.try_abort(world, world.servers[place], state.sinks[place], xid)
    changed = with_sink(state, place, sink)
    label = ("aborts", driver.owner, place, *xid)
    if answer == sinks.LOSES:
        yield Transition(label, without_driver(changed, driver, LOST))
    elif answer == sinks.WAITS:
        if sink is not state.sinks[place]:
            yield Transition(("ends the session of", *label[1:]), changed)
    elif len(driver.work) > 1:
        yield Transition(label, with_driver(changed, driver._replace(work=driver.work[1:])))
    else:
        yield Transition(label, then(changed, driver._replace(work=())))


def kept(world: World, driver: Driver) -> frozenset[Xid]:
    """`CheckpointCompleter.pieces_to_commit`: what no scan may touch."""
    whole = frozenset(
        xid
        for decision in log.uncommitted(driver.history)
        for xid in decision.xids(driver.sink, world.pieces_of(driver.sink, decision.attempt))
    )
    if world.mistake is Mistake.AHEAD_TAKEN_FOR_ORPHANS:
        return whole
    return whole.union(ahead.xids(world, driver.history, driver.sink))


def _after_abort(world: World, state: State, driver: Driver) -> State:
    if driver.step in (steps.FINAL_SCAN, steps.FINAL_ABORT):
        return _closed(state, driver)
    if world.mistake is Mistake.NO_FENCE_AFTER_DECLINE and driver.then in (steps.IDLE, steps.ENDED):
        return _closed(state, driver)
    step = steps.END_SESSIONS if world.servers[driver.sink].has_sessions else steps.RAISE
    return with_driver(state, driver._replace(step=step))


def _fence(
    world: World, state: State, driver: Driver, server: Server, sink: Sink
) -> Iterator[Transition[State]]:
    """`Fence.raise_to`."""
    place = driver.sink
    ended = sinks.end_sessions(server, sink)
    leaving = server.shows_leaving and any(piece.status == LEAVING for piece in sink.pieces)
    if any(piece.status in (OPEN, HELD) for piece in sink.pieces):
        yield Transition(("ends sessions", driver.owner, place), with_sink(state, place, ended))
    if driver.step == steps.END_SESSIONS and sink.fence > driver.closing:
        yield Transition(("finds the fence raised", driver.owner, place), _closed(state, driver))
    elif ended != sink or leaving:
        return
    elif driver.step == steps.END_SESSIONS:
        yield Transition(
            ("sees no session", driver.owner, place),
            with_driver(state, driver._replace(step=steps.RAISE)),
        )
    elif driver.step == steps.END_SESSIONS_AGAIN:
        yield Transition(
            ("sees no session", driver.owner, place), _after_raise(world, state, driver)
        )
    elif not sinks.is_blocked(server, sink):
        raised = with_sink(state, place, sinks.raise_fence(sink, driver.closing))
        waiting = with_driver(raised, driver._replace(step=steps.END_SESSIONS_AGAIN))
        yield Transition(("raises the fence", driver.owner, place), waiting)
    elif not any(piece.status in (COMMITTING, LIMBO) for piece in sink.pieces):
        # A branch was prepared after the scan and keeps its lock: the driver stops, its next
        # recovery begins with a scan.
        yield Transition(
            ("gives the fence up", driver.owner, place), without_driver(state, driver, DEAD)
        )


def _after_raise(world: World, state: State, driver: Driver) -> State:
    if world.mistake is Mistake.NO_FINAL_SCAN:
        return _closed(state, driver)
    return with_driver(state, driver._replace(step=steps.FINAL_SCAN))


def _closed(state: State, driver: Driver) -> State:
    """One sink is closed; then the next, or whatever comes after the last."""
    sink = state.sinks[driver.sink]
    state = with_sink(state, driver.sink, sink._replace(closed=max(sink.closed, driver.closing)))
    if driver.sink + 1 < len(state.sinks) and not driver.repair:
        return with_driver(state, driver._replace(step=steps.SCAN, sink=driver.sink + 1))
    if driver.then == steps.ENDED:
        return without_driver(state, driver, DEAD)
    return with_driver(state, driver._replace(step=driver.then, then="", sink=0, closing=NOTHING))

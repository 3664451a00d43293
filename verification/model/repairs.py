"""What an operator does where the job has stopped by name: accepts a loss, has lost pieces written
again, adopts from the targets, gives up a rewind.

`twophase.operations.repair.accept_loss`, `.rewrite`, `.adopt`, `.abandon_rewind`. Each takes the
job over as a driver does, and ends with its record:

    accepts      the sink is asked for the piece: it has to be lost          REPAIR
    writes again the same, then the sink is closed, then the piece is REPAIR, SCAN to FINAL_ABORT,
        WRITE_AGAIN,
                 written under an attempt of the repair's generation         WRITING_AGAIN
    gives up a   each sink is fenced and settled: what it lacks then is   REPAIR
        rewind   a loss
    adopts       what waits of adopted checkpoints is committed              REPAIR
    confirms     nothing: a folder that has missed a driver is the newest    REPAIR

A checkpoint has all of a sink's pieces or none of them here. What follows the record is
what a start does.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import log, planning, savepoints, sinks, steps, targets
from verification.model.explore import Transition
from verification.model.pieces import DURABLE, LISTED, READY, ROLLED_BACK, VISIBLE, Piece, Xid
from verification.model.state import (
    ABANDON,
    ACCEPT,
    ADOPT,
    CHANGED,
    CONFIRM,
    DEAD,
    REFUSED,
    REWRITE,
    Decision,
    Driver,
    History,
    Lineage,
    Repaired,
    State,
)
from verification.model.steps import with_driver, with_sink, without_driver
from verification.model.world import Mistake, World


def starts(state: State) -> Iterator[Transition[State]]:
    """An operator runs a repair: for a piece that was rolled back at any time,
    also beside a driver.
    """
    if not state.budget.repairs:
        return
    owner = len(state.drivers) + 1
    fewer = state._replace(budget=state.budget._replace(repairs=state.budget.repairs - 1))
    alive = any(isinstance(driver, Driver) for driver in state.drivers)
    known = {found[:2] for found in log.read(state.log)[0].decisions}
    for place, sink in enumerate(state.sinks):
        for piece in sink.pieces:
            if piece.status == ROLLED_BACK and piece[:2] in known:
                for verb in (ACCEPT, REWRITE):
                    about = (*piece[:2], place)
                    driver = Driver(owner, steps.REMEMBER, repair=verb, repairs=about)
                    label = ("is repaired", "the job", verb, *about)
                    yield Transition(
                        label, fewer._replace(drivers=(*state.drivers, driver)), fault=alive
                    )
    if log.read(state.log)[0].rewinding:  # also while a driver still takes back
        driver = Driver(owner, steps.REMEMBER, repair=ABANDON)
        abandoning = fewer._replace(drivers=(*state.drivers, driver))
        yield Transition(("is repaired", "the job", ABANDON), abandoning, fault=alive)
    if state.drivers and state.drivers[-1] == REFUSED:
        driver = Driver(owner, steps.REMEMBER, repair=ADOPT)
        yield Transition(
            ("is repaired", "the job", ADOPT),
            fewer._replace(drivers=(*state.drivers, driver)),
            fault=alive,
        )


def returns(state: State) -> Iterator[Transition[State]]:
    """A piece that was rolled back is prepared again. Nobody who was overtaken lives: one that
    commits it could not be distinguished from the job.
    """
    budget = state.budget
    newest = log.read(state.log)[0].generation
    if not budget.returns or any(
        isinstance(one, Driver) and one.generation != newest for one in state.drivers
    ):
        return
    fewer = state._replace(budget=budget._replace(returns=budget.returns - 1), returned=True)
    for place, sink in enumerate(state.sinks):
        for piece in sink.pieces:
            if piece.status == ROLLED_BACK and any(
                found[:2] == piece[:2] for found in state.decided
            ):
                back = with_sink(fewer, place, sinks.become(sink, piece, "prepared"))
                yield Transition(("comes back", "sink", place, *piece[:5]), back, fault=True)


def repair(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """What follows the fence."""
    if driver.step == steps.REPAIRED:
        yield Transition(("has repaired", driver.owner), without_driver(state, driver, DEAD))
    elif driver.repair == ADOPT:
        yield from _adopt(world, state, driver)
    elif driver.repair == ABANDON:
        yield from _abandon(world, state, driver)
    elif driver.repair == CONFIRM:
        record = Repaired("REPAIRED", CONFIRM)
        yield from log.append(world, state, driver, record, steps.REPAIRED)
    elif driver.step == steps.REPAIR:
        yield from _ask(world, state, driver)
    elif driver.step == steps.WRITE_AGAIN:
        yield _write(world, state, driver)
    else:
        yield from _written(world, state, driver)


# -- pieces ----------------------------------------------------------------------------------------


def _ask(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`CommitLoop.lost`: only the answer to a commit is proof."""
    _, _, place = driver.repairs
    decision = _decision(driver)
    xids = decision.xids(place, world.branches) if decision and not decision.committed else []
    answers = [
        sinks.try_commit(world, world.servers[place], state.sinks[place], xid) for xid in xids
    ]
    if any(
        targets.lacks_predecessor(world, state.sinks[place], driver.history, xid, place)
        for xid in xids
    ):
        yield Transition(
            ("finds the target changed", driver.owner), without_driver(state, driver, CHANGED)
        )
    elif all(answer == sinks.PROVEN for answer, _ in answers):
        yield Transition(("finds nothing lost", driver.owner), without_driver(state, driver, DEAD))
    elif all(answer == sinks.LOSES for answer, _ in answers):
        yield from _lost(world, state, driver)
    for answer, changed in answers:
        if answer == sinks.WAITS and changed is not state.sinks[place]:
            yield Transition(
                ("commits", driver.owner, place, *xids[0]), with_sink(state, place, changed)
            )


def _lost(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    lineage, number, place = driver.repairs
    if driver.repair == ACCEPT:
        record = Repaired("REPAIRED", ACCEPT, lineage, number, place)
        yield from log.append(world, state, driver, record, steps.REPAIRED)
        return
    closing = driver._replace(
        step=steps.SCAN, sink=place, closing=(driver.generation, 1), then=steps.WRITE_AGAIN
    )
    if world.mistake is Mistake.REWRITE_WITHOUT_FENCE:
        closing = driver._replace(step=steps.WRITE_AGAIN)
    yield Transition(("finds lost", driver.owner, place), with_driver(state, closing))


def _write(world: World, state: State, driver: Driver) -> Transition[State]:
    lineage, number, place = driver.repairs
    sink = state.sinks[place]
    attempt = (driver.generation, 1)
    started = [
        Piece(lineage, number, *attempt, branch, driver.owner, READY)
        for branch in range(world.branches)
    ]
    writing = with_driver(state, driver._replace(step=steps.WRITING_AGAIN))
    changed = sink._replace(pieces=tuple(sorted((*sink.pieces, *started))))
    return Transition(("reads again", driver.owner, place), with_sink(writing, place, changed))


def _written(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    lineage, number, place = driver.repairs
    attempt = (driver.generation, 1)
    name = (lineage, number, *attempt)
    mine = [
        piece
        for piece in state.sinks[place].pieces
        if piece[:4] == name and piece.owner == driver.owner
    ]
    if len(mine) < world.branches:
        yield Transition(
            ("has failed to write again", driver.owner), without_driver(state, driver, DEAD)
        )
    elif all(piece.status in DURABLE for piece in mine):
        record = Repaired("REPAIRED", REWRITE, lineage, number, place, attempt)
        yield from log.append(world, state, driver, record, steps.REPAIRED)


def _decision(driver: Driver) -> Decision | None:
    return next(
        (found for found in driver.history.decisions if found[:2] == driver.repairs[:2]), None
    )


# -- adoption --------------------------------------------------------------------------------------


def _adopt(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """What a target has proof of was decided: what waits of it elsewhere is committed, then a
    lineage begins behind it.
    """
    proven: dict[int, int] = {}
    for found in driver.remembered:
        proven |= {of: max(last, proven.get(of, -1)) for of, last in found.committed}
    for place, xid in (
        () if world.mistake is Mistake.ADOPT_WITHOUT_COMMITTING else _waiting(state, proven)
    ):
        _, changed = sinks.try_commit(world, world.servers[place], state.sinks[place], xid)
        if changed is not state.sinks[place]:
            yield Transition(
                ("commits", driver.owner, place, *xid), with_sink(state, place, changed)
            )
        return
    ends = {found[:2]: found.range for found in state.decided}
    if world.mistake is Mistake.ADOPT_BY_THE_FOLDER:
        ends = {
            end: ends[end]
            for end in ends
            if end in [found[:2] for found in driver.history.decisions]
        }
    base = max((ends[end] for end in proven.items() if end in ends), default=-1)
    proofs = (
        (place, *found.committed[-1])
        for place, found in enumerate(planning.remembered(state))
        if found.committed
    )
    begins = Lineage(driver.owner, base, 1, tuple(sorted(proven.items())), tuple(proofs))
    yield from log.append(
        world, state, driver, Repaired("REPAIRED", ADOPT, begins=begins), steps.REPAIRED
    )


def _waiting(state: State, proven: dict[int, int]) -> Iterator[tuple[int, Xid]]:
    """Pieces of adopted checkpoints, of the attempt that has a committed piece."""
    shown = {piece[:4] for sink in state.sinks for piece in sink.pieces if piece.status in VISIBLE}
    for place, sink in enumerate(state.sinks):
        for piece in sink.pieces:
            if (
                piece.status in LISTED
                and piece.number <= proven.get(piece.lineage, -1)
                and piece[:4] in shown
            ):
                yield place, piece[:5]


# -- a rewind --------------------------------------------------------------------------------------


def _abandon(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`RewindRepair`: each sink is fenced, so that nobody takes back more, and settled; what it
    lacks then is given up in the same record that ends the rewind.
    """
    place = driver.sink
    if place < len(state.sinks):
        sink, fence = state.sinks[place], (driver.generation, 0)
        if sink.fence > fence:
            fenced = without_driver(state, driver, DEAD)
            yield Transition(("is fenced by a sink", driver.owner, place), fenced)
            return
        if world.mistake is not Mistake.ABANDON_WITHOUT_FENCE:
            sink = sinks.raise_fence(sink, fence)
        if world.mistake is not Mistake.ABANDON_UNSETTLED:
            sink = savepoints.settled(sink, dict(driver.history.rewinding))
        going = with_driver(state, driver._replace(sink=place + 1))
        yield Transition(("settles", driver.owner, place), with_sink(going, place, sink))
        return
    record = Repaired("REPAIRED", ABANDON, losses=tuple(_lacking(state, driver.history)))
    yield from log.append(world, state, driver, record, steps.REPAIRED)


def _lacking(state: State, history: History) -> Iterator[tuple[int, int, int]]:
    """What the log calls committed and a sink has no proof of."""
    for place, memory in enumerate(planning.remembered(state)):
        known = dict(memory.committed)
        for one in history.decisions:
            if (
                one.committed
                and place not in one.given_up
                and one.number > known.get(one.lineage, -1)
            ):
                yield place, *one[:2]
        for at, lineage, number in history.lineages[-1].proofs:
            if at == place and number > known.get(lineage, -1):
                yield place, lineage, number

"""A micro-batch: trigger, acknowledge, decide, commit, sweep, subsume; and a declined attempt.

`twophase.coordinator.coordinator` and `.commit`. With `max_concurrent` of 2 a checkpoint is
committed behind the next one's pre-commit; with 1 the next is triggered only when nothing
is left to commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import ahead, closing, log, sinks, steps, targets
from verification.model.explore import Transition
from verification.model.pieces import (
    COMMITTED,
    DURABLE,
    LISTED,
    NOTHING,
    READY,
    SUBSUMED,
    Piece,
    Sink,
)
from verification.model.state import (
    CHANGED,
    DEAD,
    LOST,
    Commit,
    Decide,
    Decision,
    Driver,
    Lineage,
    State,
)
from verification.model.steps import with_driver, with_sink, without_driver
from verification.model.world import Mistake, World

# -- 1 to 3: trigger, acknowledge, decide ----------------------------------------------------------


def idle(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """What a driver may begin between two micro-batches."""
    waiting = log.uncommitted(driver.history)
    lineage = driver.history.lineages[-1]
    if lineage.base + driver.number == world.checkpoints:
        yield from _at_the_end(state, driver)
    elif len(waiting) < world.max_concurrent:
        yield _trigger(world, state, driver, lineage)
    if waiting or not driver.history.decisions:
        return
    newest = log.newest_of(driver.history, lineage.id)
    if newest and state.budget.folds:
        yield from log.fold(world, state, driver)
    if newest and state.budget.subsumptions:
        fewer = state.budget._replace(subsumptions=state.budget.subsumptions - 1)
        collapsing = driver._replace(step=steps.COLLAPSE, sink=0)
        yield Transition(
            ("begins to subsume", driver.owner, newest.number),
            with_driver(state._replace(budget=fewer), collapsing),
        )
    if newest and world.replays and driver.counter == 0:
        replaying = driver._replace(step=steps.REPLAY)
        yield Transition(
            ("is asked again for", driver.owner, newest.number), with_driver(state, replaying)
        )


def _at_the_end(state: State, driver: Driver) -> Iterator[Transition[State]]:
    """A restart of the job, which stands for the sweep after the checkpoint that the
    model has no room for.
    """
    if any(
        piece.status in LISTED for sink in state.sinks for piece in sink.pieces
    ) and not log.uncommitted(driver.history):
        yield Transition(("is stopped", driver.owner), without_driver(state, driver, DEAD))


def _trigger(world: World, state: State, driver: Driver, lineage: Lineage) -> Transition[State]:
    known = [decision.number for decision in driver.history.decisions]
    if world.mistake is Mistake.SKIP_BY_NUMBER and driver.number <= max(known, default=-1):
        skipped = with_driver(state, driver._replace(number=driver.number + 1))
        return Transition(("skips", driver.owner, lineage.id, driver.number), skipped)
    attempt = (driver.generation, driver.counter + 1)
    if world.mistake is not Mistake.AHEAD_ASKED_AGAIN:
        behind = ahead.places(driver.history, lineage.id, driver.number)
        driver = driver._replace(acknowledged=tuple(sorted({*driver.acknowledged, *behind})))
    changed = [
        sink
        if place in driver.acknowledged
        else _with_tasks(world, place, sink, (lineage.id, driver.number, *attempt), driver)
        for place, sink in enumerate(state.sinks)
    ]
    running = driver._replace(step=steps.RUNNING, counter=attempt[1])
    label = ("triggers", driver.owner, lineage.id, driver.number, *attempt)
    return Transition(label, with_driver(state._replace(sinks=tuple(changed)), running))


def _with_tasks(
    world: World, place: int, sink: Sink, of: tuple[int, int, int, int], driver: Driver
) -> Sink:
    """Tasks are started. Those that the fence refuses already are left out, as in `raise_fence`."""
    if not sinks.admits(sink.fence, of[2:4]):
        return sink
    tasks = world.pieces_of(place, of[2:4]) + world.losers_of(place, of[2:4])
    started = [Piece(*of, branch, driver.owner, READY) for branch in range(tasks)]
    return sink._replace(pieces=tuple(sorted((*sink.pieces, *started))))


def running(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Pre-commit goes on, until it is decided or declined."""
    lineage = driver.history.lineages[-1]
    decision = Decision(lineage.id, driver.number, driver.generation, driver.counter)
    for place, sink in enumerate(state.sinks):
        if place not in driver.acknowledged and _is_pre_committed(world, place, sink, decision):
            acknowledged = tuple(sorted((*driver.acknowledged, place)))
            changed = with_driver(state, driver._replace(acknowledged=acknowledged))
            yield Transition(
                ("hears an acknowledgement", driver.owner, place, *decision[1:4]), changed
            )
    complete = len(driver.acknowledged) == len(state.sinks)
    if complete or (world.mistake is Mistake.DECIDE_WITHOUT_ALL and driver.acknowledged):
        idle = driver._replace(acknowledged=())
        whole = ahead.listed(driver.history, decision)
        if world.mistake in (Mistake.AHEAD_NOT_LISTED, Mistake.AHEAD_ASKED_AGAIN):
            whole = decision
        yield from log.append(world, state, idle, Decide("DECIDED", whole), steps.IDLE)
    else:
        yield from ahead.decide(world, state, driver, decision)
    label = ("declines", driver.owner, *decision[:4])
    if not complete and not _can_complete(world, state, driver, decision):
        # Nothing but an interference refuses or kills a task: the failure is not tolerated, the
        # job is started again.
        ending = driver._replace(acknowledged=())
        yield Transition(label, ahead.decline(state, ending, steps.ENDED))
    elif state.budget.declines:
        fewer = state._replace(budget=state.budget._replace(declines=state.budget.declines - 1))
        kept = driver.acknowledged if world.mistake is Mistake.RETRY_SINGLE_TASKS else ()
        retrying = driver._replace(acknowledged=kept)
        yield Transition(label, ahead.decline(fewer, retrying), fault=True)


def _has_all(world: World, place: int, decision: Decision, pieces: list[Piece]) -> bool:
    return len(pieces) == world.pieces_of(place, decision.attempt)


def _pieces(world: World, place: int, sink: Sink, decision: Decision) -> list[Piece]:
    pieces = world.pieces_of(place, decision.attempt)
    return [piece for piece in sink.pieces if piece[:4] == decision[:4] and piece.branch < pieces]


def _is_pre_committed(world: World, place: int, sink: Sink, decision: Decision) -> bool:
    pieces = _pieces(world, place, sink, decision)
    return _has_all(world, place, decision, pieces) and all(
        piece.status in DURABLE for piece in pieces
    )


def _can_complete(world: World, state: State, driver: Driver, decision: Decision) -> bool:
    """Whether no task has been refused or killed."""
    return all(
        place in driver.acknowledged
        or _has_all(world, place, decision, _pieces(world, place, sink, decision))
        for place, sink in enumerate(state.sinks)
    )


# -- 4: commit -------------------------------------------------------------------------------------


def commit(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`CommitLoop.commit`: every piece of one decided checkpoint, until each
    is proven committed.
    """
    decision = target_of(world, driver)
    if decision is None:
        if driver.step == steps.RECOMMIT:
            then = closing.begins_closing(state, driver._replace(proven=()))
            yield from ahead.recommit(world, state, driver, _commit_piece, then)
        return
    listed = (
        decision._replace(given_up=()) if world.mistake is Mistake.LOSS_NOT_LEFT_OUT else decision
    )
    left = [
        (place, xid[4])
        for place in range(len(state.sinks))
        for xid in listed.xids(place, world.pieces_of(place, decision.attempt))
        if (place, xid[4]) not in driver.proven
    ]
    if driver.step == steps.REPLAY and driver.recommitted == decision[:2]:
        left = []
    for place, branch in left:
        yield from _commit_piece(world, state, driver, decision, place, branch)
    if not left:
        yield from _all_proven(world, state, driver, decision)


def commit_ahead(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """A sink that is ahead, while the others pre-commit or when an attempt is declined."""
    act = ahead.try_once if driver.step == steps.AHEAD else ahead.first
    yield from act(world, state, driver, _commit_piece)


def target_of(world: World, driver: Driver) -> Decision | None:
    """The checkpoint whose commit is under way."""
    if driver.step == steps.REPLAY:
        return driver.history.decisions[-1]
    waiting = log.uncommitted(driver.history)
    if world.mistake is Mistake.REWIND_BEFORE_COMMIT and driver.rewinds:
        waiting = []
    if world.mistake is Mistake.RECOVER_NEWEST_ONLY and driver.step == steps.RECOMMIT:
        waiting = [found for found in waiting if found is driver.history.decisions[-1]]
    if waiting:
        return waiting[-1 if world.mistake is Mistake.COMMIT_OUT_OF_ORDER else 0]
    if world.mistake is Mistake.SAVEPOINT_ABORTED_FIRST and driver.savepoint:
        return None
    if driver.step == steps.RECOMMIT and driver.to_adopt:
        return driver.to_adopt[0]
    return None


def _commit_piece(
    world: World, state: State, driver: Driver, decision: Decision, place: int, branch: int
) -> Iterator[Transition[State]]:
    sink = state.sinks[place]
    xid = (*decision[:2], *decision.attempt_in(place), branch)
    label = (driver.owner, place, *xid)
    if targets.lacks_predecessor(world, sink, driver.history, xid, place):
        yield Transition(
            ("finds the target changed of", *label), without_driver(state, driver, CHANGED)
        )
        return
    answer, changed = sinks.try_commit(world, world.servers[place], sink, xid)
    if answer == sinks.LOSES:
        yield Transition(("finds lost", *label), without_driver(state, driver, LOST))
    elif answer == sinks.PROVEN:
        proven = driver._replace(proven=tuple(sorted((*driver.proven, (place, branch)))))
        yield Transition(
            ("finds committed", *label), with_driver(with_sink(state, place, changed), proven)
        )
    elif changed is not sink:
        yield Transition(("commits", *label), with_sink(state, place, changed))


def _all_proven(
    world: World, state: State, driver: Driver, decision: Decision
) -> Iterator[Transition[State]]:
    if driver.step == steps.REPLAY:
        replayed = driver._replace(step=steps.IDLE, proven=())
        yield Transition(
            ("has replayed", driver.owner, decision.number), with_driver(state, replayed)
        )
    elif decision not in log.uncommitted(driver.history):
        adopted = driver._replace(adopted=driver.adopted + 1, proven=())
        yield Transition(("has adopted", driver.owner, *decision[:2]), with_driver(state, adopted))
    else:
        if driver.step == steps.RECOMMIT:
            driver = driver._replace(recommitted=decision[:2])
        sweeps = world.losers and driver.step == steps.IDLE
        if sweeps:
            below = (decision.generation, decision.counter + 1)
            driver = driver._replace(closing=below, sink=0)
        yield from log.append(
            world,
            state,
            driver,
            Commit("COMMITTED", *decision[:2]),
            steps.SWEEP if sweeps else driver.step,
        )


# -- 5: sweep and subsume --------------------------------------------------------------------------


def sweep(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`CheckpointCompleter.abort_superseded_attempts`."""
    if driver.step == steps.SWEEP_ABORT:
        yield from closing.aborting(world, state, driver, _swept)
        return
    found = sinks.in_doubt(
        world, state.sinks[driver.sink], driver.closing, closing.kept(world, driver)
    )
    label = ("sweeps", driver.owner, driver.sink)
    if found:
        yield Transition(
            label, with_driver(state, driver._replace(step=steps.SWEEP_ABORT, work=found))
        )
    else:
        yield Transition(label, _swept(state, driver))


def _swept(state: State, driver: Driver) -> State:
    if driver.sink + 1 < len(state.sinks):
        return with_driver(state, driver._replace(step=steps.SWEEP, sink=driver.sink + 1))
    return with_driver(state, driver._replace(step=steps.IDLE, sink=0, closing=NOTHING))


def collapse(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`Sink.subsume`, sink by sink: the mark first, no further than there is proof, then the rows
    that it stands for.
    """
    lineage = driver.history.lineages[-1]
    newest = log.newest_of(driver.history, lineage.id)
    assert newest is not None
    place, sink = driver.sink, state.sinks[driver.sink]
    changes = [
        _marked_unproven if world.mistake is Mistake.MARK_WITHOUT_PROOF else _marked,
        _collapsed,
    ]
    if world.mistake is Mistake.COLLAPSE_BEFORE_MARK:
        changes.reverse()
    for change in changes:
        changed = change(sink, lineage.id, newest.number)
        if changed != sink:
            yield Transition(("subsumes", driver.owner, place), with_sink(state, place, changed))
            return
    last = place + 1 == len(state.sinks)
    changed_driver = (
        driver._replace(step=steps.IDLE, sink=0) if last else driver._replace(sink=place + 1)
    )
    yield Transition(("has subsumed", driver.owner, place), with_driver(state, changed_driver))


def _marked(sink: Sink, lineage: int, number: int) -> Sink:
    proven = [
        piece.number
        for piece in sink.pieces
        if piece.status == COMMITTED and piece.lineage == lineage and piece.number <= number
    ]
    return _marked_unproven(sink, lineage, max(proven)) if proven else sink


def _marked_unproven(sink: Sink, lineage: int, number: int) -> Sink:
    marks = dict(sink.marks)
    marks[lineage] = max(marks.get(lineage, -1), number)
    return sink._replace(marks=tuple(sorted(marks.items())))


def _collapsed(sink: Sink, lineage: int, number: int) -> Sink:
    return sink._replace(
        pieces=tuple(
            piece._replace(status=SUBSUMED)
            if piece.status == COMMITTED and piece.lineage == lineage and piece.number <= number
            else piece
            for piece in sink.pieces
        )
    )

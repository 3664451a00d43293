"""The job's log: create-if-absent at the number after the last one seen, a check
afterwards, and folding.

`twophase.state.journal.log` and `.records`. The steps of an append, as far as the world takes them
apart:

    1. create     the number is taken: fenced
    2. sync       the record becomes durable
    3. check      the predecessor is not the one we know, or a newer record is there: fenced

Fencing ends the driver; one that is still taking over reads the log again instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import steps
from verification.model.explore import Transition
from verification.model.pieces import VISIBLE, Sink
from verification.model.state import (
    ABANDON,
    ACCEPT,
    CONFIRM,
    DEAD,
    LOST,
    REFUSED,
    Begin,
    Commit,
    Decide,
    Decided,
    DecideSink,
    Decision,
    Driver,
    Fence,
    History,
    Lineage,
    Record,
    Repaired,
    Rewinding,
    Slot,
    State,
    Subsume,
)
from verification.model.steps import declined, with_driver, without_driver
from verification.model.world import Mistake, World

Log = tuple[Slot | None, ...]

_TAKE_OVER_TRIES = 2
"""20 in the product."""


# -- what a log adds up to -------------------------------------------------------------------------


def apply(history: History, record: Record) -> History:
    """`History.apply`."""
    if isinstance(record, Fence):
        return history._replace(generation=record.generation)
    if isinstance(record, Begin):
        return _begun(history, record.lineage)
    if isinstance(record, Rewinding):
        return history._replace(rewinding=record.keep, ahead=())
    if isinstance(record, DecideSink):
        return history._replace(ahead=(*history.ahead, (record.place, *record.decision[:4])))
    if isinstance(record, Repaired):
        return _repaired(history, record)
    if isinstance(record, Decide):
        return history._replace(decisions=(*history.decisions, record.decision), ahead=())
    if isinstance(record, Commit):
        done = (record.lineage, record.number)
        return history._replace(
            decisions=tuple(
                found._replace(committed=True) if found[:2] == done else found
                for found in history.decisions
            )
        )
    return record.history


def _begun(history: History, lineage: Lineage) -> History:
    """A rewind ends with its lineage: what was taken back is no decision any more."""
    kept, decisions = dict(lineage.ancestors), history.decisions
    if history.rewinding:
        decisions = tuple(found for found in decisions if found[1] <= kept.get(found[0], -1))
    lineages = (*history.lineages, lineage)
    return History(history.generation, lineages, decisions)


def _repaired(history: History, record: Repaired) -> History:
    if record.verb == CONFIRM:
        return history
    if record.begins is not None:
        lineages = (*history.lineages, record.begins)
        return history._replace(lineages=lineages, decisions=())
    if record.verb == ABANDON:
        return _abandoned(history, record)
    about = (record.lineage, record.number)
    changed = [
        _amended(found, record) if found[:2] == about else found for found in history.decisions
    ]
    return history._replace(decisions=tuple(changed))


def _abandoned(history: History, record: Repaired) -> History:
    """A rewind ends, and what it has taken back is given up."""
    decisions = tuple(
        found._replace(given_up=(*found.given_up, *_places(record, found[:2])))
        for found in history.decisions
    )
    lineages = tuple(
        one._replace(proofs=tuple(found for found in one.proofs if found not in record.losses))
        for one in history.lineages
    )
    return history._replace(rewinding=(), decisions=decisions, lineages=lineages)


def _places(record: Repaired, of: tuple[int, int]) -> tuple[int, ...]:
    return tuple(place for place, *found in record.losses if tuple(found) == of)


def _amended(decision: Decision, record: Repaired) -> Decision:
    if record.verb == ACCEPT:
        return decision._replace(given_up=(*decision.given_up, record.place))
    return decision._replace(rewritten=(*decision.rewritten, (record.place, *record.attempt)))


def read(log: Log) -> tuple[History, int, int]:
    """`JobLog.read`: the history, the newest number, and who wrote it."""
    begin = first_of(log, len(log) + 1)
    history = History()
    for slot in log[begin - 1 :]:
        if slot is not None:
            history = apply(history, slot.record)
    newest = log[-1] if log else None
    return history, len(log), newest.nonce if newest else 0


def first_of(log: Log, before: int) -> int:
    """The number of the newest SUBSUMED record before a number; 1 if there is none."""
    numbers = (
        number
        for number in range(before - 1, 0, -1)
        if (slot := log[number - 1]) and isinstance(slot.record, Subsume)
    )
    return next(numbers, 1)


def lineage_of(history: History) -> Lineage | None:
    """The current lineage."""
    return history.lineages[-1] if history.lineages else None


def newest_of(history: History, lineage: int) -> Decision | None:
    """`History.newest`."""
    return next((found for found in reversed(history.decisions) if found.lineage == lineage), None)


def uncommitted(history: History) -> list[Decision]:
    """`History.uncommitted`."""
    return [found for found in history.decisions if not found.committed]


def synced(state: State) -> State:
    """Everything in the log is durable."""
    if all(slot is None or slot.synced for slot in state.log):
        return state
    for slot in state.log:
        if slot and not slot.synced:
            state = _noted(state, slot)
    return state._replace(log=tuple(slot and slot._replace(synced=True) for slot in state.log))


def _noted(state: State, slot: Slot) -> State:
    """For the invariants: a decision is durable."""
    if isinstance(slot.record, Repaired):
        return _noted_repair(state, slot.nonce, slot.record)
    if isinstance(slot.record, Begin):
        return _adopted(_rewound(state, slot.record.lineage), slot.record.lineage)
    if not isinstance(slot.record, Decide | DecideSink):
        return state
    decision = slot.record.decision
    range_ = _base(state.log, decision.lineage) + decision.number
    if isinstance(slot.record, DecideSink):
        sink = (slot.record.place, *decision[:4], slot.nonce, range_)
        return state._replace(ahead=(*state.ahead, sink))
    before = [found for found in state.ahead if found[1:3] == decision[:2]]
    instead = tuple((found[0], *found[3:6]) for found in before)
    noted = Decided(*decision[:4], owner=slot.nonce, range=range_, instead=instead)
    left = tuple(found for found in state.ahead if found not in before)
    return state._replace(decided=(*state.decided, noted), ahead=left)


def _rewound(state: State, lineage: Lineage) -> State:
    """The same: the lineage of a rewind is durable, and what was taken back is not a checkpoint of
    the job any more.
    """
    kept, taken = dict(lineage.ancestors), {found[1:] for found in state.taken_back}
    return state._replace(
        decided=tuple(
            found._replace(lost=True)
            if found[:2] in taken and found.number > kept.get(found.lineage, -1)
            else found
            for found in state.decided
        )
    )


def _adopted(state: State, lineage: Lineage) -> State:
    """The same: what a savepoint has kept is a checkpoint of the job again, though the folder was
    replaced by an older copy in between.
    """
    kept = dict(lineage.ancestors)
    return state._replace(
        decided=tuple(
            found._replace(lost=False)
            if found.lost
            and found.number <= kept.get(found.lineage, -1)
            and all(_shows(sink, found.name_in(at)) for at, sink in enumerate(state.sinks))
            else found
            for found in state.decided
        )
    )


def _shows(sink: Sink, name: tuple[int, ...]) -> bool:
    return any(
        (*piece[:4], piece.owner) == name and piece.status in VISIBLE for piece in sink.pieces
    )


def _noted_repair(state: State, owner: int, record: Repaired) -> State:
    """The same: a repair is durable. Who has stopped because of what it mends has nothing to
    do with it any more.
    """
    drivers = tuple(DEAD if driver in (LOST, REFUSED) else driver for driver in state.drivers)
    return state._replace(
        drivers=drivers, decided=tuple(_after_repair(one, owner, record) for one in state.decided)
    )


def _after_repair(decided: Decided, owner: int, record: Repaired) -> Decided:
    if record.begins is not None:
        adopted = decided.number <= dict(record.begins.ancestors).get(decided.lineage, -1)
        return decided._replace(lost=not adopted)
    if record.verb == ABANDON:
        places = _places(record, decided[:2]) if not decided.lost else ()
        return decided._replace(given_up=(*decided.given_up, *places))
    if record.verb == CONFIRM or decided[:2] != (record.lineage, record.number) or decided.lost:
        return decided
    if record.verb == ACCEPT:
        return decided._replace(given_up=(*decided.given_up, record.place))
    return decided._replace(instead=(*decided.instead, (record.place, *record.attempt, owner)))


def _base(log: Log, lineage: int) -> int:
    history, _, _ = read(log)
    return next((known.base for known in history.lineages if known.id == lineage), 0)


# -- appending -------------------------------------------------------------------------------------


def append(
    world: World, state: State, driver: Driver, record: Record, then: str
) -> Iterator[Transition[State]]:
    """A driver appends, and goes on with the step `then`."""
    if driver.last < len(state.log) and state.log[driver.last] is not None:
        yield _fenced(state, driver, record)
    elif world.mistake is Mistake.CHECK_THEN_CREATE:
        waiting = driver._replace(step=steps.APPEND_WRITE, record=record, then=then)
        yield Transition(("finds the number free", driver.owner), with_driver(state, waiting))
    else:
        yield from _create(world, state, driver, record, then)


def appending(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """A driver goes on with an append that it has begun."""
    record = driver.record
    assert record is not None
    if driver.step == steps.APPEND_WRITE:
        yield from _create(world, state, driver, record, driver.then)
    elif driver.step == steps.APPEND_SYNC and world.splits_append:
        checking = driver._replace(step=steps.APPEND_CHECK)
        yield Transition(("syncs the log", driver.owner), with_driver(synced(state), checking))
    elif driver.step == steps.APPEND_SYNC:
        yield _accepted(synced(state), driver, record, driver.then)
    elif _passes(world, state.log, driver):
        yield _accepted(state, driver, record, driver.then)
    else:
        yield _fenced(state, driver, record)


def _create(
    world: World, state: State, driver: Driver, record: Record, then: str
) -> Iterator[Transition[State]]:
    at_the_end = driver.last == len(state.log)
    sync_first = world.splits_sync and not (
        world.mistake is Mistake.COMMIT_BEFORE_SYNC and isinstance(record, Decide)
    )
    slot = Slot(driver.owner, record, synced=not world.splits_sync, stray=not at_the_end)
    created = state._replace(log=(*state.log[: driver.last], slot, *state.log[driver.last + 1 :]))
    if slot.synced and (at_the_end or world.mistake is Mistake.CHECK_THEN_CREATE):
        created = _noted(created, slot)
    if sync_first or world.splits_append:
        waiting = driver._replace(
            step=steps.APPEND_SYNC if sync_first else steps.APPEND_CHECK, record=record, then=then
        )
        yield Transition(
            ("creates", driver.owner, driver.last + 1, record), with_driver(created, waiting)
        )
    else:
        yield _accepted(created, driver, record, then)
    if world.mistake is Mistake.ABORT_AFTER_UNCLEAR_CREATE and isinstance(record, Decide):
        yield Transition(
            ("takes an unclear create for a failure", driver.owner),
            declined(created, driver),
            fault=True,
        )


def _passes(world: World, log: Log, driver: Driver) -> bool:
    """`JobLog._check_predecessor` and `JobLog._check_newest`."""
    before = log[driver.last - 1] if driver.last else None
    is_newest = len(log) == driver.last + 1
    follows = before is not None and before.nonce == driver.nonce
    match world.mistake:
        case Mistake.NO_CHECK_AFTER_CREATE:
            return True
        case Mistake.CHECK_PREDECESSOR_ONLY:
            return driver.last == 0 or follows
        case Mistake.CHECK_PREDECESSOR_AND_FIRST | Mistake.FOLD_DESCENDING:
            return is_newest if driver.last == 0 else follows
        case _:
            return is_newest and (driver.last == 0 or follows)


def _fenced(state: State, driver: Driver, record: Record) -> Transition[State]:
    if isinstance(record, Fence) and driver.tries + 1 < _TAKE_OVER_TRIES:
        again = driver._replace(step=steps.READ, record=None, then="", tries=driver.tries + 1)
        return Transition(("finds its number taken", driver.owner), with_driver(state, again))
    return Transition(("is fenced", driver.owner), without_driver(state, driver, DEAD))


def _accepted(state: State, driver: Driver, record: Record, then: str) -> Transition[State]:
    driver = driver._replace(
        step=then,
        record=None,
        then="" if driver.record else driver.then,
        last=driver.last + 1,
        nonce=driver.owner,
        history=apply(driver.history, record),
    )
    if isinstance(record, Fence):
        driver = driver._replace(generation=record.generation, tries=0)
    elif isinstance(record, Begin):
        driver = driver._replace(number=record.lineage.first)
    elif isinstance(record, Decide):
        driver = driver._replace(number=record.decision.number + 1)
    elif isinstance(record, Commit):
        driver = driver._replace(proven=())
    return Transition((record.kind, driver.owner, *record[1:]), with_driver(state, driver))


# -- folding ---------------------------------------------------------------------------------------


def fold(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """`JobLog.fold`: the replaced checkpoints go, then the records before."""
    history = driver.history
    gone = replaced(world, history)
    kept = tuple(found for found in history.decisions if found not in gone)
    record = Subsume("SUBSUMED", history._replace(decisions=kept))
    state = state._replace(budget=state.budget._replace(folds=state.budget.folds - 1))
    numbers = range(first_of(state.log, driver.last + 1), driver.last + 1)
    order = reversed(numbers) if world.mistake is Mistake.FOLD_DESCENDING else numbers
    yield from append(world, state, driver._replace(numbers=tuple(order)), record, steps.DELETE)


def replaced(world: World, history: History) -> list[Decision]:
    """The checkpoints that newer committed ones have replaced in every sink."""
    committed = [decision for decision in history.decisions if decision.committed]
    newest: dict[int, Decision] = {}
    for decision in committed:
        for place in range(len(world.servers)):
            if world.pieces_of(place, decision.attempt):
                newest[place] = decision
    return [one for one in committed[: -world.retained] if one not in newest.values()]


def deleting(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """One file goes."""
    number, *rest = driver.numbers
    state = state._replace(log=(*state.log[: number - 1], None, *state.log[number:]))
    driver = driver._replace(numbers=tuple(rest), step=steps.DELETE if rest else steps.IDLE)
    yield Transition(("deletes a record", driver.owner, number), with_driver(state, driver))

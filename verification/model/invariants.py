"""What must hold in every state: the invariants of the protocol, and how each is expressed here.

    I1  visible or being committed => its checkpoint is decided, durably, or is in its sink alone
    I2  decided => every piece of it is pre-committed or visible in its sink, in every sink
    I3  visible or being committed => it is of the decided attempt, and of a task attempt that
        the decision lists
    I4  a driver takes a piece for committed, or the log says COMMITTED => it is visible; in each
        sink and lineage checkpoints become visible in their order
    I5  no two branches of different owners have one name in a sink, no two living drivers
        have one generation
    I6  a driver that has taken over knows every lineage that a sink has rows of
    I7  no driver takes a record for its own that was not at the end of the log; no checkpoint is
        decided twice; nothing undecided of an attempt below `closed` is pre-committed, or can be
    I8  a driver gives a decided piece up for lost only if somebody has rolled it back by hand, or a
        driver over a copy of the folder or in a folder that was restored from one, or its target
        was restored from a backup; it says that a target has changed only if one has; and no driver
        goes on over a target that lacks what is committed
    rows exactly once: in each sink a range of rows is visible from one attempt only, and
        no range is left out
    rewinds: no driver goes on over one that is half done
    savepoints: one of a job that nobody drives has all that is decided; another job begins with all
        that its savepoint holds committed
    no dead end: where nobody drives the job, or a start was refused, some wish leads on (`ways_on`)

I9 (durable bytes) and I10 (targets) are about what a state has no room for. That every checkpoint
ends resolved is the goal, `is_settled`.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.checkpoint import target_of
from verification.model.log import read
from verification.model.pieces import (
    CHECKED,
    COMMITTING,
    DURABLE,
    HELD,
    LEAVING,
    LIMBO,
    LISTED,
    OPEN,
    PREPARED,
    READY,
    ROLLED_BACK,
    VISIBLE,
    Piece,
)
from verification.model.savepoints import is_behind
from verification.model.state import CHANGED, LOST, REFUSED, Decided, Driver, State
from verification.model.steps import IDLE, RUNNING
from verification.model.ways_on import there_is_a_way_on
from verification.model.world import World

_OUT = VISIBLE | {COMMITTING}
_LEFT_BEHIND = frozenset({CHECKED, OPEN, HELD, LEAVING, PREPARED})
_UNRESOLVED = LISTED | {OPEN, LIMBO, COMMITTING}
_STARTING = frozenset({READY})


def _pieces(state: State) -> Iterator[Piece]:
    for sink in state.sinks:
        yield from sink.pieces


def _alive(state: State) -> Iterator[Driver]:
    return (driver for driver in state.drivers if isinstance(driver, Driver))


def nothing_is_committed_before_its_decision(world: World, state: State) -> bool:
    """I1."""
    decided = {found[:2] for found in state.decided}
    for place, sink in enumerate(state.sinks):
        known = decided | {found[1:3] for found in state.ahead if found[0] == place}
        if any(piece[:2] not in known for piece in sink.pieces if piece.status in _OUT):
            return False
    return True


def nothing_decided_is_aborted(world: World, state: State) -> bool:
    """I2. A driver over a copy of the folder cannot know the decisions; but it sees
    what any sink shows.
    """
    if state.other is not None or state.changed:
        return not state.rolled_back
    if state.moved and state.rolled_back:
        return False
    for place, sink in enumerate(state.sinks):
        there = {(*_name(piece), piece.branch) for piece in sink.pieces if piece.status in DURABLE}
        for decision in state.decided:
            name = decision.name_in(place)
            if decision.lost or place in decision.given_up:
                continue
            if (place, *decision[:2]) in state.taken_back:
                continue
            if any((*name, branch) not in there for branch in range(world.branches)):
                return False
        for name in _ahead(state, place):
            if any((*name, branch) not in there for branch in range(world.branches)):
                return False
    return True


def nothing_undecided_becomes_visible(world: World, state: State) -> bool:
    """I3."""
    for place, sink in enumerate(state.sinks):
        names = _names(state, place)
        for piece in sink.pieces:
            if piece.status in _OUT and (
                _name(piece) not in names or piece.branch >= world.branches
            ):
                return False
    return True


def committed_is_said_on_proof(world: World, state: State) -> bool:
    """I4."""
    visible = [
        {piece[:5] for piece in sink.pieces if piece.status in VISIBLE} for sink in state.sinks
    ]
    for driver in () if state.changed else _alive(state):
        target = target_of(world, driver)
        if target and any(
            (*target[:2], *target.attempt_in(place), branch) not in visible[place]
            for place, branch in driver.proven
            if (place, *target[:2]) not in state.taken_back
        ):
            return False
        for decision in driver.history.decisions:
            if decision.committed and not all(
                xid in found
                for place, found in enumerate(visible)
                for xid in decision.xids(place, world.branches)
                if (place, *decision[:2]) not in state.taken_back
            ):
                return False
    return all(_is_in_order(world, state, place) for place in range(len(state.sinks)))


def _is_in_order(world: World, state: State, place: int) -> bool:
    visible = {piece[:5] for piece in state.sinks[place].pieces if piece.status in VISIBLE}
    begun = {found[:2] for found in visible}
    whole = {
        decision[:2]
        for decision in state.decided
        if place in decision.given_up
        or all(
            (*decision.name_in(place)[:4], branch) in visible for branch in range(world.branches)
        )
    }
    return all(
        (lineage, number - 1) in whole
        for lineage, number in begun
        if any(decision[:2] == (lineage, number - 1) for decision in state.decided)
    )


def identities_are_unique(world: World, state: State) -> bool:
    """I5."""
    generations = [driver.generation for driver in _alive(state) if driver.generation]
    if len(generations) != len(set(generations)):
        return False
    for sink in state.sinks:
        names = [piece[:5] for piece in sink.pieces if piece.status not in _STARTING]
        if len(names) != len(set(names)):
            return False
    return True


def a_store_without_history_stops(world: World, state: State) -> bool:
    """I6."""
    lineages = {piece.lineage for piece in _pieces(state) if piece.status in VISIBLE}
    newest = max(sink.fence[0] for sink in state.sinks)
    for driver in _alive(state):
        if driver.history.lineages and driver.generation >= newest:
            known = {found.id for found in driver.history.lineages}
            known |= {
                ancestor for found in driver.history.lineages for ancestor, _ in found.ancestors
            }
            if not lineages <= known:
                return False
    return True


def one_driver_writes(world: World, state: State) -> bool:
    """I7."""
    for driver in _alive(state):
        if (
            not driver.folder
            and driver.record is None
            and driver.nonce == driver.owner
            and driver.last
        ):
            slot = state.log[driver.last - 1] if driver.last <= len(state.log) else None
            if slot is not None and slot.stray and slot.nonce == driver.owner:
                return False
    checkpoints = [decision[:2] for decision in state.decided if not decision.lost]
    if (
        state.other is not None
    ):  # one log cannot fence the driver of another: what it decides becomes visible or is lost
        checkpoints = []
    return len(checkpoints) == len(set(checkpoints)) and nothing_is_left_behind(world, state)


def nothing_is_left_behind(world: World, state: State) -> bool:
    """I7, the final scan. A target that is restored from a backup has its older fence again: what
    comes, or comes back, waits for the next recovery.
    """
    if state.changed or state.returned:
        return True
    for place, sink in enumerate(state.sinks):
        left = [
            piece
            for piece in sink.pieces
            if piece.status in _LEFT_BEHIND and piece.attempt < sink.closed
        ]
        names = _names(state, place) if left else set()
        if any(_name(piece) not in names or piece.branch >= world.branches for piece in left):
            return False
    return True


def losses_are_real(world: World, state: State) -> bool:
    """I8."""
    rewound = bool(state.taken_back)
    if state.overlooked or (CHANGED in state.drivers and not state.changed and not rewound):
        return False
    explained = state.changed or state.returned or state.other is not None or rewound
    explained = explained or _was_forgotten(state)
    return (
        LOST not in state.drivers
        or explained
        or any(piece.status == ROLLED_BACK for piece in _pieces(state))
    )


def _was_forgotten(state: State) -> bool:
    """Whether the folder is an older copy, over which a driver has rolled back what it does not
    know. What a savepoint that was carried elsewhere does not hold, nobody looks for.
    """
    saved = state.saved if state.moved else None
    return any(
        found.lost
        and not (saved and is_behind(saved, found[:2]))
        and all(_name(piece) != found.name_in(place) for piece in sink.pieces)
        for found in state.decided
        for place, sink in enumerate(state.sinks)
    )


def rows_are_committed_exactly_once(world: World, state: State) -> bool:
    """Each range of rows is visible from one attempt only, and no range is left out."""
    for place, sink in enumerate(state.sinks):
        ranges = {
            name: found.range
            for found in state.decided
            for name in (found[:5], found.name_in(place))
        }
        ranges |= {found[1:6]: found[6] for found in state.ahead if found[0] == place}
        attempts = {
            name
            for piece in sink.pieces
            if piece.status in VISIBLE and (name := _name(piece)) in ranges
        }
        if len(attempts) != len({ranges[name] for name in attempts}):
            return False
    return _has_no_gap([found for found in state.decided if not found.lost])


def _name(piece: Piece) -> tuple[int, ...]:
    return (*piece[:4], piece.owner)


def _names(state: State, place: int) -> set[tuple[int, ...]]:
    """What decided pieces in a sink begin with."""
    whole = {found.name_in(place) for found in state.decided if place not in found.given_up}
    return whole.union(_ahead(state, place))


def _ahead(state: State, place: int) -> Iterator[tuple[int, ...]]:
    """The same of what a sink has ahead."""
    return (found[1:6] for found in state.ahead if found[0] == place)


def _has_no_gap(decided: list[Decided]) -> bool:
    ranges = {found.range for found in decided}
    return ranges == set(range(len(ranges)))


def is_settled(world: World, state: State) -> bool:
    """The goal: every piece is committed or gone and all rows are visible, or the job has stopped
    with a named error.
    """
    if any(driver in (REFUSED, LOST, CHANGED) for driver in state.drivers):
        return True
    if any(piece.status in _UNRESOLVED for piece in _pieces(state)):
        return False
    ranges = {found.range for found in state.decided if not found.lost}
    if ranges != set(range(world.checkpoints)):
        return False
    # each of the two logs may have a decision that the other driver has made its own
    if state.other is not None:
        return True
    history, _, _ = read(state.log)
    return not any(not decision.committed for decision in history.decisions)


def a_savepoint_of_a_stopped_job_has_all(world: World, state: State) -> bool:
    """A checkpoint that it lacks would be written again, or make its restore refuse."""
    saved = state.saved
    if saved is None or state.moved or not saved.drivers or saved.drivers != len(state.drivers):
        return True
    kept = {**dict(saved.lineage.ancestors), saved.lineage.id: saved.number}
    return all(found.lost or found.number <= kept.get(found.lineage, -1) for found in state.decided)


def no_driver_goes_on_over_half_a_rewind(world: World, state: State) -> bool:
    """A sink may have lost rows, and still have proof of them. A driver that was overtaken may be
    anywhere.
    """
    newest = read(state.log)[0].generation
    goes_on = any(
        driver.step in (IDLE, RUNNING) and driver.generation == newest for driver in _alive(state)
    )
    return not goes_on or all(
        found.lost or place in found.given_up
        for place, *of in state.taken_back
        for found in state.decided
        if found[:2] == tuple(of)
    )


def a_fork_begins_committed(world: World, state: State) -> bool:
    """What the savepoint holds of the old job is committed before another job begins."""
    return all(
        {*found.xids(place, world.branches)}
        <= {piece[:5] for piece in sink.pieces if piece.status in VISIBLE}
        for found in state.forked
        for place, sink in enumerate(state.sinks)
    )


INVARIANTS = {
    "I1 nothing is committed before its decision": nothing_is_committed_before_its_decision,
    "I2 nothing decided is aborted": nothing_decided_is_aborted,
    "I3 nothing undecided becomes visible": nothing_undecided_becomes_visible,
    "I4 committed is said on proof": committed_is_said_on_proof,
    "I5 identities are unique": identities_are_unique,
    "I6 a store without history stops": a_store_without_history_stops,
    "I7 one driver writes": one_driver_writes,
    "I8 losses are real": losses_are_real,
    "rows are committed exactly once": rows_are_committed_exactly_once,
    "a savepoint of a stopped job has all": a_savepoint_of_a_stopped_job_has_all,
    "no driver goes on over half a rewind": no_driver_goes_on_over_half_a_rewind,
    "a fork begins committed": a_fork_begins_committed,
    "no state is a dead end": there_is_a_way_on,
}

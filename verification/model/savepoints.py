"""Savepoints: made by reading, finished, carried elsewhere, restored; and what is done with one
that a sink is ahead of: rewind and fork.

`twophase.operations.savepoint.make`, `.savepoint_restore`, `twophase.operations.savepoint.finish`:

    makes     anyone reads the log: the newest committed checkpoint of a job that runs, or the
              newest decided one, with all that is decided and not committed up to it
    finishes  the log knows it and says that all of it is committed, and a start would go on; what
              commits it is a start
    carries   the job's drivers are gone, the savepoint waits beside an empty folder
    restores  a lineage that goes on with its numbers, once what is pending is committed

    rewinds   a restore that is not refused: the log's own decisions are committed, every attempt
              is closed, REWINDING is appended, so that only a restore that rewinds goes on,
              which begins all of it again; then each sink takes back what is after the
              savepoint, rows first, then proofs                            REWINDING, REWIND
    forks     another job commits what is pending under its old identity, fences and aborts
              nothing, and begins a history of its own, which is not in the model       FORK

Its copy of Spark's folder, and everything else that lies in it as bytes, is not in the model. What
the job has left in another folder, when a savepoint is carried away from it, nobody commits any
more: a sink that shows some of it makes the restore refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from twophase.coordinator.recovery.plan import StartPlan
from verification.model import log, planning, sinks, steps, targets
from verification.model.explore import Transition
from verification.model.pieces import VISIBLE, Piece, Sink
from verification.model.state import (
    DEAD,
    LOST,
    Budget,
    Decision,
    Driver,
    History,
    Lineage,
    Rewinding,
    Saved,
    State,
)
from verification.model.steps import with_driver, with_sink, without_driver
from verification.model.world import Mistake, World

# -- making ----------------------------------------------------------------------------------------


def makes(world: World, state: State) -> Iterator[Transition[State]]:
    """A savepoint is made, finished or carried elsewhere."""
    budget, alive = state.budget, _lives(state)
    history = log.read(state.log)[0]
    if budget.savepoints and history.lineages:
        fewer = state._replace(budget=budget._replace(savepoints=budget.savepoints - 1))
        for only in (True, False) if alive else (False,):
            saved = _saved(world, history, only_committed=only)
            if saved is not None:
                found = saved._replace(drivers=0 if alive else len(state.drivers))
                label = ("makes a savepoint of", "somebody", saved.lineage.id, saved.number)
                yield Transition(label, fewer._replace(saved=found), fault=True)
    if state.saved is not None:
        yield from _finishes(world, state, state.saved, history)
        if budget.deletions:
            fewer = state._replace(budget=budget._replace(deletions=budget.deletions - 1))
            gone = fewer._replace(saved=None)
            yield Transition(("deletes the savepoint", "somebody"), gone, fault=True)
        if budget.moves and not alive:
            yield _carries(state, state.saved)


def _lives(state: State) -> bool:
    return any(isinstance(driver, Driver) for driver in state.drivers)


def _saved(world: World, history: History, *, only_committed: bool) -> Saved | None:
    lineage = history.lineages[-1]
    only = only_committed or world.mistake is Mistake.SAVEPOINT_OF_COMMITTED
    mine = [
        found
        for found in history.decisions
        if found.lineage == lineage.id and (found.committed or not only)
    ]
    if not mine:
        return None
    pending = () if mine[-1].committed else tuple(log.uncommitted(history))
    if world.mistake is Mistake.SAVEPOINT_WITHOUT_PENDING:
        pending = ()
    proofs = targets.proofs_of(history, mine[-1], len(world.servers))
    before = targets.proofs_before(history, pending[0], len(world.servers)) if pending else ()
    return Saved(lineage, mine[-1].number, pending, proofs, before)


def _finishes(
    world: World, state: State, saved: Saved, history: History
) -> Iterator[Transition[State]]:
    mistake = world.mistake
    known = _is_decided(history, saved) or mistake is Mistake.FINISHED_IN_AN_OLDER_FOLDER
    done = mistake is Mistake.FINISHED_UNCOMMITTED or _is_committed(world, state, saved, history)
    if saved.pending and known and done:
        label = ("finishes the savepoint", "somebody")
        yield Transition(
            label, state._replace(saved=saved._replace(pending=(), before=())), fault=True
        )


def _is_decided(history: History, saved: Saved) -> bool:
    """Whether the log knows the decision, or what followed it: a folder restored from an older copy
    does not.
    """
    of = saved.lineage.id
    newest = log.newest_of(history, of)
    ends = [dict(one.ancestors).get(of, -1) for one in history.lineages]
    return max(newest.number if newest else -1, *ends, -1) >= saved.number


def _is_committed(world: World, state: State, saved: Saved, history: History) -> bool:
    """Whether the log says so, and a start would go on over what the targets have."""
    waits = any(
        found.lineage == saved.lineage.id and found.number <= saved.number
        for found in log.uncommitted(history)
    )
    if waits or world.mistake is Mistake.FINISHED_IN_AN_OLDER_FOLDER:
        return not waits
    plan = planning.planned(world, state, history, planning.GO_ON, planning.remembered(state))
    return isinstance(plan, StartPlan) and all(
        targets.proves(state.sinks[place], (lineage, number))
        for place, lineage, number in saved.proofs
    )


def _carries(state: State, saved: Saved) -> Transition[State]:
    """Nobody goes back to the folder that the job has left."""
    fewer = state.budget._replace(moves=state.budget.moves - 1)
    left = tuple(
        found._replace(lost=found.lost or is_behind(saved, found[:2])) for found in state.decided
    )
    carried = state._replace(log=(), decided=left, budget=fewer, moved=True)
    return Transition(("carries the savepoint elsewhere", "the operator"), carried, fault=True)


def is_behind(saved: Saved, checkpoint: tuple[int, ...]) -> bool:
    """Whether a checkpoint comes after a savepoint, or is of a lineage that it does not know."""
    lineage, number = checkpoint
    return number > dict(ancestors_of(saved)).get(lineage, -1)


def ancestors_of(saved: Saved) -> tuple[tuple[int, int], ...]:
    """The last checkpoint of each lineage that a restored one continues."""
    return (*saved.lineage.ancestors, (saved.lineage.id, saved.number))


# -- restoring -------------------------------------------------------------------------------------


def starts(world: World, state: State) -> Iterator[Transition[State]]:
    """A driver is started with the savepoint: one that may be refused, one that rewinds, or one of
    another job.
    """
    saved, budget, owner = state.saved, state.budget, len(state.drivers) + 1
    if saved is None:
        return
    base, ends = saved.lineage.base, ancestors_of(saved)
    lineage = Lineage(owner, base, saved.number + 1, ends, saved.proofs)
    driver = Driver(
        owner,
        steps.REMEMBER,
        begins=lineage,
        adopting=saved.pending,
        before=saved.before,
        savepoint=True,
    )
    about = (owner, saved.lineage.id, saved.number)
    rivals = budget.rivals - _lives(state)
    if budget.saved_restores and rivals >= 0:
        fewer = budget._replace(saved_restores=budget.saved_restores - 1, rivals=rivals)
        yield _started(state, driver, fewer, ("restores the savepoint", *about))
    if budget.rewinds and rivals >= 0:
        fewer = budget._replace(rewinds=budget.rewinds - 1, rivals=rivals)
        rewinding = driver._replace(rewinds=1)
        yield _started(state, rewinding, fewer, ("rewinds to the savepoint", *about))
    if budget.forks:
        fewer = budget._replace(forks=budget.forks - 1)
        forking = Driver(owner, steps.FORK, adopting=saved.pending, repair=steps.FORK)
        yield _started(state, forking, fewer, ("forks the savepoint", *about))


def traced(
    world: World, state: State, number: int, first: int, pending: tuple[int, ...]
) -> Iterator[Transition[State]]:
    """A driver that has reported of a savepoint which it restores.

    No history may have its checkpoint any more: then it is too old, and the driver says nothing; or
    those after it had no rows, so that no sink is ahead of it where the job has moved.

    Args:
        world: of the trace.
        state: before it starts.
        number: of its checkpoint.
        first: of the first checkpoint that follows.
        pending: of those that it has yet to commit.
    """
    owner, found = len(state.drivers) + 1, []

    def restores(of: Lineage, adopting: tuple[Decision, ...]) -> Driver:
        base = of.base if first > 1 or number == 0 else of.base + number
        begins = Lineage(owner, base, first, (*of.ancestors, (of.id, number)))
        return Driver(owner, steps.REMEMBER, begins=begins, adopting=adopting, savepoint=True)

    histories = (log.read(state.log)[0], *([state.copy] if state.copy else []))
    for history in histories:
        for place, decision in enumerate(history.decisions):
            if decision.number != number:
                continue
            [of] = [known for known in history.lineages if known.id == decision.lineage]
            known = history.decisions[: place + 1]
            found.append(restores(of, tuple(one for one in known if one.number in pending)))
    if not found:
        lineages = dict.fromkeys(of for history in histories for of in history.lineages)
        found = [Driver(owner, steps.REMEMBER), *(restores(of, ()) for of in lineages)]
    for driver in found:
        yield _started(state, driver, world.budget, ("restores the savepoint", owner))


def _started(
    state: State, driver: Driver, budget: Budget, label: tuple[object, ...]
) -> Transition[State]:
    started = state._replace(drivers=(*state.drivers, driver), budget=budget)
    return Transition(label, started, fault=True)


# -- rewind ----------------------------------------------------------------------------------------


def begin_rewind(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """From here on no start goes on that does not rewind: a sink may lack what it has proof of."""
    if world.mistake is Mistake.REWIND_UNRECORDED:
        unnoted = with_driver(state, driver._replace(step=steps.REWIND))
        yield Transition(("does not note the rewind", driver.owner), unnoted)
    else:
        assert driver.begins is not None
        record = Rewinding("REWINDING", driver.begins.ancestors)
        yield from log.append(world, state, driver, record, steps.REWIND)


def rewind(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """One sink takes rows back, or their proofs."""
    assert driver.begins is not None
    places = driver.takes_back
    if world.mistake is Mistake.REWIND_BEFORE_TAKEOVER:
        places = tuple(range(driver.sink, len(state.sinks)))
    if not places:
        yield Transition(
            ("has taken all back", driver.owner), with_driver(state, _rewound(world, driver))
        )
        return
    kept, place = dict(driver.begins.ancestors), places[0]
    sink = state.sinks[place]
    if sink.fence[0] > driver.generation > 0:
        fenced = without_driver(state, driver, DEAD)
        yield Transition(("is fenced by a sink", driver.owner, place), fenced)
        return
    rows = [piece for piece in sink.pieces if piece.status in VISIBLE and _is_after(piece, kept)]
    if rows and not (world.mistake is Mistake.REWIND_FIRST_SINK_ONLY and place > 0):
        taken = {*state.taken_back, *((place, *piece[:2]) for piece in rows)}
        left = state._replace(taken_back=tuple(sorted(taken)))
        half = _without_rows(sink, rows)._replace(half_rewound=world.tells_half)
        changed = with_sink(left, place, half)
        yield Transition(("takes rows back", driver.owner, place), changed)
        return
    going = driver._replace(takes_back=places[1:], sink=place + 1)
    going = going if places[1:] else _rewound(world, going)
    changed = with_sink(with_driver(state, going), place, _without_proofs(sink, kept))
    yield Transition(("takes proofs back", driver.owner, place), changed)


def _rewound(world: World, driver: Driver) -> Driver:
    then = steps.FENCE if world.mistake is Mistake.REWIND_BEFORE_TAKEOVER else steps.LINEAGE
    return driver._replace(step=then, sink=0, rewinds=2, takes_back=())


def settled(sink: Sink, kept: dict[int, int]) -> Sink:
    """`RewindsInSteps.settle_rewind`: rows go together here."""
    whole = any(piece.status in VISIBLE and _is_after(piece, kept) for piece in sink.pieces)
    return sink if whole else _without_proofs(sink, kept)


def _without_proofs(sink: Sink, kept: dict[int, int]) -> Sink:
    marks = tuple((found, min(mark, kept[found])) for found, mark in sink.marks if found in kept)
    return sink._replace(marks=marks, half_rewound=False)


def _is_after(piece: Piece, kept: dict[int, int]) -> bool:
    return piece.number > kept.get(piece.lineage, -1)


def _without_rows(sink: Sink, rows: list[Piece]) -> Sink:
    """Their proofs stay, as marks: not every target takes both at once."""
    marks = dict(sink.marks)
    for piece in rows:
        marks[piece.lineage] = max(marks.get(piece.lineage, -1), piece.number)
    left = tuple(piece for piece in sink.pieces if piece not in rows)
    return sink._replace(pieces=left, marks=tuple(sorted(marks.items())))


# -- fork ------------------------------------------------------------------------------------------


def fork(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Another job commits what the savepoint holds, beside a job that may live."""
    waiting = [
        (place, xid)
        for decision in driver.adopting
        for place in range(len(state.sinks))
        for xid in _xids(world, decision, place)
        if (place, xid[4]) not in driver.proven
    ]
    if world.mistake is Mistake.FORK_ABORTS:
        yield from _aborts(world, state, driver)
    if not waiting or world.mistake is Mistake.FORK_BEGINS_FIRST:
        ended = without_driver(state, driver, DEAD)
        forked = state.saved.pending if state.saved else ()
        yield Transition(("begins another job", driver.owner), ended._replace(forked=forked))
        return
    number = waiting[0][1][:2]
    for place, xid in waiting:
        if xid[:2] == number:
            yield from _commit(world, state, driver, place, xid)


def _xids(world: World, decision: Decision, place: int) -> list[tuple[int, int, int, int, int]]:
    return decision.xids(place, world.pieces_of(place, decision.attempt))


def _commit(
    world: World, state: State, driver: Driver, place: int, xid: tuple[int, int, int, int, int]
) -> Iterator[Transition[State]]:
    sink = state.sinks[place]
    answer, after = sinks.try_commit(world, world.servers[place], sink, xid)
    label = (driver.owner, place, *xid)
    if answer == sinks.LOSES:
        yield Transition(("finds lost", *label), without_driver(state, driver, LOST))
    elif answer == sinks.PROVEN:
        proven = tuple(sorted((*driver.proven, (place, xid[4]))))
        done = _done(world, state, driver._replace(proven=proven))
        yield Transition(("finds committed", *label), with_driver(state, done))
    elif after is not sink:
        yield Transition(("commits", *label), with_sink(state, place, after))


def _done(world: World, state: State, driver: Driver) -> Driver:
    """All pieces of a checkpoint are proven: the next one."""
    first = driver.adopting[0]
    pieces = sum(len(_xids(world, first, place)) for place in range(len(state.sinks)))
    if len(driver.proven) < pieces:
        return driver
    return driver._replace(adopting=driver.adopting[1:], proven=())


def _aborts(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """The mistake: it takes the job's pieces that the savepoint does not hold for orphans."""
    for place, sink in enumerate(state.sinks):
        held = {xid for decision in driver.adopting for xid in _xids(world, decision, place)}
        for piece in sink.pieces:
            if piece[:5] not in held and piece.status == "prepared":
                _, after = sinks.try_abort(world, world.servers[place], sink, piece[:5])
                label = ("aborts", driver.owner, place, *piece[:5])
                yield Transition(label, with_sink(state, place, after))

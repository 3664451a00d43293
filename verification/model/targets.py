"""What a target has to have proof of, targets that are restored or swapped, and a copy of the
folder beside a live driver.

`twophase.coordinator.commit.proofs` and `twophase.coordinator.recovery.recovery`. Every checkpoint
has pieces in every sink here, so the predecessor of a checkpoint is the one before it; that of a
lineage's first is the last one of its newest ancestor.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.explore import Transition
from verification.model.pieces import VISIBLE, Sink, Xid
from verification.model.state import (
    CHANGED,
    DEAD,
    REFUSED,
    Decision,
    Driver,
    History,
    Proofs,
    State,
)
from verification.model.steps import REMEMBER, with_sink, without_driver
from verification.model.world import Mistake, World

Named = tuple[int, int]
"""Lineage and number of a checkpoint."""

_STOPPED_BY_THE_PREDECESSOR = (Mistake.COMMIT_OUT_OF_ORDER, Mistake.RECOVER_NEWEST_ONLY)
"""Mistakes that the predecessor stops as well. They are made without it, so that what is there
for them is tried.
"""


def proves(sink: Sink, checkpoint: Named) -> bool:
    """Whether a target has proof that a checkpoint is committed: a piece of it, or the mark."""
    lineage, number = checkpoint
    return any(piece[:2] == checkpoint and piece.status in VISIBLE for piece in sink.pieces) or any(
        known == lineage and mark >= number for known, mark in sink.marks
    )


def predecessor(history: History, checkpoint: Named, place: int) -> Named | None:
    """`CompletedCheckpoint.predecessor`; of a decision that is adopted from another folder only
    what its number says.
    """
    lineage, number = checkpoint
    known = next((found for found in history.lineages if found.id == lineage), None)
    if known is None:
        return None
    if number > known.first:
        return _kept(history, (lineage, number - 1), place)
    return _proof_in(known.proofs, place)


def _kept(history: History, checkpoint: Named, place: int) -> Named | None:
    """The checkpoint, or the newest before it whose pieces in a sink were not given up:
    `AcceptedLoss.amend`.
    """
    given_up = any(
        found[:2] == checkpoint and place in found.given_up for found in history.decisions
    )
    return predecessor(history, checkpoint, place) if given_up else checkpoint


def _proof_in(proofs: Proofs, place: int) -> Named | None:
    return next((found[1:] for found in proofs if found[0] == place), None)


def proofs_of(history: History, decision: Decision, sinks: int) -> Proofs:
    """`Decision.proofs`: the newest checkpoint with pieces of each sink, as of a decision."""
    found = ((place, _kept(history, decision[:2], place)) for place in range(sinks))
    return tuple((place, *named) for place, named in found if named is not None)


def proofs_before(history: History, decision: Decision, sinks: int) -> Proofs:
    """`CompletedCheckpoint.predecessors`."""
    found = ((place, predecessor(history, decision[:2], place)) for place in range(sinks))
    return tuple((place, *named) for place, named in found if named is not None)


def lacks_predecessor(world: World, sink: Sink, history: History, xid: Xid, place: int) -> bool:
    """Whether a sink refuses to make a piece visible. What is proven itself needs nothing else."""
    if not world.asks or world.mistake in (
        Mistake.COMMIT_WITHOUT_PREDECESSOR,
        *_STOPPED_BY_THE_PREDECESSOR,
    ):
        return False
    before = predecessor(history, (xid[0], xid[1]), place)
    if before is None or proves(sink, before) or _is_taken_for_new(world, sink):
        return False
    return not any(piece[:5] == xid and piece.status in VISIBLE for piece in sink.pieces)


def _is_taken_for_new(world: World, sink: Sink) -> bool:
    """The mistake: a target that remembers no checkpoint counts as one that has had no rows yet."""
    if world.mistake is not Mistake.EMPTY_TAKEN_FOR_NEW:
        return False
    return not sink.marks and all(piece.status not in VISIBLE for piece in sink.pieces)


def _expected(driver: Driver, place: int) -> Named | None:
    """The newest checkpoint that a target has to have, as a driver knows it."""
    if driver.begins is not None:
        return driver.begins.ancestors[-1]
    history = driver.history
    if not history.lineages:
        return None
    current = history.lineages[-1]
    of = [one for one in history.decisions if one.lineage == current.id and one.committed]
    return _kept(history, of[-1][:2], place) if of else _proof_in(current.proofs, place)


def _shows(sink: Sink, checkpoint: Named) -> bool:
    """Whether the rows are in a target, whatever its marks say."""
    return any(piece[:2] == checkpoint and piece.status in VISIBLE for piece in sink.pieces)


def overlooked(state: State, driver: Driver) -> State:
    """For the invariants: a driver has recovered; was there a target that lacks
    what is committed?
    """
    expected = [_expected(driver, place) for place in range(len(state.sinks))]
    lacks = any(
        one is not None and not _shows(sink, one)
        for one, sink in zip(expected, state.sinks, strict=True)
    )
    return state._replace(overlooked=True) if state.changed and lacks else state


def is_overtaken(state: State, driver: Driver) -> bool:
    """`JobLog.check_fence`."""
    return len(state.log) > driver.last


def ends(state: State, driver: Driver, word: str) -> Transition[State]:
    """A driver that has asked the sinks again stops."""
    verb = {DEAD: "is fenced", REFUSED: "finds a sink ahead", CHANGED: "finds a target changed"}[
        word
    ]
    return Transition((verb, driver.owner), without_driver(state, driver, word))


# -- two folders -----------------------------------------------------------------------------------


def swapped(state: State) -> State:
    """The state as a driver over the other folder sees it."""
    return state._replace(log=state.other or (), other=state.log)


def aborted(state: State, place: int, xid: Xid) -> State:
    """For the invariants: a piece is aborted. Was it decided, and could another
    sink have shown it?
    """
    decided = any(found[:4] == xid[:4] for found in state.decided)
    shown = any(
        piece[:4] == xid[:4] and piece.status in VISIBLE
        for other, sink in enumerate(state.sinks)
        if other != place
        for piece in sink.pieces
    )
    return state._replace(rolled_back=True) if decided and shown else state


def copies(state: State) -> Iterator[Transition[State]]:
    """The operator copies the folder while its driver lives, and starts a driver over the copy at
    any time after that.
    """
    if state.budget.folders and state.other is None and state.log:
        fewer = state.budget._replace(folders=state.budget.folders - 1)
        yield Transition(
            ("copies the folder", "the operator"),
            state._replace(other=state.log, budget=fewer),
            fault=True,
        )
    elif (
        state.other is not None
        and not any(_is_over_the_copy(driver) for driver in state.drivers)
        and not state.standby
    ):
        driver = Driver(len(state.drivers) + 1, REMEMBER, folder=1)
        started = state._replace(drivers=(*state.drivers, driver), standby=True)
        yield Transition(("starts over the copy", driver.owner), started, fault=True)


def _is_over_the_copy(driver: Driver | str) -> bool:
    return isinstance(driver, Driver) and driver.folder == 1


# -- targets that are restored ---------------------------------------------------------------------


def target_restores(state: State) -> Iterator[Transition[State]]:
    """A target is backed up; later it is restored from a backup, or swapped for an empty one,
    whoever is running.
    """
    budget = state.budget
    if budget.swaps:
        yield from _swaps(
            state._replace(budget=budget._replace(swaps=budget.swaps - 1), changed=True)
        )
    yield from _failovers(state)
    if not budget.target_restores:
        return
    if state.backup is None:
        yield from _backs_up(state)
    fewer = state._replace(
        budget=budget._replace(target_restores=budget.target_restores - 1), changed=True
    )
    if state.backup is not None and state.sinks[state.backup[0]] != state.backup[1]:
        place, sink = state.backup
        yield Transition(
            ("restores a backup of", "the operator", place),
            with_sink(fewer, place, sink),
            fault=True,
        )
    yield from _swaps(fewer)


def _failovers(state: State) -> Iterator[Transition[State]]:
    """The same backup on another server."""
    budget = state.budget
    if not budget.failovers:
        return
    if state.backup is None:
        yield from _backs_up(state)
    else:
        place, sink = state.backup
        fewer = budget._replace(failovers=budget.failovers - 1)
        elsewhere = with_sink(
            state._replace(budget=fewer, changed=True), place, sink._replace(target=1)
        )
        yield Transition(
            ("fails over to a backup of", "the operator", place), elsewhere, fault=True
        )


def _backs_up(state: State) -> Iterator[Transition[State]]:
    for place, sink in enumerate(state.sinks):
        if sink.pieces:
            label = ("backs up", "the operator", place)
            yield Transition(label, state._replace(backup=(place, sink)), fault=True)


def _swaps(fewer: State) -> Iterator[Transition[State]]:
    for place in range(len(fewer.sinks)):
        yield Transition(
            ("swaps", "the operator", place), with_sink(fewer, place, Sink()), fault=True
        )

"""Which event of the product tells of which step of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.model import steps
from tests.model.explore import Label, Transition
from tests.model.pieces import Xid
from tests.model.state import Decision, Driver, State
from twophase import events

TOLD = frozenset(
    {
        "FENCE",
        "has recovered",
        "triggers",
        "hears an acknowledgement",
        "declines",
        "DECIDED",
        "finds committed",
        "has replayed",
    }
)
"""The steps that an event tells of before the driver goes on. Of others it tells later, see `Note`."""


class Note(NamedTuple):
    """What the acceptor remembers of one driver beside its state.

    Attributes:
        owed: the step that it has taken and has yet to tell of. Others may go on meanwhile.
        found: what its scan found, while it aborts that.
        orphans: what it has aborted and has yet to tell of: the sink and the pieces.
        committed: the checkpoint that it has committed and has yet to tell of.
        going: the checkpoints that it has to tell of before, as subsumed.
        gone: those that it has told of.
        tidied: whether it has folded the log, and whether it has subsumed in the sinks, since the last checkpoint.
    """

    owed: Label = ()
    found: tuple[Xid, ...] = ()
    orphans: tuple[int, tuple[Xid, ...]] | None = None
    committed: int | None = None
    going: tuple[tuple[int, int], ...] = ()
    gone: tuple[tuple[int, int], ...] = ()
    tidied: tuple[bool, bool] = (False, False)


class Point(NamedTuple):
    """Where the model can be: a state, a note for each driver, and which lineage id of the product is which."""

    state: State
    notes: tuple[Note, ...] = ()
    lineages: tuple[tuple[str, int], ...] = ()

    def with_note(self, number: int, note: Note) -> Point:
        """The point with another note of a driver."""
        return self._replace(notes=(*self.notes[: number - 1], note, *self.notes[number:]))


def after_step(point: Point, driver: Driver, transition: Transition[State]) -> Point:
    """The point after a step of a driver, with what has to be told of it later."""
    state, after = transition.state, transition.state.drivers[driver.owner - 1]
    note, before = point.notes[driver.owner - 1], point.state.budget
    point = point._replace(state=state)
    if not isinstance(after, Driver):
        return point
    if transition.label[0] in TOLD:
        note = note._replace(owed=transition.label)
    if after.work and not driver.work:
        note = note._replace(found=after.work)
    elif driver.work and not after.work:
        note = note._replace(found=(), orphans=(driver.sink, note.found))
    if transition.label[0] == "COMMITTED" and after.step != steps.RECOMMIT:
        older = [decision[:2] for decision in after.history.decisions if decision.committed][:-1]
        going = tuple(key for key in older if key not in note.gone)
        note = note._replace(committed=after.history.decisions[-1].number, going=going)
    folded = note.tidied[0] or state.budget.folds < before.folds
    subsumed = note.tidied[1] or state.budget.subsumptions < before.subsumptions
    return point.with_note(driver.owner, note._replace(tidied=(folded, subsumed)))


def tells_of(event: events.Event, label: Label, names: Sequence[str], branches: int) -> bool:
    """Whether an event tells of a step, lineages aside."""
    match event, label:
        case events.RecoveryStarted(), ("FENCE", _, int(generation)):
            return event.generation == generation
        case events.RecoveryFinished(), ("has recovered", _, int(generation)):
            return event.generation == generation
        case events.CheckpointTriggered(), ("triggers", _, _, *checkpoint):
            return _checkpoint(event) == checkpoint
        case events.CheckpointDeclined(), ("declines", _, _, *checkpoint):
            return _checkpoint(event) == checkpoint
        case events.CheckpointDecided(), ("DECIDED", _, Decision() as decision):
            return _checkpoint(event) == [*decision[1:4]]
        case events.SinkAcknowledged(), ("hears an acknowledgement", _, int(place), *checkpoint):
            return (event.sink, event.pieces) == (names[place], branches) and _checkpoint(event) == checkpoint
        case events.CheckpointReplayed(), ("has replayed", _, int(number)):
            return event.checkpoint == number
        case events.PieceCommitted(), ("finds committed", _, int(place), _, number, *_):
            return (event.sink, event.checkpoint) == (names[place], number)
        case _:
            return False


_OfAnAttempt = (
    events.CheckpointTriggered | events.SinkAcknowledged | events.CheckpointDeclined | events.CheckpointDecided
)


def _checkpoint(event: _OfAnAttempt) -> list[int]:
    return [event.checkpoint, event.attempt.generation, event.attempt.counter]


def same_pieces(point: Point, names: Sequence[str], pieces: Sequence[Xid], branches: int) -> Point | None:
    """Whether the product names the pieces that the model means.

    Args:
        point: knows some lineages.
        names: the product's, `job/lineage/checkpoint/attempt/sink/subtask`.
        pieces: the model's.
        branches: pieces of other branches are of task attempts that lost; which task it was is not compared.

    Returns:
        The point with what the names teach about lineages; None if they are not the same.
    """
    told = [_parse(name) for name in names]
    lineages = dict(point.lineages)
    for lineage in {lineage for lineage, _ in told} - lineages.keys():
        free = [piece[0] for piece in pieces if piece[0] not in lineages.values()]
        if not free:
            return None
        lineages[lineage] = free[0]
    known = [(lineages[lineage], *rest) for lineage, rest in told]
    if Counter(piece[:4] for piece in known) != Counter(piece[:4] for piece in pieces):
        return None
    if not {piece for piece in pieces if piece[4] < branches} <= set(known):
        return None
    return point._replace(lineages=tuple(sorted(lineages.items())))


def _parse(name: str) -> tuple[str, tuple[int, int, int, int]]:
    _, lineage, number, attempt, _, subtask = name.split("/")
    generation, counter = attempt.split(".")
    index, _ = subtask.split(".")
    return lineage, (int(number), int(generation), int(counter), int(index))

"""Whether what the product did is a behaviour of the model.

A trace is what the drivers of a run told their observers, in order, and when each of them ended. Between two events the model may take any steps
that nobody is told of: scans, tasks, aborts, records. So the acceptor carries all states that the model can be in
after the events so far; an event that no state explains is where the product and the model part.

    event                                        in the model
    RecoveryStarted, RecoveryFinished            FENCE accepted; all sinks closed
    CheckpointTriggered, SinkAcknowledged        triggers; hears an acknowledgement
    CheckpointDeclined, CheckpointDecided        declines; DECIDED accepted
    PieceCommitted, CommitRetried                finds committed; a piece of that sink is not proven yet
    CheckpointCommitted, CheckpointReplayed      COMMITTED was accepted and the sweep is over; has replayed
    OrphansAborted                               the last piece of a scan is gone: exactly what it had found
    CheckpointSubsumed                           an older committed checkpoint, each once, oldest first

An event is told after what it tells of. A driver that dies in between tells of no more, so its last step may go untold. Not compared: durations, row counts, the words of reasons, and which task a losing attempt was of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.model import recovery, sinks, steps
from tests.model.checkpoint import target_of
from tests.model.explore import Transition
from tests.model.pieces import Xid
from tests.model.protocol import driver_transitions, first_state
from tests.model.state import DEAD, Driver, State
from tests.model.steps import without_driver
from tests.model.told import TOLD, Note, Point, after_step, same_pieces, tells_of
from tests.model.world import World
from twophase import events


@dataclass(frozen=True)
class Ended(events.Event):
    """The driver's process is gone. Who ran it knows; it cannot tell of that itself."""


Trace = Sequence[tuple[int, events.Event]]

_MOST_POINTS = 200_000


class Rejected(AssertionError):
    """The trace is no behaviour of the model.

    Attributes:
        place: of the first event that nothing explains.
    """

    def __init__(self, trace: Trace, place: int) -> None:
        told = "\n".join(f"  {number}: {event}" for number, event in trace[: place + 1])
        super().__init__(f"nothing explains the last of these events:\n{told}")
        self.place = place


def accept(world: World, names: Sequence[str], trace: Trace) -> int:
    """Follow a trace through the model.

    Args:
        world: how many sinks and branches, and a budget that allows what may have happened.
        names: the sinks' names, in the order of the job.
        trace: (number of the driver in the order of their starts from 1, event).

    Returns:
        At how many points the model can be at the end.

    Raises:
        Rejected: names the first event that nothing explains.
    """
    points = first_points(world)
    for place, (number, event) in enumerate(trace):
        points = after_event(world, names, points, number, event)
        if not points:
            raise Rejected(trace, place)
    return len(points)


def first_points(world: World) -> set[Point]:
    """Where the model is before anything has been told."""
    return {Point(first_state(world))}


def after_event(
    world: World, names: Sequence[str], points: Iterable[Point], number: int, event: events.Event
) -> set[Point]:
    """Where the model can be once a driver has told of an event; nowhere if nothing explains it."""
    follower = _Follower(world, names, number)
    waiting, seen, after = list(points), set(points), set[Point]()
    while waiting:
        point = waiting.pop()
        after.update(follower.tell(point, event))
        for further in follower.untold(point):
            if further not in seen:
                seen.add(further)
                waiting.append(further)
        if len(seen) > _MOST_POINTS:
            raise AssertionError(f"more than {_MOST_POINTS} points explain the events before {event}")
    return after


class _Follower:
    """Takes points over one event.

    Args:
        world: the world.
        names: of the sinks.
        number: of the driver that tells the event.
    """

    def __init__(self, world: World, names: Sequence[str], number: int) -> None:
        self._world = world
        self._names = names
        self._number = number

    # -- steps that nobody is told of ----------------------------------------------------------------------------------

    def untold(self, point: Point) -> Iterator[Point]:
        """One step further without an event."""
        state = point.state
        for driver in state.drivers:
            if isinstance(driver, Driver):
                yield from self._untold_of(point, driver)
        for transition in sinks.tasks(self._world, state):
            yield point._replace(state=transition.state)
        if len(state.drivers) < self._number:
            for transition in recovery.starts(self._world, state):
                yield point._replace(state=transition.state, notes=(*point.notes, Note()))

    def _untold_of(self, point: Point, driver: Driver) -> Iterator[Point]:
        note = point.notes[driver.owner - 1]
        if note.owed or note.orphans is not None:
            return
        for transition in driver_transitions(self._world, point.state, driver):
            if _may(note, point.state, transition):
                yield after_step(point, driver, transition)

    # -- the event -----------------------------------------------------------------------------------------------------

    def tell(self, point: Point, event: events.Event) -> Iterator[Point]:
        """The points after the event, if it can be told now."""
        if len(point.state.drivers) < self._number:
            return
        driver, note = point.state.drivers[self._number - 1], point.notes[self._number - 1]
        if isinstance(event, Ended):
            yield self._end(point, driver)
        elif note.owed:
            yield from self._tell_step(point, note, event)
        elif note.orphans is not None:
            yield from self._tell_orphans(point, note, *note.orphans, event)
        elif isinstance(event, events.CommitRetried) and isinstance(driver, Driver):
            if self._is_unproven(driver, event):
                yield point
        elif note.committed is not None and isinstance(driver, Driver):
            yield from self._tell_committed(point, driver, note, event)

    def _end(self, point: Point, driver: Driver | str) -> Point:
        """What it has not told of by now is never told."""
        state = without_driver(point.state, driver, DEAD) if isinstance(driver, Driver) else point.state
        return point._replace(state=state).with_note(self._number, Note())

    def _tell_orphans(
        self, point: Point, note: Note, place: int, found: tuple[Xid, ...], event: events.Event
    ) -> Iterator[Point]:
        if isinstance(event, events.OrphansAborted) and self._names[place] == event.sink:
            told = same_pieces(point, event.pieces, found, self._world.branches)
            if told is not None:
                yield told.with_note(self._number, note._replace(orphans=None))

    def _is_unproven(self, driver: Driver, event: events.CommitRetried) -> bool:
        target, place = target_of(self._world, driver), self._names.index(event.sink)
        left = [branch for branch in range(self._world.branches) if (place, branch) not in driver.proven]
        return target is not None and target.number == event.checkpoint and bool(left)

    def _tell_committed(self, point: Point, driver: Driver, note: Note, event: events.Event) -> Iterator[Point]:
        if driver.step != steps.IDLE:
            return
        match event:
            case events.CheckpointSubsumed(checkpoint=number) if note.going and note.going[0][1] == number:
                told = note._replace(going=note.going[1:], gone=(*note.gone, note.going[0]))
                yield point.with_note(self._number, told)
            case events.CheckpointCommitted(checkpoint=number) if number == note.committed and not note.going:
                yield point.with_note(self._number, note._replace(committed=None, tidied=(False, False)))
            case _:
                pass

    def _tell_step(self, point: Point, note: Note, event: events.Event) -> Iterator[Point]:
        if not tells_of(event, note.owed, self._names, self._world.branches):
            return
        told: Point | None = point
        if isinstance(event, events.PieceCommitted):
            told = same_pieces(point, [event.piece], [note.owed[3:]], self._world.branches)
        if told is not None:
            yield told.with_note(self._number, note._replace(owed=()))


def _may(note: Note, state: State, transition: Transition[State]) -> bool:
    """Whether the product can take a step of the model without a word.

    Between COMMITTED and its event it sweeps, and folds and subsumes once at the most; it does neither at other times.
    It is never stopped where the model's rows end.
    """
    folds = transition.state.budget.folds < state.budget.folds
    subsumes = transition.state.budget.subsumptions < state.budget.subsumptions
    if note.committed is not None:
        return transition.label[0] not in TOLD and not (folds and note.tidied[0]) and not (subsumes and note.tidied[1])
    return not (folds or subsumes) and transition.label[0] != "is stopped"

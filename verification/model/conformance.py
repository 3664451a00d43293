"""Checks that the events that drivers have reported are a behaviour of the model.

Between two events the model may take any steps that emit no event: scans, tasks, aborts, records.
So the acceptor carries all points at which the model can be after the events so far; an event that
is possible at none of them is where the product and the model part.

    1. A step that emits an event owes it: its driver does nothing else before it has reported it.
    2. After COMMITTED, once its sweep is over, a driver has chores, in order; the last is to tell
       that it has committed. If the sweep fails, or one of them, it tells that all the same, and
       then that it has failed.
    3. Only an end forgives what is owed: a driver may die between a step and its event. Whoever
       tells something later has reported everything before. `verification.model.test_refused` lists
       what may be missing all the same.

A driver that will tell something else next does not take a step of which it would have to tell. A
task pre-commits when its piece is about to be looked for; earlier is the same to everybody. Every
sink is the reference sink: what sessions, locks and crashes of a server do between two events
changes when a driver gets its answer, and not which one it tells.

Not accepted, and reached by no seed: a driver that is asked to stop while a sink is down, and is
given one more micro-batch nevertheless. It then commits the older checkpoint as a recovery does,
without telling of COMMITTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, permutations
from typing import NamedTuple

from twophase.events import Event, JobRestarting, JobStopped, SinkAcknowledged
from verification.model import recovery, savepoints, sinks, steps
from verification.model.checkpoint import target_of
from verification.model.event_map import (
    ABORTED,
    COMMITTED,
    OF_NO_STEP,
    RETRIES,
    SUBSUMED,
    VERBS,
    Claim,
    Trace,
    TracedWorld,
)
from verification.model.explore import Transition
from verification.model.faults import faults
from verification.model.log import Log, first_of, replaced
from verification.model.pieces import Attempt
from verification.model.protocol import driver_transitions, first_state
from verification.model.state import DEAD, Driver, State
from verification.model.steps import without_driver
from verification.simulation.telling import Ended, Started

_COLLAPSE, _FOLD = "begins to subsume", "SUBSUMED"
_CHORES = frozenset({_COLLAPSE, _FOLD})
_LOOKS = frozenset({steps.SCAN, steps.RAISE, steps.SWEEP})
"""What comes after RAISE is refused, so FINAL_SCAN finds what was there before."""
_MOST_POINTS = 200_000

Upcoming = Mapping[int, Claim]
"""What each driver tells next; nothing if it ends before, or the trace does."""


class RejectedTraceError(AssertionError):
    """The trace is no behaviour of the model.

    Attributes:
        place: of the first event that nothing explains.
    """

    def __init__(self, trace: Trace, place: int) -> None:
        reported = "\n".join(f"  {number}: {event}" for number, event in trace[: place + 1])
        super().__init__(f"nothing explains the last of these events:\n{reported}")
        self.place = place


class Note(NamedTuple):
    """What is remembered of a driver beside its state.

    Attributes:
        owed: what it has to tell before it does anything else.
        chores: what it has to do, or tell, before it begins anything else.
        found: what it will have to tell of the orphans that it aborts.
        rounds: how many rounds of retries the commit under way has had.
        swept: which checkpoints it has deleted: those of its recovery without telling of it.
        recommitted, aborted: what its recovery has done so far.
    """

    owed: tuple[Claim, ...] = ()
    chores: tuple[str | Claim, ...] = ()
    found: Claim | None = None
    rounds: int = 0
    swept: tuple[tuple[int, int], ...] = ()
    recommitted: int = 0
    aborted: int = 0


class Point(NamedTuple):
    """Where the model can be: a state, a note for each driver, and which lineage of
    the product is which.
    """

    state: State
    notes: tuple[Note, ...] = ()
    lineages: tuple[tuple[str, int], ...] = ()

    def with_note(self, number: int, note: Note) -> Point:
        """The point with another note of a driver."""
        return self._replace(notes=(*self.notes[: number - 1], note, *self.notes[number:]))


def accept(world: TracedWorld, trace: Trace) -> int:
    """Follow a trace through the model.

    Args:
        world: of the trace.
        trace: (number of the driver in the order of their starts from 1, event).

    Returns:
        How many points were looked at.

    Raises:
        RejectedTraceError: names the first event that nothing explains.
    """
    failures = [_fails_next(trace, place) for place in range(len(trace))]
    of_a_step = [not isinstance(event, OF_NO_STEP) for _, event in trace]
    trace, failures = [*compress(trace, of_a_step)], [*compress(failures, of_a_step)]
    # whoever tells nothing more may do anything
    while trace and isinstance(trace[-1][1], Started | Ended):
        trace = trace[:-1]
    points, seen = {Point(first_state(world))}, 0
    folder = None
    for place, ((number, event), upcoming) in enumerate(
        zip(trace, _upcoming(world, trace), strict=True)
    ):
        follower = _Follower(world, upcoming)
        reached = follower.closure(points)
        seen += len(reached)
        if isinstance(event, Started):
            moved, folder = folder not in (None, event.folder), event.folder
            points = {
                after for point in reached for after in follower.start(point, event, moved=moved)
            }
        else:
            fails = failures[place]
            points = {
                after
                for point in reached
                for after in follower.tell(point, number, event, fails=fails)
            }
        if not points:
            raise RejectedTraceError(trace, place)
    return seen


def _fails_next(trace: Trace, place: int) -> bool:
    """Whether what a driver tells next is that it has failed."""
    number, _ = trace[place]
    following = next((event for other, event in trace[place + 1 :] if other == number), None)
    return isinstance(following, JobRestarting) or (
        isinstance(following, JobStopped) and following.cause != ""
    )


def _upcoming(world: TracedWorld, trace: Trace) -> list[Upcoming]:
    """For each place of the trace."""
    found: list[Upcoming] = []
    later: dict[int, Claim] = {}
    for number, event in reversed(trace):
        if isinstance(event, Started | Ended):
            later = {other: claim for other, claim in later.items() if other != number}
        else:
            later = {**later, number: world.said(event)}
        found.append(later)
    return found[::-1]


@dataclass(frozen=True)
class _Follower:
    """Takes points over one event.

    Args:
        world: of the trace.
        upcoming: with the event itself.
    """

    world: TracedWorld
    upcoming: Upcoming

    def closure(self, points: Iterable[Point]) -> set[Point]:
        """Everywhere that the model can be before the event is reported."""
        waiting, seen = list(points), set(points)
        while waiting:
            for further in self._silently(waiting.pop()):
                if further not in seen:
                    seen.add(further)
                    waiting.append(further)
            if len(seen) > _MOST_POINTS:
                raise AssertionError(
                    f"more than {_MOST_POINTS} points explain the events before {self.upcoming}"
                )
        return seen

    # -- steps that emit no event ------------------------------------------------------------------

    def _silently(self, point: Point) -> Iterator[Point]:
        for driver in point.state.drivers:
            if isinstance(driver, Driver) and not _has_to_tell(point, driver):
                yield from self._steps_of(point, driver)
                yield from self._rounds_of(point, driver)
        for transition in sinks.tasks(self.world, point.state):
            if self._is_looked_for(point.state, transition):
                yield point._replace(state=transition.state)

    def _steps_of(self, point: Point, driver: Driver) -> Iterator[Point]:
        note = point.notes[driver.owner - 1]
        for transition in driver_transitions(self.world, point.state, driver):
            after = transition.state.drivers[driver.owner - 1]
            due = note.chores[0] if note.chores and driver.step == steps.IDLE else None
            if not isinstance(after, Driver) or (
                driver.step == steps.IDLE and _chore(transition) != due
            ):
                continue
            noted = self._noted(
                note._replace(chores=note.chores[1:]) if due else note, driver, after, transition
            )
            if all(
                self._may_say(driver, claim) for claim in (*noted.owed[:1], noted.found) if claim
            ):
                state = transition.state._replace(budget=self.world.budget)
                yield point._replace(state=state).with_note(driver.owner, noted)

    def _may_say(self, driver: Driver, claim: Claim) -> bool:
        following = self.upcoming.get(driver.owner)
        return following is None or claim.is_like(following)

    def _noted(
        self, note: Note, driver: Driver, after: Driver, transition: Transition[State]
    ) -> Note:
        """Return what a step leaves to be reported and done."""
        claim, verb = self.world.of_step(transition.label), transition.label[0]
        if claim and verb == "has recovered":
            claim = claim._replace(facts=(*claim.facts, note.recommitted, note.aborted))
        if claim:
            note = note._replace(owed=(claim,))
        if after.work and not driver.work:
            note = note._replace(
                found=Claim(ABORTED, (driver.sink,), self.world.pieces(driver.sink, after.work))
            )
        elif driver.work and not after.work and note.found:
            note = note._replace(
                owed=(note.found,), found=None, aborted=note.aborted + len(note.found.pieces)
            )
        if verb == "has recovered":
            note = note._replace(
                swept=tuple(found[:2] for found in replaced(self.world, after.history))
            )
        if verb in ("COMMITTED", "has adopted", "has replayed"):
            note = note._replace(rounds=0)
        if verb == "has adopted" or (verb == "COMMITTED" and after.step == steps.RECOMMIT):
            note = note._replace(recommitted=note.recommitted + 1)
        elif verb == "COMMITTED":
            note = self._with_chores(note, after, transition.state.log)
        return note

    def _with_chores(self, note: Note, driver: Driver, log: Log) -> Note:
        newest = [decision.number for decision in driver.history.decisions if decision.committed][
            -1
        ]
        chores: list[str | Claim] = []
        if (newest + 1) % self.world.subsume_every == 0:
            chores.append(_COLLAPSE)
        if driver.last - first_of(log, driver.last + 1) + 1 >= self.world.fold_at:
            chores.append(_FOLD)
        gone = [
            decision[:2]
            for decision in replaced(self.world, driver.history)
            if decision[:2] not in note.swept
        ]
        chores += [Claim(SUBSUMED, (number,)) for _, number in gone]
        chores.append(Claim(COMMITTED, (newest,)))
        return note._replace(swept=(*note.swept, *gone), chores=tuple(chores))

    def _rounds_of(self, point: Point, driver: Driver) -> Iterator[Point]:
        """A round of commits is over, and some pieces are not proven yet: each of their
        sinks is reported.
        """
        following, note = self.upcoming.get(driver.owner), point.notes[driver.owner - 1]
        target = target_of(self.world, driver)
        if (
            following is None
            or following.verb != RETRIES
            or target is None
            or driver.step not in _COMMITTING
        ):
            return
        left = [
            place
            for place in range(len(self.world.servers))
            if any(
                (place, piece) not in driver.proven
                for piece in range(self.world.pieces_of(place, target.attempt))
            )
        ]
        for places in permutations(left) if left else ():
            claims = tuple(
                Claim(RETRIES, (place, target.number, note.rounds + 1)) for place in places
            )
            yield point.with_note(driver.owner, note._replace(owed=claims, rounds=note.rounds + 1))

    def _is_looked_for(self, state: State, transition: Transition[State]) -> bool:
        """Whether it matters by now that a task pre-commits."""
        _, _, place, _, _, *attempt, _ = transition.label
        for driver in state.drivers:
            if isinstance(driver, Driver) and driver.step in _LOOKS and driver.sink == place:
                return True
            if (
                isinstance(driver, Driver)
                and driver.step == steps.RUNNING
                and [*_attempt(driver)] == attempt
            ):
                following = self.upcoming.get(driver.owner)
                if (
                    following
                    and following.verb == VERBS[SinkAcknowledged]
                    and following.facts[0] == place
                ):
                    return True
        return False

    # -- the event ---------------------------------------------------------------------------------

    def start(self, point: Point, event: Started, *, moved: bool) -> Iterator[Point]:
        """A driver starts; if the job has moved, with a copy of its folder or without one."""
        state = point.state
        for verb in ("copies the folder", "loses the folder") if moved else ():
            [state] = [found.state for found in faults(self.world, state) if found.label[0] == verb]
        if event.savepoint is not None:
            begins = savepoints.traced(self.world, state, *event.savepoint)
        else:
            verb = "restores" if event.restores else "starts"
            begins = (
                found for found in recovery.starts(self.world, state) if found.label[0] == verb
            )
        for transition in begins:
            begun = transition.state._replace(budget=self.world.budget)
            yield point._replace(state=begun, notes=(*point.notes, Note()))

    def tell(self, point: Point, number: int, event: Event, *, fails: bool) -> Iterator[Point]:
        """The points after the event, if it is possible now of a driver that goes on or fails."""
        driver, note = point.state.drivers[number - 1], point.notes[number - 1]
        if isinstance(event, Ended):
            state = (
                without_driver(point.state, driver, DEAD)
                if isinstance(driver, Driver)
                else point.state
            )
            yield point._replace(state=state).with_note(number, Note())
        elif isinstance(driver, Driver) and (claim := _has_to_tell(point, driver)):
            lineages = _same_lineages(point, claim, self.world.said(event))
            if lineages is not None:
                reported = (
                    note._replace(owed=note.owed[1:])
                    if note.owed
                    else note._replace(chores=note.chores[1:])
                )
                yield point._replace(lineages=lineages).with_note(number, reported)
        elif fails and note.chores and note.chores[-1] == self.world.said(event):
            yield point.with_note(number, note._replace(chores=()))


_COMMITTING = frozenset({steps.RECOMMIT, steps.IDLE, steps.REPLAY})


def _chore(transition: Transition[State]) -> str | None:
    """The chore that a step begins."""
    verb, _, *details = transition.label
    begun = details[-1].kind if verb == "creates" else verb
    return begun if begun in _CHORES else None


def _attempt(driver: Driver) -> Attempt:
    return driver.generation, driver.counter


def _has_to_tell(point: Point, driver: Driver) -> Claim | None:
    """What a driver has to tell before anything else."""
    note = point.notes[driver.owner - 1]
    if note.owed:
        return note.owed[0]
    due = note.chores[0] if note.chores and driver.step == steps.IDLE else None
    return due if isinstance(due, Claim) else None


def _same_lineages(point: Point, claim: Claim, said: Claim) -> tuple[tuple[str, int], ...] | None:
    """Which lineage is which, if the event says what it should; None if it does not."""
    if not claim.is_like(said):
        return None
    pairs = {
        (reported[0], meant[0]) for reported, meant in zip(said.pieces, claim.pieces, strict=True)
    } | set(point.lineages)
    is_one_to_one = (
        len(pairs) == len({reported for reported, _ in pairs}) == len({meant for _, meant in pairs})
    )
    return tuple(sorted(pairs)) if is_one_to_one else None

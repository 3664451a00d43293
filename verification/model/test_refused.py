"""A trace of the product with one event too few, too many, in the wrong place or with another
content is refused.

The negative controls of the acceptor: each is tried on events of every kind, in traces of the
simulation. What no acceptor could notice is left out, and the docstring of the control says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from twophase import events
from twophase.ids import Attempt
from verification.model.conformance import RejectedTraceError, accept
from verification.model.event_map import OF_NO_STEP, VERBS, Trace, TracedWorld
from verification.simulation.supervisor import run
from verification.simulation.telling import Ended, Started

SHORT, MOST_SEEDS = 60, 2000
"""A control is tried on traces up to this length, looked for in so many seeds."""

pytestmark = pytest.mark.part("model")


Control = Callable[[Trace, int], Iterable[Trace]]
"""What becomes of a trace in which something is wrong with the event at a place."""


@cache
def reported(seed: int) -> Trace:
    return run(TracedWorld.options(seed)).reported


def is_refused(seed: int, trace: Trace) -> bool:
    try:
        accept(TracedWorld.of_run(TracedWorld.options(seed), trace), trace)
    except RejectedTraceError:
        return True
    return False


@pytest.fixture(params=[3, pytest.param(10, marks=pytest.mark.proof)], ids="{} of each".format)
def enough(request: pytest.FixtureRequest) -> int:
    """Events of each kind that a control is tried on."""
    return int(request.param)


def refuse_each(control: Control, enough: int) -> None:
    """Every control is refused, for some events of each kind."""
    left = dict.fromkeys(VERBS, enough)
    for seed in range(MOST_SEEDS):
        for place, (_, event) in enumerate(trace := reported(seed)):
            kind = type(event)
            if left.get(kind) and len(trace) <= SHORT and (changed := list(control(trace, place))):
                for other in changed:
                    assert is_refused(seed, other), (
                        f"seed {seed}: {event}, now {other[place : place + 2]}"
                    )
                left[kind] -= 1
        if not any(left.values()):
            return
    pytest.fail(f"{MOST_SEEDS} seeds have too few events: {left}")


def of_the_same(trace: Trace, place: int) -> list[int]:
    """The places at which a driver tells something."""
    number = trace[place][0]
    return [
        at
        for at, (other, event) in enumerate(trace)
        if other == number and not isinstance(event, (Started, Ended, *OF_NO_STEP))
    ]


def after(trace: Trace, place: int) -> list[events.Event]:
    """What a driver tells after an event."""
    return [trace[at][1] for at in of_the_same(trace, place) if at > place]


def is_of_no_pieces(trace: Trace, place: int) -> bool:
    """Whether an event is a replay of which no sink was asked: Spark may have asked for
    it twice, or never.

    Its checkpoint has no pieces, or the recovery before it has committed them.
    """
    before = [trace[at][1] for at in of_the_same(trace, place) if at < place]
    return isinstance(trace[place][1], events.CheckpointReplayed) and isinstance(
        before[-1], events.RecoveryFinished
    )


def test_a_trace_without_one_of_its_events_is_refused(enough: int) -> None:
    refuse_each(without, enough)


def without(trace: Trace, place: int) -> list[Trace]:
    """The trace without the event; none if that is a possible trace."""
    return [] if may_be_missing(trace, place) else [[*trace[:place], *trace[place + 1 :]]]


def may_be_missing(trace: Trace, place: int) -> bool:
    """Whether the trace without this event is one that a driver could have reported.

    - Its driver reports nothing more: it may have died before it reported this.
    - Its driver dies while it commits: pieces are proven in any order.
    - The last round of retries of a commit: the round before it may have proven them all.
    - The acknowledgement of an attempt that is not decided: it may have failed before.
    - An orphan, unless a recovery counts it afterwards: it may never have been pre-committed.
    - The replay of a checkpoint without pieces, or one that the recovery before it has committed.
    """
    event, later = trace[place][1], after(trace, place)
    match event:
        case events.PieceCommitted():
            return all(
                isinstance(other, events.PieceCommitted | events.CommitRetried) for other in later
            )
        case events.CommitRetried():
            return not any(
                isinstance(other, events.CommitRetried) and other.checkpoint == event.checkpoint
                for other in later
            )
        case events.SinkAcknowledged():
            return not is_decided(later, event.attempt)
        case events.OrphansAborted():
            return not is_recovering(later)
        case events.CheckpointReplayed():
            return not later or is_of_no_pieces(trace, place)
        case _:
            return not later


def is_decided(later: list[events.Event], attempt: Attempt) -> bool:
    return any(
        isinstance(event, events.CheckpointDecided) and event.attempt == attempt for event in later
    )


def is_recovering(later: list[events.Event]) -> bool:
    return any(isinstance(event, events.RecoveryFinished) for event in later)


def test_a_trace_with_an_event_twice_is_refused(enough: int) -> None:
    refuse_each(twice, enough)


def twice(trace: Trace, place: int) -> list[Trace]:
    """The trace with the event twice; none if that is a possible trace: a second orphan of the
    attempt, unless a recovery counts them afterwards, since orphans are not told apart.
    """
    is_uncounted = isinstance(trace[place][1], events.OrphansAborted) and not is_recovering(
        after(trace, place)
    )
    is_possible = is_uncounted or is_of_no_pieces(trace, place)
    return [] if is_possible else [[*trace[: place + 1], *trace[place:]]]


def test_a_trace_with_two_events_of_a_driver_in_the_wrong_order_is_refused(enough: int) -> None:
    refuse_each(swapped, enough)


IN_ANY_ORDER = [
    {events.PieceCommitted},
    {events.SinkAcknowledged},
    {events.CommitRetried},
    {events.OrphansAborted},
    {events.PieceCommitted, events.CommitRetried},
]
"""Sinks and pieces have no order; what was proven in one round may have been proven in the next;
what one scan has found another may have found.
"""


def swapped(trace: Trace, place: int) -> Iterator[Trace]:
    """The event and its driver's next one, or the one before."""
    places = of_the_same(trace, place)
    for first, second in pairwise(places):
        if (
            place in (first, second)
            and {type(trace[first][1]), type(trace[second][1])} not in IN_ANY_ORDER
        ):
            changed = list(trace)
            changed[first], changed[second] = changed[second], changed[first]
            yield changed


def test_a_trace_with_an_event_that_says_something_else_is_refused(enough: int) -> None:
    refuse_each(forged, enough)


def forged(trace: Trace, place: int) -> list[Trace]:
    """The traces with the event changed."""
    return [
        [*trace[:place], (trace[place][0], forgery), *trace[place + 1 :]]
        for forgery in altered(trace, place)
    ]


def altered(trace: Trace, place: int) -> Iterator[events.Event]:
    """The event with each of its fields changed.

    Left out is what nobody could know:

    - How many pieces an attempt has that is not decided, and how many orphans it leaves, unless a
      recovery counts them.
    - Which of several attempts that are not decided an orphan is of.
    - The lineage of a piece, where no other event names it. The task of a piece: no event says
      which ones there are.
    """
    event, later = trace[place][1], after(trace, place)
    sinks = next(event.sinks for _, event in trace if isinstance(event, Started))
    for name in [field.name for field in fields(event)]:
        value = getattr(event, name)
        new: list[Any] = []
        match name, value:
            case "pieces", int():
                assert isinstance(event, events.SinkAcknowledged)
                new = [value + 1, value - 1] if is_decided(later, event.attempt) else []
            case "generation" | "recommitted" | "aborted" | "checkpoint" | "retries", int():
                new = [value + 1, value - 1]
            case "attempt", Attempt(generation, counter):
                new = [Attempt(generation + 1, counter), Attempt(generation, counter + 1)]
            case "sink", str():
                new = [sink for sink in sinks if sink != value]
            case "piece", str():
                new = [*renamed(trace, value)]
            case "pieces", tuple():
                new = [
                    (*value, value[0]),
                    *((piece, *value[1:]) for piece in renamed(trace, value[0])),
                ]
                new += [value[1:], (*value, f"{value[0]}0")] if is_recovering(later) else []
            case _:
                pass
        for changed in new:
            yield replace(event, **{name: changed})


def renamed(trace: Trace, piece: str) -> Iterator[str]:
    """The piece with each part of its name changed, to an attempt that never was."""
    job, lineage, number, attempt, sink, subtask = piece.split("/")
    generation, counter = map(int, attempt.split("."))
    yield f"{job}/{lineage}/{int(number) + 1}/{attempt}/{sink}/{subtask}"
    yield f"{job}/{lineage}/{number}/{generation + 9}.{counter}/{sink}/{subtask}"
    yield f"{job}/{lineage}/{number}/{generation}.{counter + 9}/{sink}/{subtask}"
    yield f"{job}/{lineage}/{number}/{attempt}/another/{subtask}"
    if str(trace).count(f"{job}/{lineage}/") > 1:
        yield f"{job}/another/{number}/{attempt}/{sink}/{subtask}"

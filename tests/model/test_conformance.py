"""What the real coordinator tells of its runs is a behaviour of the model; what it cannot have told is not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.conformance import Ended, Rejected, Trace, accept, after_event, first_points
from tests.model.pieces import COMMITTED, SUBSUMED
from tests.model.told import Point
from tests.model.traced import SINKS, Run
from twophase import events
from twophase.coordinator.orphans import Orphans
from twophase.ids import Attempt

Happening = Callable[[Run], None]

HAPPENINGS: dict[str, Happening] = {
    "a checkpoint": lambda run: run.checkpoint(),
    "a replay": lambda run: run.replay(),
    "a declined attempt": lambda run: run.declined(5),
    "a task attempt that loses": lambda run: run.with_loser(),
    "a sink that refuses": lambda run: run.commit_fails(3),
    "a lost reply": lambda run: run.commit_fails(1),
    "a crash before the decision": lambda run: run.crashed(6, 4),
    "a crash after the decision": lambda run: run.crashed_after_the_decision(),
    "a crash in recovery": lambda run: run.crashed_in_recovery(14),
    "a driver that is taken over": lambda run: run.taken_over(22, 1),
    "a restore": lambda run: run.restored(),
}
STEPS, FEW = st.integers(0, 60), st.integers(0, 2)
ANYTHING: st.SearchStrategy[Happening] = st.one_of(
    st.just(Run.checkpoint),
    st.just(Run.replay),
    st.just(Run.with_loser),
    st.just(Run.restored),
    st.builds(lambda steps: lambda run: run.declined(steps), st.integers(0, 12)),
    st.builds(lambda tries: lambda run: run.commit_fails(tries), st.integers(1, 3)),
    st.builds(lambda steps, late: lambda run: run.crashed(steps, late), STEPS, STEPS),
    st.builds(lambda steps: lambda run: run.crashed_in_recovery(steps), STEPS),
    st.builds(lambda steps, times: lambda run: run.taken_over(steps, times), STEPS, FEW),
)


@pytest.fixture(autouse=True)
def quick_disk() -> Iterator[None]:
    """Nothing here dies with the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def job(happenings: Iterable[Happening], tidies: int = 0) -> Run:
    """A job to which all this happens; at the end it takes one more checkpoint."""
    with tempfile.TemporaryDirectory(prefix="twophase-model-") as folder:
        run = Run(Path(folder) / "job", tidies)
        for happening in happenings:
            happening(run)
        run.checkpoint()
    return run


# -- what happens is accepted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HAPPENINGS)
def test_the_model_explains(name: str) -> None:
    run = job([Run.checkpoint, HAPPENINGS[name]])
    assert accept(run.world(), SINKS, run.trace)


@settings(max_examples=int(os.environ.get("TWOPHASE_MODEL_RUNS", "20")))
@given(st.lists(ANYTHING, min_size=2, max_size=4))
def test_the_model_explains_whatever_happens(happenings: list[Happening]) -> None:
    run = job(happenings)
    assert accept(run.world(), SINKS, run.trace)


def test_the_model_explains_a_folded_log_and_collapsed_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.state.store._FOLD_EVERY", 2)
    monkeypatch.setattr("twophase.coordinator.coordinator._SUBSUME_SINKS_EVERY", 2)
    run = job([Run.checkpoint, Run.checkpoint, Run.replay], tidies=1)
    proofs = {event.proof for _, event in run.trace if isinstance(event, events.PieceCommitted)}
    assert "high-water mark" in proofs
    assert accept(run.world(), SINKS, run.trace)


def test_the_model_ends_where_the_product_ended() -> None:
    run = job([Run.checkpoint, HAPPENINGS["a driver that is taken over"]])
    points = first_points(run.world())
    for number, event in run.trace:
        points = after_event(run.world(), SINKS, points, number, event)
    decided = {event.checkpoint for _, event in run.trace if isinstance(event, events.CheckpointCommitted)}
    for point in points:
        for sink in point.state.sinks:
            visible = {piece.number for piece in sink.pieces if piece.status in (COMMITTED, SUBSUMED)}
            assert visible >= decided


# -- what cannot have happened is rejected -----------------------------------------------------------------------------

MAY_BE_MISSING = (events.CommitRetried, events.OrphansAborted, Ended)
"""A retry changes nothing; an orphan may not have been there. Nor is an acknowledgement missed where it was in vain."""
IN_ANY_ORDER = (events.CommitRetried, events.PieceCommitted, events.SinkAcknowledged, events.OrphansAborted, Ended)
"""Among events of the same kind. The model does not say in which order a driver asks its sinks."""


@pytest.fixture(scope="module")
def told() -> tuple[Run, list[set[Point]]]:
    """A run, and where the model can be before each of its events."""
    names = ["a declined attempt", "a task attempt that loses", "a crash after the decision", "a replay", "a restore"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        run = job(HAPPENINGS[name] for name in names)
    points = [first_points(run.world())]
    for number, event in run.trace:
        points.append(after_event(run.world(), SINKS, points[-1], number, event))
    return run, points


def is_rejected(told: tuple[Run, list[set[Point]]], place: int, rest: Trace) -> bool:
    """Whether the run is rejected if from `place` on it goes on with `rest`."""
    run, before = told
    points = before[place]
    for number, event in rest:
        points = after_event(run.world(), SINKS, points, number, event)
        if not points:
            return True
    return False


def test_an_event_that_is_missing_is_noticed(told: tuple[Run, list[set[Point]]]) -> None:
    trace = told[0].trace
    declined = {event.attempt for _, event in trace if isinstance(event, events.CheckpointDeclined)}
    for place, (number, event) in enumerate(trace):
        is_last = all(other != number or isinstance(later, Ended) for other, later in trace[place + 1 :])
        in_vain = isinstance(event, events.SinkAcknowledged) and event.attempt in declined
        if not (is_last or in_vain or isinstance(event, MAY_BE_MISSING)):
            assert is_rejected(told, place, trace[place + 1 :]), event


def test_an_event_that_is_told_twice_is_noticed(told: tuple[Run, list[set[Point]]]) -> None:
    trace = told[0].trace
    for place, (_, event) in enumerate(trace):
        if not isinstance(event, events.CommitRetried | Ended):
            assert is_rejected(told, place, [trace[place], *trace[place:]]), event


def test_two_events_in_the_wrong_order_are_noticed(told: tuple[Run, list[set[Point]]]) -> None:
    trace = told[0].trace
    for place, ((number, event), (other, following)) in enumerate(pairwise(trace)):
        kinds = {type(event), type(following)}
        if number == other and not (len(kinds) == 1 and kinds <= set(IN_ANY_ORDER)) and Ended not in kinds:
            swapped = [trace[place + 1], trace[place], *trace[place + 2 :]]
            assert is_rejected(told, place, swapped), (event, following)


def forged(event: events.Event) -> Iterator[events.Event]:
    """What the event would have been if the driver had done something else."""
    if isinstance(event, events.RecoveryStarted | events.RecoveryFinished):
        yield replace(event, generation=event.generation + 1)
    if isinstance(event, events.CheckpointTriggered | events.CheckpointDecided | events.CheckpointDeclined):
        yield replace(event, attempt=Attempt(event.attempt.generation, event.attempt.counter + 1))
        yield replace(event, attempt=Attempt(event.attempt.generation + 1, event.attempt.counter))
    if isinstance(event, events.SinkAcknowledged):
        yield replace(event, pieces=event.pieces - 1)
    if isinstance(event, events.OrphansAborted):
        yield replace(event, pieces=event.pieces[1:])
    if isinstance(event, events.PieceCommitted):
        yield replace(event, sink=next(name for name in SINKS if name != event.sink))
    if isinstance(checkpoint := getattr(event, "checkpoint", None), int):
        changed: Any = event
        yield replace(changed, checkpoint=checkpoint + 1)


def test_an_event_that_says_something_else_is_noticed(told: tuple[Run, list[set[Point]]]) -> None:
    trace = told[0].trace
    for place, (number, event) in enumerate(trace):
        for forgery in forged(event):
            assert is_rejected(told, place, [(number, forgery), *trace[place + 1 :]]), forgery


# -- a product that is wrong is rejected -------------------------------------------------------------------------------


def test_a_product_that_leaves_orphans_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Orphans, "abort", lambda self, below, kept: 0)
    run = job([HAPPENINGS["a declined attempt"]])
    with pytest.raises(Rejected):
        accept(run.world(), SINKS, run.trace)


def test_a_product_that_forgets_to_commit_what_is_decided_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twophase.coordinator.coordinator.commit_decided", lambda history, commit: 0)
    run = Run(tmp_path / "job")
    run.crashed_after_the_decision()
    with pytest.raises(Rejected):
        accept(run.world(), SINKS, run.trace)

"""The pending checkpoint: complete when every sink has acknowledged pieces that belong
together (hazard H14).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from harness.memory_driver import JOB, offsets
from twophase.contract.committable import Committable
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.commit.state_machine import Action, Phase, Signal
from twophase.errors import DeclinedError, StopJobError
from twophase.ids import Attempt, Subtask


def pending(*sinks: str) -> PendingCheckpoint:
    found = PendingCheckpoint(
        job=JOB,
        lineage="a",
        checkpoint=3,
        attempt=Attempt(2, 5),
        offsets=offsets(3),
        sinks=sinks,
        trigger_time_ms=7,
    )
    found.operator_states = {"functions": {"seen": [1]}}
    return found


def piece(
    found: PendingCheckpoint, sink: str, index: int = 0, task_attempt: int = 0
) -> Committable:
    return Committable(found.transaction(sink), Subtask(index, task_attempt), "memory:x", 1)


def test_it_is_complete_once_every_sink_has_acknowledged() -> None:
    found = pending("facts", "lake")
    assert found.missing() == ["facts", "lake"]
    assert found.acknowledge("lake", [piece(found, "lake")]) is Action.WAIT
    assert found.missing() == ["facts"]
    assert found.acknowledge("facts", []) is Action.DECIDE
    assert (found.missing(), found.phase) == ([], Phase.ACKNOWLEDGED)


def test_the_completed_checkpoint_holds_all_that_was_acknowledged() -> None:
    found = pending("facts", "lake")
    pieces = (piece(found, "facts", 0), piece(found, "facts", 1))
    found.acknowledge("facts", pieces)
    found.acknowledge("lake", [])
    completed = found.completed(duration_ms=12)
    assert completed.committables == {"facts": pieces, "lake": ()}
    assert (completed.checkpoint, completed.attempt, completed.offsets) == (
        3,
        Attempt(2, 5),
        offsets(3),
    )
    assert (completed.functions, completed.trigger_time_ms, completed.duration_ms) == (
        {"seen": [1]},
        7,
        12,
    )
    assert completed.rows == 2


def test_it_cannot_be_completed_before_every_sink_has_acknowledged() -> None:
    found = pending("facts", "lake")
    found.acknowledge("facts", [])
    with pytest.raises(StopJobError, match="Checkpoint 3 is PENDING, not complete"):
        found.completed(0)


@pytest.mark.parametrize(
    "other",
    [
        {"job": "payments"},
        {"lineage": "b"},
        {"checkpoint": 2},
        {"attempt": Attempt(2, 4)},
        {"attempt": Attempt(1, 5)},
        {"sink": "lake"},
        {"offsets_hash": "0"},
    ],
)
def test_h14_a_piece_of_another_transaction_is_refused(other: dict[str, Any]) -> None:
    found = pending("facts", "lake")
    foreign = replace(
        piece(found, "facts"), transaction=replace(found.transaction("facts"), **other)
    )
    with pytest.raises(DeclinedError, match="pieces that do not belong together"):
        found.acknowledge("facts", [piece(found, "facts", 1), foreign])
    assert found.missing() == ["facts", "lake"]


def test_h14_two_attempts_of_one_task_are_refused() -> None:
    found = pending("facts")
    with pytest.raises(DeclinedError, match="do not belong together"):
        found.acknowledge("facts", [piece(found, "facts", 0, 1), piece(found, "facts", 0, 2)])


def test_a_sink_that_the_job_does_not_have_cannot_acknowledge() -> None:
    with pytest.raises(DeclinedError):
        pending("facts").acknowledge("lake", [])


@pytest.mark.parametrize("signal", [Signal.DECLINED, Signal.EXPIRED])
def test_an_acknowledgement_after_a_decline_is_ignored(signal: Signal) -> None:
    found = pending("facts")
    assert found.signal(signal) is Action.ABORT
    assert found.acknowledge("facts", [piece(found, "facts")]) is Action.IGNORE
    assert (found.phase, found.missing()) == (Phase.DECLINED, ["facts"])


def test_sinks_may_acknowledge_from_threads_of_their_own() -> None:
    sinks = [f"sink{number}" for number in range(16)]
    found, barrier, actions = pending(*sinks), threading.Barrier(len(sinks)), list[Action]()

    def acknowledge(sink: str) -> None:
        barrier.wait(60)
        actions.append(found.acknowledge(sink, [piece(found, sink)]))

    threads = [threading.Thread(target=acknowledge, args=(sink,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(action.name for action in actions) == ["DECIDE"] + ["WAIT"] * 15
    assert len(found.completed(0).committables) == 16

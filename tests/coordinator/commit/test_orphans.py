"""Closing attempts: afterwards nothing of an older attempt is left in a sink, and nothing can
come (hazard H44).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from harness.memory_driver import JOB, offsets
from twophase.contract.committable import Committable
from twophase.coordinator.commit.orphans import Orphans, pieces_of
from twophase.errors import FencedError
from twophase.events import Event, Observers, OrphansAborted
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.testing.memory import MemoryTarget, OpenMemorySink

OLD, NEW = Attempt(1, 1), Attempt(2, 0)


class Sink(OpenMemorySink):
    """Notes the order of calls; `before` runs something in front of one of them."""

    def __init__(self, target: MemoryTarget) -> None:
        super().__init__(target, JOB, "facts")
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.before.pop(call, lambda: None)()

    def in_doubt(self) -> Sequence[Committable]:
        self._note("scan")
        return super().in_doubt()

    def abort(self, committables: Sequence[Committable]) -> None:
        self._note("abort")
        super().abort(committables)

    def fence(self, attempt: Attempt) -> None:
        self._note("fence")
        super().fence(attempt)


@pytest.fixture
def target() -> MemoryTarget:
    return MemoryTarget()


@pytest.fixture
def sink(target: MemoryTarget) -> Sink:
    """A sink of the job, fenced by generation 1."""
    sink = Sink(target)
    sink.fence(Attempt(1, 0))
    sink.calls.clear()
    return sink


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def orphans(sink: Sink, heard: list[Event]) -> Orphans:
    return Orphans(JOB, "facts", sink, Observers(heard.append), lambda found: found)


def pre_commit(
    sink: OpenMemorySink, attempt: Attempt = OLD, checkpoint: int = 0, index: int = 0, task: int = 0
) -> Committable:
    transaction = TransactionId(JOB, "a", checkpoint, attempt, "facts", "hash")
    piece = sink.write_direct(transaction, Subtask(index, task), [{"id": checkpoint * 10 + index}])
    assert piece is not None
    return piece


def prepared(target: MemoryTarget) -> list[Committable]:
    return [piece for piece, _ in target.prepared.values()]


def completed(*pieces: Committable) -> CompletedCheckpoint:
    transaction = pieces[0].transaction
    return CompletedCheckpoint(
        JOB, "a", transaction.checkpoint, transaction.attempt, 0, offsets(0), {}, {"facts": pieces}
    )


def test_what_an_older_attempt_left_is_aborted(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    pre_commit(sink, index=0)
    pre_commit(sink, index=1)
    assert orphans.close(NEW, frozenset()) == 2
    assert target.prepared == {}
    assert target.visible == []


def test_the_fence_stands_between_two_scans(sink: Sink, orphans: Orphans) -> None:
    pre_commit(sink)
    orphans.close(NEW, frozenset())
    assert sink.calls == ["scan", "abort", "fence", "scan"]


def test_orphans_that_may_hold_locks_are_gone_before_the_fence_is_raised(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    pre_commit(sink)
    seen: list[int] = []
    sink.before["fence"] = lambda: seen.append(len(target.prepared))
    orphans.close(NEW, frozenset())
    assert seen == [0]


def test_h44_what_a_late_task_pre_commits_before_the_fence_holds_is_aborted(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    sink.before["fence"] = lambda: pre_commit(sink, index=7)
    assert orphans.close(NEW, frozenset()) == 1
    assert target.prepared == {}


def test_h44_a_sink_without_orphans_is_scanned_again_after_its_fence(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    sink.before["fence"] = lambda: pre_commit(sink, index=7)
    assert not orphans.close_if_none(NEW, frozenset())
    assert sink.calls == ["scan", "fence", "scan"]
    assert len(target.prepared) == 1, "`close` has to follow, which asks before it aborts"


def test_h44_a_sink_without_orphans_is_closed_by_its_fence(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    assert orphans.close_if_none(NEW, frozenset())
    with pytest.raises(FencedError):
        pre_commit(sink)
    assert target.prepared == {}


def test_h44_after_the_final_scan_a_late_task_can_leave_nothing(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    orphans.close(NEW, frozenset())
    with pytest.raises(FencedError):
        pre_commit(sink)
    assert target.prepared == {}


def test_i2_pieces_that_a_decision_lists_are_kept(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    decided, _ = pre_commit(sink, checkpoint=0), pre_commit(sink, checkpoint=1)
    assert orphans.close(NEW, pieces_of([completed(decided)])) == 1
    assert prepared(target) == [decided]


def test_a_task_attempt_that_lost_to_another_of_its_task_is_an_orphan(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    winner, _ = pre_commit(sink, task=2), pre_commit(sink, task=1)
    assert orphans.close(NEW, pieces_of([completed(winner)])) == 1
    assert prepared(target) == [winner]


def test_a_piece_that_a_decision_lists_keeps_only_itself_not_one_of_another_sink(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    here = pre_commit(sink)
    elsewhere = replace(here, transaction=replace(here.transaction, sink="lake"))
    assert orphans.close(NEW, pieces_of([completed(elsewhere)])) == 1
    assert prepared(target) == []


def test_pieces_of_the_attempt_that_stays_open_and_of_newer_ones_are_kept(
    sink: Sink, orphans: Orphans, target: MemoryTarget
) -> None:
    _, open_, newer = (pre_commit(sink, Attempt(1, counter), counter) for counter in (1, 2, 3))
    orphans.close(Attempt(1, 2), frozenset())
    assert prepared(target) == [open_, newer]


def test_pieces_of_another_job_or_sink_are_not_touched(
    orphans: Orphans, target: MemoryTarget
) -> None:
    others = []
    for job, name in (("payments", "facts"), (JOB, "lake")):
        other = OpenMemorySink(target, job, name)
        other.fence(Attempt(1, 0))
        piece = other.write_direct(
            TransactionId(job, "a", 0, OLD, name, "hash"), Subtask(0, 0), [{"id": 1}]
        )
        others.append(piece)
    assert orphans.close(NEW, frozenset()) == 0
    assert prepared(target) == others


def test_i7_a_fenced_driver_gets_a_fenced_error(sink: Sink, orphans: Orphans) -> None:
    sink.fence(Attempt(3, 0))
    with pytest.raises(FencedError):
        orphans.close(NEW, frozenset())


def test_an_abort_that_fails_leaves_the_attempt_open_for_the_next_recovery(
    sink: Sink, orphans: Orphans
) -> None:
    pre_commit(sink)

    def fail() -> None:
        raise ConnectionError("gone")

    sink.before["abort"] = fail
    with pytest.raises(ConnectionError):
        orphans.close(NEW, frozenset())
    assert "fence" not in sink.calls
    assert orphans.close(NEW, frozenset()) == 1


def test_closing_twice_is_closing_once(sink: Sink, orphans: Orphans) -> None:
    pre_commit(sink)
    assert [orphans.close(NEW, frozenset()), orphans.close(NEW, frozenset())] == [1, 0]


def test_observers_hear_which_pieces_were_removed_and_nothing_where_there_was_nothing(
    sink: Sink, orphans: Orphans, heard: list[Event]
) -> None:
    orphans.close(Attempt(1, 1), frozenset())
    assert heard == []
    pre_commit(sink, index=3, task=9)
    orphans.close(NEW, frozenset())
    assert heard == [OrphansAborted(JOB, "facts", (f"{JOB}/a/0/1.1/facts/3.9",))]

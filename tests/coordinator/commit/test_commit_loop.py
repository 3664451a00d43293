"""Phase 2: a decided checkpoint is committed until every piece is proven committed,
never less (I2, I4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.memory_driver import JOB, NOTE, Driver, ManualClock, offsets, visible
from tests.coordinator.conftest import in_part
from tests.operations.repair.test_accept_loss import repair as accept_loss
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.errors import (
    FencedError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.events import CommitRetried, Event, Observers, PieceCommitted
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Answer = Sequence[CommitOutcome] | Exception


class Scripted(OpenMemorySink):
    """Answers commits from a script, then that everything is committed; notes what it was asked."""

    def __init__(self, *script: Answer) -> None:
        super().__init__(MemoryTarget(), JOB, "facts")
        self.script = list(script)
        self.asked: list[list[int]] = []
        self.retries: list[int] = []

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.asked.append([request.committable.subtask.index for request in requests])
        self.retries.append(requests[0].retries)
        answer = self.script.pop(0) if self.script else [Committed()] * len(requests)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    """A commit_loop with scripted sinks, and everything that can be seen of it."""

    def __init__(self, backoff_max_s: float = 30.0, **sinks: Scripted) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.stopping = threading.Event()
        self.commit_loop = CommitLoop(
            sinks, Observers(self.events.append), self.clock, self.stopping, 0.1, backoff_max_s
        )

    def commit(self, **pieces: int) -> bool:
        return self.commit_loop.commit(completed(**pieces))

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def completed(**pieces: int) -> CompletedCheckpoint:
    """Checkpoint 3 with so many pieces of two rows in each sink."""
    attempt = Attempt(2, 5)
    committables = {
        sink: tuple(
            Committable(
                TransactionId(JOB, "a", 3, attempt, sink, "hash"), Subtask(index, 0), "memory:x", 2
            )
            for index in range(count)
        )
        for sink, count in pieces.items()
    }
    return CompletedCheckpoint(JOB, "a", 3, attempt, 0, offsets(3), {}, committables)


def test_every_piece_of_every_sink_is_committed_with_one_call_a_sink() -> None:
    facts, lake = Scripted(), Scripted()
    assert Bench(facts=facts, lake=lake).commit(facts=3, lake=1)
    assert (facts.asked, lake.asked) == ([[0, 1, 2]], [[0]])


def test_sinks_commit_in_the_order_of_the_job_whichever_acknowledged_first() -> None:
    bench = Bench(facts=Scripted(), lake=Scripted(), hive=Scripted())
    assert bench.commit(lake=1, hive=1, facts=1)
    assert [event.sink for event in bench.events if isinstance(event, PieceCommitted)] == [
        "facts",
        "lake",
        "hive",
    ]


def test_h10_a_sink_without_pieces_is_not_asked() -> None:
    facts, lake = Scripted(), Scripted()
    assert Bench(facts=facts, lake=lake).commit(facts=1, lake=0)
    assert lake.asked == []


def test_hd6_an_empty_checkpoint_is_committed() -> None:
    bench = Bench(facts=Scripted())
    assert bench.commit(facts=0)
    assert bench.clock.waits == []


def test_h12_what_is_committed_already_is_done_and_its_proof_is_reported() -> None:
    bench = Bench(facts=Scripted([AlreadyCommitted("ledger row"), Committed()]))
    assert bench.commit(facts=2)
    assert bench.of(PieceCommitted) == [
        PieceCommitted(JOB, 3, "facts", f"{JOB}/a/3/2.5/facts/0.0", "ledger row"),
        PieceCommitted(JOB, 3, "facts", f"{JOB}/a/3/2.5/facts/1.0", ""),
    ]


def test_all_pieces_of_a_sink_are_asked_for_again_until_none_is_left_and_reported_once() -> None:
    """Its target may have been restored from a backup while it was waited for."""
    done = AlreadyCommitted("ledger row")
    waits: Answer = [done, RetryLater("lock"), done]
    facts, lake = Scripted([Committed(), RetryLater("lock"), Committed()], waits), Scripted()
    bench = Bench(facts=facts, lake=lake)
    assert bench.commit(facts=3, lake=1)
    assert (facts.asked, facts.retries) == ([[0, 1, 2]] * 3, [0, 1, 2])
    assert lake.asked == [[0]]
    reported = [(vars(one)["sink"], vars(one)["piece"]) for one in bench.of(PieceCommitted)]
    assert len(reported) == len({*reported}) == 4


def test_a_piece_that_was_committed_and_is_gone_at_the_next_try_is_lost() -> None:
    facts = Scripted([Committed(), RetryLater("down")], [Lost("no ledger row"), Committed()])
    with pytest.raises(LostCommittableError, match="1 of its pieces are neither"):
        Bench(facts=facts).commit(facts=2)


def test_the_wait_doubles_up_to_its_maximum() -> None:
    bench = Bench(backoff_max_s=1.0, facts=Scripted(*[[RetryLater("down")]] * 7))
    assert bench.commit(facts=1)
    assert bench.clock.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


def test_h5_each_retry_says_how_long_the_pieces_have_been_waiting() -> None:
    bench = Bench(facts=Scripted(*[[RetryLater("down")]] * 3))
    assert bench.commit(facts=1)
    assert [vars(event)["waiting_s"] for event in bench.of(CommitRetried)] == pytest.approx(
        [0.0, 0.1, 0.3]
    )


def test_h15_a_commit_is_retried_far_beyond_any_patience() -> None:
    facts = Scripted(*[ConnectionError("down")] * 2000)
    bench = Bench(facts=facts)
    assert bench.commit(facts=1)
    assert len(facts.asked) == 2001
    assert bench.clock.now_s > 50_000


def test_h15_a_sink_that_is_down_does_not_hold_up_the_others() -> None:
    facts, lake = Scripted([RetryLater("down")], [RetryLater("down")]), Scripted()
    assert Bench(facts=facts, lake=lake).commit(facts=1, lake=1)
    assert (len(facts.asked), len(lake.asked)) == (3, 1)


@pytest.mark.parametrize("answer", [[Lost("gone")], TargetChangedError("another server")])
def test_an_error_of_one_sink_that_stops_the_job_does_not_keep_the_others_from_committing(
    answer: Answer,
) -> None:
    lake = Scripted()
    bench = Bench(facts=Scripted(answer), lake=lake)
    with pytest.raises(StopJobError, match=r"neither prepared nor committed|another server"):
        bench.commit(facts=1, lake=2)
    assert [vars(event)["sink"] for event in bench.of(PieceCommitted)] == ["lake", "lake"]


@pytest.mark.parametrize(
    "error", [ConnectionError("gone"), TimeoutError("slow"), ValueError("odd"), KeyError("defect")]
)
def test_h4_whatever_a_sink_raises_the_decided_checkpoint_is_asked_for_again(
    error: Exception,
) -> None:
    facts = Scripted(error)
    bench = Bench(facts=facts)
    assert bench.commit(facts=2)
    assert facts.asked == [[0, 1], [0, 1]]
    assert bench.of(CommitRetried) == [
        CommitRetried(JOB, 3, "facts", f"{type(error).__name__}: {str(error)!r}", 1, 0.0, 0.1)
    ]


@pytest.mark.parametrize("answer", [[], [Committed()], [Committed()] * 3])
def test_a_wrong_number_of_outcomes_proves_nothing_and_is_asked_for_again(
    answer: list[CommitOutcome],
) -> None:
    facts = Scripted(answer)
    bench = Bench(facts=facts)
    assert bench.commit(facts=2)
    assert facts.asked == [[0, 1], [0, 1]]
    assert bench.of(PieceCommitted)[0] == PieceCommitted(
        JOB, 3, "facts", f"{JOB}/a/3/2.5/facts/0.0", ""
    )
    assert [vars(event)["reason"] for event in bench.of(CommitRetried)] == [
        f"the sink answered {len(answer)} outcomes to 2 requests"
    ]


def test_each_sink_that_must_wait_is_reported_with_its_own_reason() -> None:
    bench = Bench(
        facts=Scripted([RetryLater("read only")]),
        lake=Scripted([Committed(), RetryLater("conflict")]),
    )
    assert bench.commit(facts=1, lake=2)
    assert bench.of(CommitRetried) == [
        CommitRetried(JOB, 3, "facts", "read only", 1, 0.0, 0.1),
        CommitRetried(JOB, 3, "lake", "conflict", 1, 0.0, 0.1),
    ]


def test_a_job_that_is_stopping_tries_once_and_leaves_the_rest_to_the_next_recovery() -> None:
    facts = Scripted([RetryLater("down")])
    bench = Bench(facts=facts)
    bench.stopping.set()
    assert not bench.commit(facts=1)
    assert len(facts.asked) == 1


def test_a_job_that_is_stopping_commits_what_can_be_committed() -> None:
    bench = Bench(facts=Scripted())
    bench.stopping.set()
    assert bench.commit(facts=1)


# -- what stops the job ----------------------------------------------------------------------------


def test_h1_a_piece_proven_absent_stops_with_its_evidence_and_the_rows_that_are_lost() -> None:
    facts = Scripted([Committed(), Lost("not listed, no ledger row"), Lost("likewise")])
    bench = Bench(facts=facts)
    with pytest.raises(LostCommittableError) as caught:
        bench.commit(facts=3)
    message = str(caught.value)
    assert (
        "Job 'orders': checkpoint 3 is decided, but 2 of its pieces are "
        "neither prepared nor committed"
    ) in message
    assert "orders/a/3/2.5/facts/1.0 (2 rows): not listed, no ledger row" in message
    assert "4 rows are lost" in message
    assert "Next: find out who removed them" in message
    assert (len(facts.asked), bench.clock.waits) == (1, [])


@in_part
def test_a_loss_that_a_sink_cannot_tell_of_yet_is_accepted_when_its_target_is_back(
    broken: Driver,
    targets: dict[str, MemoryTarget],
    another: Callable[..., Driver],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_down(_: OpenMemorySink, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [RetryLater("no answer") for _ in requests]

    with monkeypatch.context() as patch:
        patch.setattr(OpenMemorySink, "commit", is_down)
        with pytest.raises(TargetUnreachableError, match=r"cannot tell yet .* no answer") as caught:
            accept_loss(folder, targets).plan(1, "facts")
    assert caught.value.remedy == "bring the target back, then run the command again."
    repair = accept_loss(folder, targets)
    repair.accept(repair.plan(1, "facts"), NOTE)
    another().recover()
    assert visible(targets["facts"]) == list(range(15))


def test_a_loss_is_reported_even_if_another_piece_could_be_retried() -> None:
    with pytest.raises(LostCommittableError):
        Bench(facts=Scripted([RetryLater("lock"), Lost("gone")])).commit(facts=2)


@pytest.mark.parametrize(
    "error", [TargetChangedError("another table."), FencedError("newer."), StopJobError("stop.")]
)
def test_a_sink_that_says_stop_stops_the_job_at_once(error: StopJobError) -> None:
    facts = Scripted(error)
    bench = Bench(facts=facts)
    with pytest.raises(type(error)):
        bench.commit(facts=1)
    assert (len(facts.asked), bench.clock.waits) == (1, [])


def test_i10_the_reference_sink_refuses_a_piece_of_another_target() -> None:
    sink = OpenMemorySink(MemoryTarget(), JOB, "facts")
    commit_loop = CommitLoop(
        {"facts": sink}, Observers(), ManualClock(), threading.Event(), 0.1, 1.0
    )
    with pytest.raises(TargetChangedError, match="was written to memory:x"):
        commit_loop.commit(completed(facts=1))


def test_h52_a_sink_that_left_the_job_with_pieces_to_commit_stops_it_before_anything_is_committed() -> (  # noqa: E501
    None
):
    facts = Scripted()
    with pytest.raises(StopJobError) as caught:
        Bench(facts=facts).commit(facts=1, lake=1, hive=2)
    message = str(caught.value)
    assert "has pieces to commit in lake, hive, which the job no longer has" in message
    assert (
        "No data is lost: they stay pre-committed. Next: put the sink back under its old name"
        in message
    )
    assert facts.asked == []


def test_h52_a_sink_that_left_the_job_with_nothing_to_commit_is_not_missed() -> None:
    assert Bench(facts=Scripted()).commit(facts=1, lake=0)


def test_a_listener_that_fails_does_not_disturb_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("a metric")

    observe: Callable[[Event], None] = fail
    commit_loop = CommitLoop(
        {"facts": Scripted()}, Observers(observe), ManualClock(), threading.Event(), 0.1, 1.0
    )
    assert commit_loop.commit(completed(facts=1))
    assert "An observer failed" in caplog.text

"""The behaviour suite that every sink inherits. A sink is done when it passes this and its kill tests.

    class TestMySqlSink(ArrowSinkContract):
        @pytest.fixture
        def harness(self, mysql) -> MySqlHarness:
            return MySqlHarness(mysql)

The suite follows the order in which the coordinator calls a sink (`twophase.protocol.sink`): what it finds in doubt is
committed or aborted before the fence is raised.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest

from twophase.errors import DeclinedError, FencedError, TargetChangedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.protocol.sink import ArrowSink, CommitRequest, Predecessor, Sink, SinkContext, SinkHistory
from twophase.protocol.writer import SinkWriter
from twophase.testing.harness import (
    FIRST,
    JOB,
    LINEAGE,
    OTHER_LINEAGE,
    SINK,
    SinkHarness,
    identity,
    transaction_id,
)

CLOSED = (FencedError, DeclinedError)
_COMMIT_TRIES = 50


class SinkContract:
    """What holds for every sink. Subclass it, give the fixture `harness`, change nothing else."""

    @pytest.fixture
    def harness(self) -> SinkHarness:
        """The sink under test. Subclasses override this fixture."""
        raise NotImplementedError("override the fixture 'harness'")

    @pytest.fixture
    def sink(self, harness: SinkHarness) -> Iterable[Sink]:
        """An opened sink, fenced for generation 1."""
        sink = self.opened(harness)
        sink.fence(FIRST)
        yield sink
        sink.close()

    # -- helpers -----------------------------------------------------------------------------------------------------

    @staticmethod
    def opened(harness: SinkHarness, job: str = JOB, sink: str = SINK) -> Sink:
        """A new sink object, opened."""
        new = harness.new_sink()
        new.open(SinkContext(job=job, sink=sink, schema=harness.schema, parallelism=4))
        return new

    @staticmethod
    def prepare(
        harness: SinkHarness,
        sink: Sink,
        ids: Iterable[int],
        transaction: TransactionId | None = None,
        subtask: Subtask | None = None,
    ) -> list[Committable]:
        """Pre-commit the rows of one task."""
        return harness.pre_commit(sink, transaction or transaction_id(), ids, subtask or Subtask(0, 0))

    @staticmethod
    def commit(sink: Sink, committables: Sequence[Committable]) -> list[CommitOutcome]:
        """Commit until no outcome is `RetryLater`, as the coordinator does."""
        for retries in range(_COMMIT_TRIES):
            outcomes = list(sink.commit([CommitRequest(committable, retries) for committable in committables]))
            if not any(isinstance(outcome, RetryLater) for outcome in outcomes):
                return outcomes
        raise AssertionError(f"still {outcomes} after {_COMMIT_TRIES} tries")

    @staticmethod
    def ids_visible(harness: SinkHarness) -> list[int]:
        """The ids of the visible rows, sorted."""
        return sorted(row["id"] for row in harness.rows_visible())

    # -- phase 1 -----------------------------------------------------------------------------------------------------

    def test_pre_committed_rows_are_invisible(self, harness: SinkHarness, sink: Sink) -> None:
        assert self.prepare(harness, sink, range(5))
        assert self.ids_visible(harness) == []

    def test_a_committable_names_its_transaction_subtask_target_and_rows(
        self, harness: SinkHarness, sink: Sink
    ) -> None:
        committables = self.prepare(harness, sink, range(5), subtask=Subtask(0, 0))
        assert {committable.transaction for committable in committables} == {transaction_id()}
        assert {committable.target for committable in committables} == {sink.target()}
        assert sum(committable.rows for committable in committables) == 5
        assert all(committable.rows > 0 for committable in committables)

    def test_what_is_pre_committed_is_in_doubt_under_its_full_identity(self, harness: SinkHarness, sink: Sink) -> None:
        made = self.prepare(harness, sink, range(3), transaction_id(7, Attempt(1, 4)), Subtask(0, 9))
        found = sink.in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))
        assert {committable.target for committable in found} == {sink.target()}

    def test_in_doubt_comes_from_the_target_not_from_memory(self, harness: SinkHarness, sink: Sink) -> None:
        made = self.prepare(harness, sink, range(3))
        sink.close()
        found = self.opened(harness).in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))

    def test_in_doubt_keeps_jobs_and_sinks_apart(self, harness: SinkHarness, sink: Sink) -> None:
        self.prepare(harness, sink, range(3))
        assert self.opened(harness, job="other").in_doubt() == []
        assert self.opened(harness, sink="other").in_doubt() == []

    # -- phase 2 -----------------------------------------------------------------------------------------------------

    def test_commit_makes_the_rows_visible_unchanged(self, harness: SinkHarness, sink: Sink) -> None:
        outcomes = self.commit(sink, self.prepare(harness, sink, range(5)))
        assert all(outcome == Committed() for outcome in outcomes)
        visible = sorted(harness.rows_visible(), key=lambda row: row["id"])
        assert visible == harness.rows(range(5))
        assert sink.in_doubt() == []

    def test_a_second_commit_is_a_no_op_on_proof(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(5))
        self.commit(sink, committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, AlreadyCommitted) and outcome.proof for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_another_driver_commits_from_the_stored_json(self, harness: SinkHarness, sink: Sink) -> None:
        stored = json.dumps([committable.to_json() for committable in self.prepare(harness, sink, range(5))])
        sink.close()
        read = [Committable.from_json(value) for value in json.loads(stored)]
        outcomes = self.commit(self.opened(harness), read)
        assert all(outcome == Committed() for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_another_driver_has_proof_of_an_earlier_commit(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(5))
        self.commit(sink, committables)
        sink.close()
        outcomes = self.commit(self.opened(harness), committables)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_outcomes_come_in_the_order_of_the_requests(self, harness: SinkHarness, sink: Sink) -> None:
        first = self.prepare(harness, sink, range(3), transaction_id(0))
        second = self.prepare(harness, sink, range(3, 6), transaction_id(1))
        self.commit(sink, second)
        outcomes = self.commit(sink, [*second, *first])
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes[: len(second)])
        assert all(outcome == Committed() for outcome in outcomes[len(second) :])

    def test_only_the_pieces_asked_for_become_visible(self, harness: SinkHarness, sink: Sink) -> None:
        winner = self.prepare(harness, sink, range(3), subtask=Subtask(0, 1))
        loser = self.prepare(harness, sink, range(10, 13), transaction_id(0, Attempt(1, 2)), subtask=Subtask(0, 2))
        self.commit(sink, winner)
        assert self.ids_visible(harness) == [0, 1, 2]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, loser))

    def test_a_piece_of_another_target_is_never_committed(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(3))
        strange = [dataclasses.replace(committable, target="elsewhere") for committable in committables]
        with pytest.raises(TargetChangedError):
            self.commit(sink, strange)
        assert self.ids_visible(harness) == []

    def test_a_piece_that_is_committed_needs_its_target_no_more(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(3))
        self.commit(sink, committables)
        strange = [dataclasses.replace(committable, target="elsewhere") for committable in committables]
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, strange))

    # -- predecessors --------------------------------------------------------------------------------------------------

    @classmethod
    def commit_after(
        cls, sink: Sink, committables: Sequence[Committable], checkpoint: int, lineage: str = LINEAGE
    ) -> list[CommitOutcome]:
        """Commit pieces that require the proof of a checkpoint."""
        before = Predecessor(lineage, checkpoint)
        for retries in range(_COMMIT_TRIES):
            outcomes = list(sink.commit([CommitRequest(piece, retries, before) for piece in committables]))
            if not any(isinstance(outcome, RetryLater) for outcome in outcomes):
                return outcomes
        raise AssertionError(f"still {outcomes} after {_COMMIT_TRIES} tries")

    def test_a_piece_is_committed_after_its_predecessor(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        later = self.prepare(harness, sink, [1], transaction_id(5))
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)
        assert self.ids_visible(harness) == [0, 1]

    def test_the_mark_is_proof_of_a_predecessor(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        sink.subsume(LINEAGE, 3)
        self.commit_after(sink, self.prepare(harness, sink, [1], transaction_id(4)), 3)
        assert self.ids_visible(harness) == [0, 1]

    def test_the_predecessor_may_be_in_a_lineage_that_is_continued(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        restored = self.prepare(harness, sink, [1], transaction_id(1, lineage=OTHER_LINEAGE))
        self.commit_after(sink, restored, 3)
        assert self.ids_visible(harness) == [0, 1]

    @pytest.mark.parametrize("predecessor", [(LINEAGE, 4), (OTHER_LINEAGE, 3)], ids=["later", "of another lineage"])
    def test_a_piece_whose_predecessor_is_missing_is_refused(
        self, harness: SinkHarness, sink: Sink, predecessor: tuple[str, int]
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        later = self.prepare(harness, sink, [1], transaction_id(5))
        lineage, checkpoint = predecessor
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, later, checkpoint, lineage)
        assert self.ids_visible(harness) == [0]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, later)), "it waits for its target"
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)

    def test_a_predecessor_of_another_sink_is_none(self, harness: SinkHarness, sink: Sink) -> None:
        other = self.opened(harness, sink="other")
        other.fence(FIRST)
        self.commit(other, self.prepare(harness, other, [0], transaction_id(3, sink="other")))
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, self.prepare(harness, sink, [1], transaction_id(4)), 3)
        assert self.ids_visible(harness) == [0]

    def test_a_piece_that_is_committed_needs_its_predecessor_no_more(self, harness: SinkHarness, sink: Sink) -> None:
        committed = self.prepare(harness, sink, [0], transaction_id(3))
        self.commit(sink, committed)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit_after(sink, committed, 2))

    # -- abort -------------------------------------------------------------------------------------------------------

    def test_abort_leaves_nothing_behind(self, harness: SinkHarness, sink: Sink) -> None:
        sink.abort(self.prepare(harness, sink, range(5)))
        assert self.ids_visible(harness) == []
        assert sink.in_doubt() == []

    def test_abort_takes_what_in_doubt_gave(self, harness: SinkHarness, sink: Sink) -> None:
        self.prepare(harness, sink, range(5))
        again = self.opened(harness)
        again.abort(again.in_doubt())
        assert again.in_doubt() == []
        assert self.ids_visible(harness) == []

    def test_abort_of_what_is_gone_is_done(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(5))
        sink.abort(committables)
        sink.abort(committables)

    def test_the_same_rows_can_be_written_after_an_abort(self, harness: SinkHarness, sink: Sink) -> None:
        sink.abort(self.prepare(harness, sink, range(5)))
        second = self.prepare(harness, sink, range(5), transaction_id(0, Attempt(1, 2)), Subtask(0, 1))
        self.commit(sink, second)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_a_piece_that_is_gone_is_lost_never_called_committed(self, harness: SinkHarness, sink: Sink) -> None:
        committables = self.prepare(harness, sink, range(5))
        sink.abort(committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, Lost) and outcome.evidence for outcome in outcomes)

    # -- fencing -----------------------------------------------------------------------------------------------------

    def test_a_target_that_has_not_seen_the_job_has_no_history(self, harness: SinkHarness) -> None:
        assert self.opened(harness).history() == SinkHistory(0, {})

    def test_the_fence_outlives_the_driver(self, harness: SinkHarness, sink: Sink) -> None:
        sink.fence(Attempt(3, 1))
        sink.close()
        assert self.opened(harness).history().generation == 3

    def test_raising_the_fence_again_is_a_no_op_and_never_lowers_it(self, harness: SinkHarness, sink: Sink) -> None:
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 3))
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(3), transaction_id(0, Attempt(2, 4)))
        assert sink.history().generation == 2

    def test_a_driver_of_a_lower_generation_is_fenced(self, harness: SinkHarness, sink: Sink) -> None:
        sink.fence(Attempt(2, 1))
        with pytest.raises(FencedError):
            sink.fence(Attempt(1, 9))
        assert sink.history().generation == 2

    @pytest.mark.parametrize("closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"])
    def test_a_closed_attempt_cannot_begin(self, harness: SinkHarness, sink: Sink, closed_by: Attempt) -> None:
        sink.fence(closed_by)
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(3), transaction_id(0, FIRST))
        assert sink.in_doubt() == []
        assert self.ids_visible(harness) == []

    def test_fences_of_other_jobs_and_sinks_do_not_matter(self, harness: SinkHarness, sink: Sink) -> None:
        for other in (self.opened(harness, job="other"), self.opened(harness, sink="other")):
            other.fence(Attempt(9, 9))
            other.close()
        assert sink.history().generation == 1
        assert self.prepare(harness, sink, range(3))

    # -- history -----------------------------------------------------------------------------------------------------

    def test_history_counts_what_is_committed_not_what_is_prepared(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(4)))
        self.prepare(harness, sink, [1], transaction_id(5))
        assert self.opened(harness).history().committed == {LINEAGE: 4}

    def test_history_outlives_subsume_and_keeps_lineages_apart(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(7)))
        sink.subsume(LINEAGE, 7)
        self.commit(sink, self.prepare(harness, sink, [1], transaction_id(0, lineage=OTHER_LINEAGE)))
        assert sink.history().committed == {LINEAGE: 7, OTHER_LINEAGE: 0}
        assert self.opened(harness, sink="other").history().committed == {}

    # -- subsume -----------------------------------------------------------------------------------------------------

    def test_proof_outlives_subsume(self, harness: SinkHarness, sink: Sink) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 2)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2]

    def test_subsume_never_goes_backwards(self, harness: SinkHarness, sink: Sink) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 0)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, committables))

    def test_subsume_keeps_the_proof_of_later_checkpoints(self, harness: SinkHarness, sink: Sink) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 0)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, committables))

    def test_a_mark_proves_nothing_for_a_later_checkpoint(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(0)))
        sink.subsume(LINEAGE, 0)
        gone = self.prepare(harness, sink, [1], transaction_id(1))
        sink.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_lineage(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        gone = self.prepare(harness, sink, [1], transaction_id(3, lineage=OTHER_LINEAGE))
        sink.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_sink(self, harness: SinkHarness, sink: Sink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        other = self.opened(harness, sink="other")
        other.fence(FIRST)
        gone = self.prepare(harness, other, [1], transaction_id(3, sink="other"))
        other.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(other, gone))


class ArrowSinkContract(SinkContract):
    """What holds for sinks whose rows are written by the executors."""

    @pytest.fixture
    def arrow(self, sink: Sink) -> ArrowSink:
        """The opened sink as what it is."""
        assert isinstance(sink, ArrowSink)
        return sink

    @staticmethod
    def batch(harness: SinkHarness, ids: Iterable[int]) -> pa.RecordBatch:
        """One batch of rows."""
        return pa.RecordBatch.from_pylist(harness.rows(ids), schema=harness.schema)

    def test_a_task_without_rows_leaves_nothing(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        assert arrow.writer(transaction_id(), Subtask(0, 0)).pre_commit() is None
        assert arrow.in_doubt() == []

    def test_an_opened_sink_works_after_pickling(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        copy = pickle.loads(pickle.dumps(arrow))  # noqa: S301 - our own bytes, as Spark would send them
        committables = self.prepare(harness, copy, range(5))
        assert self.commit(arrow, committables) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_many_batches_make_one_piece(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        writer = arrow.writer(transaction_id(), Subtask(0, 0))
        for start in range(0, 50, 10):
            writer.write(self.batch(harness, range(start, start + 10)))
        committable = writer.pre_commit()
        assert committable is not None
        assert committable.rows == 50
        assert self.commit(arrow, [committable]) == [Committed()]
        assert self.ids_visible(harness) == list(range(50))

    def test_pieces_of_all_subtasks_are_committed_together(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        pieces = [
            self.prepare(harness, arrow, range(10 * index, 10 * index + 10), subtask=Subtask(index, index))[0]
            for index in range(3)
        ]
        assert self.ids_visible(harness) == []
        assert self.commit(arrow, pieces) == [Committed()] * 3
        assert self.ids_visible(harness) == list(range(30))

    def test_an_aborted_writer_leaves_nothing(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        writer = arrow.writer(transaction_id(), Subtask(0, 0))
        writer.write(self.batch(harness, range(5)))
        writer.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible(harness) == []

    @pytest.mark.parametrize("closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"])
    def test_a_late_writer_cannot_pre_commit(self, harness: SinkHarness, arrow: ArrowSink, closed_by: Attempt) -> None:
        late = arrow.writer(transaction_id(), Subtask(0, 0))
        late.write(self.batch(harness, range(5)))
        arrow.fence(closed_by)
        with pytest.raises(CLOSED):
            late.pre_commit()
        late.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible(harness) == []

    @pytest.mark.parametrize("closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"])
    def test_a_writer_made_before_the_fence_cannot_begin_after_it(
        self, harness: SinkHarness, arrow: ArrowSink, closed_by: Attempt
    ) -> None:
        late = arrow.writer(transaction_id(), Subtask(0, 0))
        arrow.fence(closed_by)
        with pytest.raises(CLOSED):
            self._write_all(late, self.batch(harness, range(5)))
        late.abort()
        assert arrow.in_doubt() == []

    def test_an_abandoned_writer_is_gone_after_the_fence(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        abandoned = arrow.writer(transaction_id(), Subtask(0, 0))
        abandoned.write(self.batch(harness, range(5)))
        arrow.fence(Attempt(2, 1))
        committables = self.prepare(harness, arrow, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(arrow, committables) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]
        abandoned.abort()

    def test_the_new_generation_writes_the_same_rows(self, harness: SinkHarness, arrow: ArrowSink) -> None:
        self.prepare(harness, arrow, range(5))
        again = self.opened(harness)
        again.abort(again.in_doubt())
        again.fence(Attempt(2, 1))
        assert again.in_doubt() == []
        committables = self.prepare(harness, again, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(again, committables) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    @staticmethod
    def _write_all(writer: SinkWriter, batch: pa.RecordBatch) -> None:
        writer.write(batch)
        writer.pre_commit()

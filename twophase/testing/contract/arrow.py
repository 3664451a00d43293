"""Sinks whose rows are written by the executors: one writer for each task attempt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twophase.ids import Attempt, Subtask
from twophase.protocol.outcome import Committed
from twophase.protocol.sink import OpenArrowSink, OpenSink
from twophase.protocol.writer import SinkWriter
from twophase.testing.contract.base import CLOSED
from twophase.testing.contract.fence_race import FenceRace
from twophase.testing.contract.sink import SinkContract
from twophase.testing.contract.stepping import LINES_AT_MOST, spread
from twophase.testing.harness import SinkHarness, identity, new_writer, transaction_id


class ArrowSinkContract(SinkContract):
    """The contract of sinks whose rows are written by the executors."""

    @pytest.fixture
    def arrow(self, sink: OpenSink) -> OpenArrowSink:
        """Return the open sink as an `OpenArrowSink`."""
        assert isinstance(sink, OpenArrowSink)
        return sink

    def test_a_task_without_rows_leaves_nothing(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        assert new_writer(arrow, transaction_id(), Subtask(0, 0)).pre_commit() is None
        assert arrow.in_doubt() == []

    def test_many_batches_make_one_piece(self, harness: SinkHarness, arrow: OpenArrowSink) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        for start in range(0, 50, 10):
            writer.write(self.batch(harness, range(start, start + 10)))
        committable = writer.pre_commit()
        assert committable is not None
        assert committable.rows == 50
        assert self.commit(arrow, [committable]) == [Committed()]
        assert self.ids_visible(harness) == list(range(50))

    def test_pieces_of_all_subtasks_are_committed_together(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        pieces = [
            self.prepare(
                harness, arrow, range(10 * index, 10 * index + 10), subtask=Subtask(index, index)
            )[0]
            for index in range(3)
        ]
        assert self.ids_visible(harness) == []
        assert self.commit(arrow, pieces) == [Committed()] * 3
        assert self.ids_visible(harness) == list(range(30))

    def test_an_aborted_writer_leaves_nothing(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        writer.write(self.batch(harness, range(5)))
        writer.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible(harness) == []

    @pytest.mark.parametrize(
        "closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"]
    )
    def test_a_late_writer_cannot_pre_commit(
        self, harness: SinkHarness, arrow: OpenArrowSink, closed_by: Attempt
    ) -> None:
        late = new_writer(arrow, transaction_id(), Subtask(0, 0))
        late.write(self.batch(harness, range(5)))
        arrow.fence(closed_by)
        with pytest.raises(CLOSED):
            late.pre_commit()
        late.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible(harness) == []

    @pytest.mark.parametrize(
        "closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"]
    )
    def test_a_writer_made_before_the_fence_cannot_begin_after_it(
        self, harness: SinkHarness, arrow: OpenArrowSink, closed_by: Attempt
    ) -> None:
        late = new_writer(arrow, transaction_id(), Subtask(0, 0))
        arrow.fence(closed_by)
        with pytest.raises(CLOSED):
            self._write_all(late, self.batch(harness, range(5)))
        late.abort()
        assert arrow.in_doubt() == []

    def test_an_abandoned_writer_is_gone_after_the_fence(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        abandoned = new_writer(arrow, transaction_id(), Subtask(0, 0))
        abandoned.write(self.batch(harness, range(5)))
        arrow.fence(Attempt(2, 1))
        committables = self.prepare(harness, arrow, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(arrow, committables) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]
        abandoned.abort()

    def test_the_new_generation_writes_the_same_rows(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        self.prepare(harness, arrow, range(5))
        again = self.opened(harness)
        again.abort(again.in_doubt())
        again.fence(Attempt(2, 1))
        assert again.in_doubt() == []
        committables = self.prepare(harness, again, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(again, committables) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_attempts_of_one_task_are_pieces_apart(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        """Spark may run a task again, or twice at once: a checkpoint has one attempt's result."""
        loser = self.prepare(harness, arrow, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(harness, arrow, range(3), subtask=Subtask(0, 2))
        assert sorted(map(identity, arrow.in_doubt())) == sorted(map(identity, [*loser, *winner]))
        assert self.commit(arrow, winner) == [Committed()]
        assert self.ids_visible(harness) == [0, 1, 2]
        assert list(map(identity, arrow.in_doubt())) == list(map(identity, loser))

    def test_abort_of_one_piece_leaves_the_others_of_its_attempt(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        loser = self.prepare(harness, arrow, range(10, 13), subtask=Subtask(0, 1))
        again = self.prepare(harness, arrow, range(3), subtask=Subtask(0, 2))
        beside = self.prepare(harness, arrow, range(3, 6), subtask=Subtask(1, 3))
        arrow.abort(loser)
        assert sorted(map(identity, arrow.in_doubt())) == sorted(map(identity, [*again, *beside]))
        assert self.commit(arrow, [*again, *beside]) == [Committed()] * 2
        assert self.ids_visible(harness) == list(range(6))

    def test_abort_of_one_piece_leaves_what_is_committed_of_its_attempt(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        winner = self.prepare(harness, arrow, range(3), subtask=Subtask(0, 2))
        loser = self.prepare(harness, arrow, range(10, 13), subtask=Subtask(0, 1))
        self.commit(arrow, winner)
        arrow.abort(loser)
        assert self.ids_visible(harness) == [0, 1, 2]
        assert arrow.in_doubt() == []

    def test_a_fence_between_any_two_lines_of_pre_commit_counts(
        self, harness: SinkHarness, arrow: OpenArrowSink
    ) -> None:
        """Raise the fence while a writer is stopped at a line of `pre_commit`, at each in turn.

        Whatever it has checked before: the scan that follows the fence finds what it pre-commits,
        or it pre-commits nothing.
        """
        race = FenceRace(arrow, self.batch(harness, range(3)))
        for line in spread(race.count_lines(), LINES_AT_MOST):
            late = race.run(line)
            assert late == [], (
                f"a fence raised before line {line} of pre_commit was not seen: {late}"
            )
        assert self.ids_visible(harness) == []

    @staticmethod
    def _write_all(writer: SinkWriter, batch: pa.RecordBatch) -> None:
        writer.write(batch)
        writer.pre_commit()

"""Sinks whose rows are written by the executors: one writer for each task attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa
import pytest

from twophase.contract.outcome import Committed
from twophase.contract.sink import OpenArrowSink, OpenSink, Predecessor
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError, FencedError, TargetChangedError, TwoPhaseError
from twophase.ids import Attempt, Subtask
from twophase.testing.contract.base import CLOSED, Closed, closed_by_each
from twophase.testing.contract.sink import SinkContract
from twophase.testing.contract.stepping import LINES_AT_MOST, Lines, spread
from twophase.testing.harness import (
    FIRST,
    LINEAGE,
    Identity,
    identity,
    new_writer,
    transaction_id,
)

# A fence may wait for something that the writer holds, such as a lock; then the writer goes on
# while the fence waits.
_FENCE_WAITS_S = 0.2
_FENCE_TRIES = 3


class FenceRace:
    """Races of one sink, each in its own generation and checkpoint.

    Args:
        sink: open, and fenced for the first attempt.
        batch: the rows that are written.
        packages: see `ContractBase`.
    """

    def __init__(self, sink: OpenArrowSink, batch: pa.RecordBatch, packages: Sequence[str]) -> None:
        self._sink = sink
        self._batch = batch
        self._packages = packages
        self._generation = FIRST.generation

    def count_lines(self) -> int:
        """Return how many lines `pre_commit` runs when nothing interferes."""
        pieces: list[Identity] = []
        count = self._write(lambda _: None, pieces)
        assert count, "the writer's pre_commit is not Python code that can be stopped at a line"
        assert pieces == [identity(piece) for piece in self._sink.in_doubt()]
        self._sink.abort(self._sink.in_doubt())
        return count

    def run(self, line: int) -> list[Identity]:
        """Raise the fence with a writer stopped before `line`; return pieces its scan missed."""
        made: list[Identity] = []
        standing, go_on = threading.Event(), threading.Event()

        def stand(at: int) -> None:
            if at == line:
                standing.set()
                go_on.wait()

        def write() -> None:
            try:
                with suppress(Exception):  # a closed writer may raise anything
                    self._write(stand, made)
            finally:
                standing.set()

        writer = threading.Thread(target=write)
        writer.start()
        standing.wait()
        timer = threading.Timer(_FENCE_WAITS_S, go_on.set)
        timer.start()
        try:
            self._generation += 1
            found = self._close_below(Attempt(self._generation, 1))
        finally:
            timer.cancel()
            go_on.set()
            writer.join()
        left = self._sink.in_doubt()
        self._sink.abort(left)
        return sorted({*made, *map(identity, left)} - found)

    def _close_below(self, attempt: Attempt) -> set[Identity]:
        """Return the pieces found while the fence was raised, and by the scan after it."""
        found: set[Identity] = set()
        for _ in range(_FENCE_TRIES):
            try:
                self._sink.fence(attempt)
            except FencedError:
                raise
            except TwoPhaseError:
                # a piece that appeared meanwhile blocks the fence, and has to be removed first
                pieces = self._sink.in_doubt()
                found |= {identity(piece) for piece in pieces}
                self._sink.abort(pieces)
            else:
                return found | {identity(piece) for piece in self._sink.in_doubt()}
        raise AssertionError(f"the fence could not be raised in {_FENCE_TRIES} tries")

    def _write(self, at_line: Callable[[int], None], made: list[Identity]) -> int:
        attempt = Attempt(self._generation, 1)
        writer = new_writer(
            self._sink, transaction_id(self._generation, attempt), Subtask(0, self._generation)
        )
        try:
            writer.write(self._batch)
            with Lines(writer, "pre_commit", at_line, self._packages) as lines:
                piece = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        if piece is not None:
            made.append(identity(piece))
        return lines.count


class ArrowSinkContract(SinkContract):
    """The contract of sinks whose rows are written by the executors."""

    @pytest.fixture
    def arrow(self, sink: OpenSink) -> OpenArrowSink:
        """Return the open sink as an `OpenArrowSink`."""
        assert isinstance(sink, OpenArrowSink)
        return sink

    def test_a_task_without_rows_leaves_nothing(self, arrow: OpenArrowSink) -> None:
        assert new_writer(arrow, transaction_id(), Subtask(0, 0)).pre_commit() is None
        assert arrow.in_doubt() == []

    def test_many_batches_make_one_piece(self, arrow: OpenArrowSink) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        for start in range(0, 50, 10):
            writer.write(self.batch(range(start, start + 10)))
        committable = writer.pre_commit()
        assert committable is not None
        assert committable.rows == 50
        assert self.commit(arrow, [committable]) == [Committed()]
        assert self.ids_visible() == list(range(50))

    def test_a_flushed_writer_shows_nothing_and_makes_the_same_piece(
        self, arrow: OpenArrowSink
    ) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        for start in range(0, 50, 10):
            writer.write(self.batch(range(start, start + 10)))
        writer.flush()
        assert self.ids_visible() == []
        committable = writer.pre_commit()
        assert committable is not None
        assert committable.rows == 50
        assert self.commit(arrow, [committable]) == [Committed()]
        assert self.ids_visible() == list(range(50))

    def test_a_writer_that_is_flushed_and_aborted_leaves_nothing(
        self, arrow: OpenArrowSink
    ) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        writer.write(self.batch(range(5)))
        writer.flush()
        writer.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible() == []

    def test_pieces_of_all_subtasks_are_committed_together(self, arrow: OpenArrowSink) -> None:
        pieces = [
            self.prepare(arrow, range(10 * index, 10 * index + 10), subtask=Subtask(index, index))[
                0
            ]
            for index in range(3)
        ]
        assert self.ids_visible() == []
        assert self.commit(arrow, pieces) == [Committed()] * 3
        assert self.ids_visible() == list(range(30))

    def test_equal_rows_of_several_pieces_are_all_there(self, arrow: OpenArrowSink) -> None:
        """Unless the target has a key, and refuses the second, or has it wait for the first."""
        made = self.prepare(arrow, [7], subtask=Subtask(0, 0))
        if self.harness_in_use.has_key:
            with pytest.raises(DeclinedError):
                self.prepare(arrow, [8, 7], subtask=Subtask(1, 1))
        else:
            made += self.prepare(arrow, [8, 7], subtask=Subtask(1, 1))
        self.commit(arrow, made)
        assert self.ids_visible() == ([7] if self.harness_in_use.has_key else [7, 7, 8])

    def test_a_call_may_have_many_pieces(self, arrow: OpenArrowSink) -> None:
        made = [
            piece
            for number in range(12)
            for piece in self.prepare(arrow, [number], subtask=Subtask(number, number))
        ]
        assert self.commit(arrow, made) == [Committed()] * 12
        assert self.ids_visible() == [*range(12)]

    def test_no_piece_of_a_call_is_committed_without_its_predecessor(
        self, arrow: OpenArrowSink
    ) -> None:
        made = [
            piece
            for number in range(2)
            for piece in self.prepare(arrow, [number], transaction_id(5), Subtask(number, number))
        ]
        with pytest.raises(TargetChangedError):
            self.commit(arrow, made, Predecessor(LINEAGE, 4))
        assert self.ids_visible() == []
        assert self.commit(arrow, made) == [Committed()] * 2

    def test_an_aborted_writer_leaves_nothing(self, arrow: OpenArrowSink) -> None:
        writer = new_writer(arrow, transaction_id(), Subtask(0, 0))
        writer.write(self.batch(range(5)))
        writer.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible() == []

    @pytest.mark.parametrize(
        "closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"]
    )
    def test_a_late_writer_cannot_pre_commit(
        self, arrow: OpenArrowSink, closed_by: Attempt
    ) -> None:
        late = new_writer(arrow, transaction_id(), Subtask(0, 0))
        late.write(self.batch(range(5)))
        arrow.fence(closed_by)
        with pytest.raises(CLOSED):
            late.pre_commit()
        late.abort()
        assert arrow.in_doubt() == []
        assert self.ids_visible() == []

    @closed_by_each
    def test_a_writer_made_before_the_fence_cannot_begin_after_it(
        self, arrow: OpenArrowSink, closed_by: Attempt, error: Closed
    ) -> None:
        late = new_writer(arrow, transaction_id(), Subtask(0, 0))
        arrow.fence(closed_by)
        with pytest.raises(error):
            self._write_all(late, self.batch(range(5)))
        late.abort()
        assert arrow.in_doubt() == []

    def test_an_abandoned_writer_is_gone_after_the_fence(self, arrow: OpenArrowSink) -> None:
        abandoned = new_writer(arrow, transaction_id(), Subtask(0, 0))
        abandoned.write(self.batch(range(5)))
        arrow.fence(Attempt(2, 1))
        committables = self.prepare(arrow, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(arrow, committables) == [Committed()]
        assert self.ids_visible() == [0, 1, 2, 3, 4]
        abandoned.abort()

    def test_the_new_generation_writes_the_same_rows(self, arrow: OpenArrowSink) -> None:
        self.prepare(arrow, range(5))
        again = self.opened()
        again.abort(again.in_doubt())
        again.fence(Attempt(2, 1))
        assert again.in_doubt() == []
        committables = self.prepare(again, range(5), transaction_id(0, Attempt(2, 1)))
        assert self.commit(again, committables) == [Committed()]
        assert self.ids_visible() == [0, 1, 2, 3, 4]

    def test_attempts_of_one_task_are_pieces_apart(self, arrow: OpenArrowSink) -> None:
        """Spark may run a task again, or twice at once: a checkpoint has one attempt's result."""
        loser = self.prepare(arrow, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(arrow, range(3), subtask=Subtask(0, 2))
        assert sorted(map(identity, arrow.in_doubt())) == sorted(map(identity, [*loser, *winner]))
        assert self.commit(arrow, winner) == [Committed()]
        assert self.ids_visible() == [0, 1, 2]
        assert list(map(identity, arrow.in_doubt())) == list(map(identity, loser))

    def test_abort_of_one_piece_leaves_the_others_of_its_attempt(
        self, arrow: OpenArrowSink
    ) -> None:
        loser = self.prepare(arrow, range(10, 13), subtask=Subtask(0, 1))
        again = self.prepare(arrow, range(3), subtask=Subtask(0, 2))
        beside = self.prepare(arrow, range(3, 6), subtask=Subtask(1, 3))
        arrow.abort(loser)
        assert sorted(map(identity, arrow.in_doubt())) == sorted(map(identity, [*again, *beside]))
        assert self.commit(arrow, [*again, *beside]) == [Committed()] * 2
        assert self.ids_visible() == list(range(6))

    def test_abort_of_one_piece_leaves_what_is_committed_of_its_attempt(
        self, arrow: OpenArrowSink
    ) -> None:
        winner = self.prepare(arrow, range(3), subtask=Subtask(0, 2))
        loser = self.prepare(arrow, range(10, 13), subtask=Subtask(0, 1))
        self.commit(arrow, winner)
        arrow.abort(loser)
        assert self.ids_visible() == [0, 1, 2]
        assert arrow.in_doubt() == []

    def test_a_fence_between_any_two_lines_of_pre_commit_counts(self, arrow: OpenArrowSink) -> None:
        """Raise the fence while a writer is stopped at a line of `pre_commit`, at each in turn.

        Whatever it has checked before: the scan that follows the fence finds what it pre-commits,
        or it pre-commits nothing.
        """
        race = FenceRace(arrow, self.batch(range(3)), self.packages)
        for line in spread(race.count_lines(), LINES_AT_MOST):
            late = race.run(line)
            assert late == [], (
                f"a fence raised before line {line} of pre_commit was not seen: {late}"
            )
        assert self.ids_visible() == []

    @staticmethod
    def _write_all(writer: SinkWriter, batch: pa.RecordBatch) -> None:
        writer.write(batch)
        writer.pre_commit()

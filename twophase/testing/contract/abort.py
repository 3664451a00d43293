"""Abort: removes the given piece, all of it, and nothing else."""

from __future__ import annotations

from contextlib import suppress

from twophase.errors import StopJobError
from twophase.ids import Attempt, Subtask
from twophase.protocol.outcome import AlreadyCommitted, Committed, Lost
from twophase.protocol.sink import OpenSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import SinkHarness, identity, transaction_id


class AbortContract(ContractBase):
    """An aborted piece is gone; everything else stays."""

    def test_abort_leaves_nothing_behind(self, harness: SinkHarness, sink: OpenSink) -> None:
        sink.abort(self.prepare(harness, sink, range(5)))
        assert self.ids_visible(harness) == []
        assert sink.in_doubt() == []

    def test_abort_takes_what_in_doubt_gave(self, harness: SinkHarness, sink: OpenSink) -> None:
        self.prepare(harness, sink, range(5))
        again = self.opened(harness)
        again.abort(again.in_doubt())
        assert again.in_doubt() == []
        assert self.ids_visible(harness) == []

    def test_abort_of_what_is_gone_is_done(self, harness: SinkHarness, sink: OpenSink) -> None:
        committables = self.prepare(harness, sink, range(5))
        sink.abort(committables)
        sink.abort(committables)

    def test_the_same_rows_can_be_written_after_an_abort(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        sink.abort(self.prepare(harness, sink, range(5)))
        second = self.prepare(
            harness, sink, range(5), transaction_id(0, Attempt(1, 2)), Subtask(0, 1)
        )
        self.commit(sink, second)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_a_piece_that_is_gone_is_lost_never_called_committed(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(5))
        sink.abort(committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, Lost) and outcome.evidence for outcome in outcomes)

    def test_abort_of_a_loser_leaves_what_is_committed_of_its_checkpoint(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        loser = self.prepare(harness, sink, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(
            harness, sink, range(3), transaction_id(0, Attempt(1, 2)), Subtask(0, 2)
        )
        self.commit(sink, winner)
        sink.abort(loser)
        assert self.ids_visible(harness) == [0, 1, 2]
        assert sink.in_doubt() == []
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, winner))

    def test_abort_of_a_loser_leaves_what_is_pre_committed_of_its_checkpoint(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        loser = self.prepare(harness, sink, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(
            harness, sink, range(3), transaction_id(0, Attempt(1, 2)), Subtask(0, 2)
        )
        sink.abort(loser)
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, winner))
        assert all(outcome == Committed() for outcome in self.commit(sink, winner))
        assert self.ids_visible(harness) == [0, 1, 2]

    def test_abort_never_takes_back_what_is_committed(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(3))
        self.commit(sink, committables)
        with suppress(StopJobError):  # an error about the contradiction is as good as doing nothing
            sink.abort(committables)
        assert self.ids_visible(harness) == [0, 1, 2]
        assert all(
            isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, committables)
        )

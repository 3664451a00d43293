"""Fencing: only the attempt that holds the fence can pre-commit."""

from __future__ import annotations

import pytest

from twophase.errors import FencedError
from twophase.ids import Attempt, Subtask
from twophase.protocol.sink import OpenSink, SinkHistory
from twophase.testing.contract.base import CLOSED, ContractBase
from twophase.testing.harness import FIRST, LINEAGE, SinkHarness, transaction_id


class FenceContract(ContractBase):
    """A fence closes all attempts below it for ever, and is never lowered."""

    def test_a_target_that_has_not_seen_the_job_has_no_history(self, harness: SinkHarness) -> None:
        assert self.opened(harness).history() == SinkHistory(0, {})

    def test_the_fence_outlives_the_driver(self, harness: SinkHarness, sink: OpenSink) -> None:
        sink.fence(Attempt(3, 1))
        sink.close()
        assert self.opened(harness).history().generation == 3

    def test_raising_the_fence_again_is_a_no_op_and_never_lowers_it(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 3))
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(3), transaction_id(0, Attempt(2, 4)))
        assert sink.history().generation == 2

    def test_a_driver_of_a_lower_generation_is_fenced(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        sink.fence(Attempt(2, 1))
        with pytest.raises(FencedError):
            sink.fence(Attempt(1, 9))
        assert sink.history().generation == 2

    @pytest.mark.parametrize(
        "closed_by", [Attempt(2, 1), Attempt(1, 2)], ids=["next driver", "next attempt"]
    )
    def test_a_closed_attempt_cannot_begin(
        self, harness: SinkHarness, sink: OpenSink, closed_by: Attempt
    ) -> None:
        sink.fence(closed_by)
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(3), transaction_id(0, FIRST))
        assert sink.in_doubt() == []
        assert self.ids_visible(harness) == []

    def test_fences_of_other_jobs_and_sinks_do_not_matter(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        for other in (self.opened(harness, job="other"), self.opened(harness, sink="other")):
            other.fence(Attempt(9, 9))
            other.close()
        assert sink.history().generation == 1
        assert self.prepare(harness, sink, range(3))

    def test_without_a_fence_nobody_can_begin(self, harness: SinkHarness) -> None:
        never_fenced = self.opened(harness)
        with pytest.raises(CLOSED):
            self.prepare(harness, never_fenced, range(3))
        assert never_fenced.in_doubt() == []
        assert self.ids_visible(harness) == []

    @pytest.mark.parametrize("generation", [1, 3], ids=["lower", "higher"])
    def test_another_generation_than_the_fences_cannot_begin(
        self, harness: SinkHarness, sink: OpenSink, generation: int
    ) -> None:
        """A higher attempt that the target has not seen: its fence was lost, or it was restored."""
        sink.fence(Attempt(2, 1))
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(3), transaction_id(0, Attempt(generation, 9)))
        assert sink.in_doubt() == []
        assert self.ids_visible(harness) == []

    def test_the_fenced_generations_later_attempts_begin(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        sink.fence(Attempt(2, 1))
        assert self.prepare(
            harness, sink, range(3), transaction_id(0, Attempt(2, 1)), Subtask(0, 1)
        )
        assert self.prepare(
            harness, sink, range(3, 6), transaction_id(1, Attempt(2, 2)), Subtask(0, 2)
        )

    @pytest.mark.parametrize("call", ["abort", "commit", "subsume", "in_doubt", "open"])
    def test_no_other_call_takes_the_fence_down(
        self, harness: SinkHarness, sink: OpenSink, call: str
    ) -> None:
        second = Attempt(2, 1)
        sink.fence(second)
        pieces = self.prepare(harness, sink, range(3), transaction_id(0, second))
        if call == "abort":
            sink.abort(pieces)
        elif call == "in_doubt":
            sink.in_doubt()
        elif call == "open":
            self.opened(harness).close()
        else:
            self.commit(sink, pieces)
            if call == "subsume":
                sink.subsume(LINEAGE, 0)
        late = transaction_id(1, FIRST)
        with pytest.raises(CLOSED):
            self.prepare(harness, sink, range(10, 13), late, Subtask(0, 7))
        assert late not in [piece.transaction for piece in sink.in_doubt()]
        assert sink.history().generation == second.generation

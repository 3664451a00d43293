"""Proof: the target's record of committed checkpoints, before and after it is folded."""

from __future__ import annotations

from twophase.protocol.outcome import AlreadyCommitted, Lost
from twophase.protocol.sink import OpenSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, LINEAGE, OTHER_LINEAGE, SinkHarness, transaction_id


class ProofContract(ContractBase):
    """Proof is kept for ever, and proves only what was committed."""

    def test_history_counts_what_is_committed_not_what_is_prepared(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(4)))
        self.prepare(harness, sink, [1], transaction_id(5))
        assert self.opened(harness).history().committed == {LINEAGE: 4}

    def test_history_outlives_subsume_and_keeps_lineages_apart(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(7)))
        sink.subsume(LINEAGE, 7)
        self.commit(
            sink, self.prepare(harness, sink, [1], transaction_id(0, lineage=OTHER_LINEAGE))
        )
        assert sink.history().committed == {LINEAGE: 7, OTHER_LINEAGE: 0}
        assert self.opened(harness, sink="other").history().committed == {}

    def test_proof_outlives_subsume(self, harness: SinkHarness, sink: OpenSink) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 2)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2]

    def test_subsume_never_goes_backwards(self, harness: SinkHarness, sink: OpenSink) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 0)
        assert all(
            isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, committables)
        )

    def test_subsume_keeps_the_proof_of_later_checkpoints(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = [self.prepare(harness, sink, [n], transaction_id(n))[0] for n in range(3)]
        self.commit(sink, committables)
        sink.subsume(LINEAGE, 0)
        assert all(
            isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, committables)
        )

    def test_subsume_proves_no_more_than_the_target_had_proof_of(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        sink.subsume(LINEAGE, 7)
        sink.subsume(OTHER_LINEAGE, 7)
        assert self.opened(harness).history().committed == {LINEAGE: 3}

    def test_a_mark_proves_nothing_for_a_later_checkpoint(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(0)))
        sink.subsume(LINEAGE, 0)
        gone = self.prepare(harness, sink, [1], transaction_id(1))
        sink.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_lineage(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        gone = self.prepare(harness, sink, [1], transaction_id(3, lineage=OTHER_LINEAGE))
        sink.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_sink(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        other = self.opened(harness, sink="other")
        other.fence(FIRST)
        gone = self.prepare(harness, other, [1], transaction_id(3, sink="other"))
        other.abort(gone)
        assert all(isinstance(outcome, Lost) for outcome in self.commit(other, gone))

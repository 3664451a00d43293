"""Predecessors: a piece is visible only after the checkpoint committed before it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twophase.errors import TargetChangedError
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import AlreadyCommitted, CommitOutcome, Committed
from twophase.protocol.sink import OpenSink, Predecessor
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import (
    FIRST,
    LINEAGE,
    OTHER_LINEAGE,
    SinkHarness,
    identity,
    transaction_id,
)


class PredecessorContract(ContractBase):
    """A target that was restored from a backup or swapped under a running job gets no piece."""

    @classmethod
    def commit_after(
        cls,
        sink: OpenSink,
        committables: Sequence[Committable],
        checkpoint: int,
        lineage: str = LINEAGE,
    ) -> list[CommitOutcome]:
        """Commit pieces that require the proof of a checkpoint."""
        return cls.commit(sink, committables, Predecessor(lineage, checkpoint))

    def test_a_piece_is_committed_after_its_predecessor(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        later = self.prepare(harness, sink, [1], transaction_id(5))
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)
        assert self.ids_visible(harness) == [0, 1]

    def test_the_mark_is_proof_of_a_predecessor(self, harness: SinkHarness, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        sink.subsume(LINEAGE, 3)
        self.commit_after(sink, self.prepare(harness, sink, [1], transaction_id(4)), 3)
        assert self.ids_visible(harness) == [0, 1]

    def test_the_predecessor_may_be_in_a_lineage_that_is_continued(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        restored = self.prepare(harness, sink, [1], transaction_id(1, lineage=OTHER_LINEAGE))
        self.commit_after(sink, restored, 3)
        assert self.ids_visible(harness) == [0, 1]

    @pytest.mark.parametrize(
        "predecessor", [(LINEAGE, 4), (OTHER_LINEAGE, 3)], ids=["later", "of another lineage"]
    )
    def test_a_piece_whose_predecessor_is_missing_is_refused(
        self, harness: SinkHarness, sink: OpenSink, predecessor: tuple[str, int]
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        later = self.prepare(harness, sink, [1], transaction_id(5))
        lineage, checkpoint = predecessor
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, later, checkpoint, lineage)
        assert self.ids_visible(harness) == [0]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, later)), (
            "it waits for its target"
        )
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)

    def test_a_predecessor_of_another_sink_is_none(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        other = self.opened(harness, sink="other")
        other.fence(FIRST)
        self.commit(other, self.prepare(harness, other, [0], transaction_id(3, sink="other")))
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, self.prepare(harness, sink, [1], transaction_id(4)), 3)
        assert self.ids_visible(harness) == [0]

    def test_a_piece_that_is_committed_needs_its_predecessor_no_more(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committed = self.prepare(harness, sink, [0], transaction_id(3))
        self.commit(sink, committed)
        assert all(
            isinstance(outcome, AlreadyCommitted)
            for outcome in self.commit_after(sink, committed, 2)
        )

"""Pre-commit and commit: nothing early, everything once, and no commit without proof."""

from __future__ import annotations

import dataclasses
import json

import pytest

from twophase.errors import TargetChangedError
from twophase.ids import Attempt, Subtask
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import AlreadyCommitted, Committed
from twophase.protocol.sink import OpenSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, SinkHarness, identity, transaction_id


class PhasesContract(ContractBase):
    """Phase 1 makes rows durable and invisible; phase 2 makes them visible."""

    def test_pre_committed_rows_are_invisible(self, harness: SinkHarness, sink: OpenSink) -> None:
        assert self.prepare(harness, sink, range(5))
        assert self.ids_visible(harness) == []

    def test_a_committable_names_its_transaction_subtask_target_and_rows(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(5), subtask=Subtask(0, 0))
        assert {committable.transaction for committable in committables} == {transaction_id()}
        assert {committable.target for committable in committables} == {sink.target()}
        assert sum(committable.rows for committable in committables) == 5
        assert all(committable.rows > 0 for committable in committables)

    def test_what_is_pre_committed_is_in_doubt_under_its_full_identity(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        made = self.prepare(
            harness, sink, range(3), transaction_id(7, Attempt(1, 4)), Subtask(0, 9)
        )
        found = sink.in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))
        assert {committable.target for committable in found} == {sink.target()}

    def test_in_doubt_comes_from_the_target_not_from_memory(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        made = self.prepare(harness, sink, range(3))
        sink.close()
        found = self.opened(harness).in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))

    def test_in_doubt_keeps_jobs_and_sinks_apart(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.prepare(harness, sink, range(3))
        assert self.opened(harness, job="other").in_doubt() == []
        assert self.opened(harness, sink="other").in_doubt() == []

    def test_commit_makes_the_rows_visible_unchanged(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        outcomes = self.commit(sink, self.prepare(harness, sink, range(5)))
        assert all(outcome == Committed() for outcome in outcomes)
        visible = sorted(harness.rows_visible(), key=lambda row: row["id"])
        assert visible == harness.rows(range(5))
        assert sink.in_doubt() == []

    def test_a_second_commit_is_a_no_op_on_proof(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(5))
        self.commit(sink, committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, AlreadyCommitted) and outcome.proof for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_another_driver_commits_from_the_stored_json(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        stored = json.dumps(
            [committable.to_json() for committable in self.prepare(harness, sink, range(5))]
        )
        sink.close()
        read = [Committable.from_json(value) for value in json.loads(stored)]
        outcomes = self.commit(self.opened(harness), read)
        assert all(outcome == Committed() for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_another_driver_has_proof_of_an_earlier_commit(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(5))
        self.commit(sink, committables)
        sink.close()
        outcomes = self.commit(self.opened(harness), committables)
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes)
        assert self.ids_visible(harness) == [0, 1, 2, 3, 4]

    def test_outcomes_come_in_the_order_of_the_requests(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        first = self.prepare(harness, sink, range(3), transaction_id(0))
        second = self.prepare(harness, sink, range(3, 6), transaction_id(1))
        self.commit(sink, second)
        outcomes = self.commit(sink, [*second, *first])
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in outcomes[: len(second)])
        assert all(outcome == Committed() for outcome in outcomes[len(second) :])

    def test_only_the_pieces_asked_for_become_visible(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        winner = self.prepare(harness, sink, range(3), subtask=Subtask(0, 1))
        loser = self.prepare(
            harness, sink, range(10, 13), transaction_id(0, Attempt(1, 2)), subtask=Subtask(0, 2)
        )
        self.commit(sink, winner)
        assert self.ids_visible(harness) == [0, 1, 2]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, loser))

    def test_a_piece_of_another_target_is_never_committed(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(3))
        strange = [
            dataclasses.replace(committable, target="elsewhere") for committable in committables
        ]
        with pytest.raises(TargetChangedError):
            self.commit(sink, strange)
        assert self.ids_visible(harness) == []

    def test_a_piece_that_is_committed_needs_its_target_no_more(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        committables = self.prepare(harness, sink, range(3))
        self.commit(sink, committables)
        strange = [
            dataclasses.replace(committable, target="elsewhere") for committable in committables
        ]
        assert all(isinstance(outcome, AlreadyCommitted) for outcome in self.commit(sink, strange))

    def test_each_target_has_a_name_of_its_own(self, harness: SinkHarness, sink: OpenSink) -> None:
        elsewhere = harness.elsewhere()
        other = self.opened(elsewhere)
        assert self.opened(harness).target() == sink.target()
        assert other.target() != sink.target()
        other.fence(FIRST)
        with pytest.raises(TargetChangedError):
            self.commit(other, self.prepare(harness, sink, range(3)))
        assert self.ids_visible(elsewhere) == []
        other.close()

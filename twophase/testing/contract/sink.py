"""The contract suite that every sink inherits.

    class TestMySqlSink(ArrowSinkContract):
        @pytest.fixture
        def harness(self, mysql) -> MySqlHarness:
            return MySqlHarness(mysql)

The suite follows the order in which the coordinator calls a sink (`twophase.contract.sink`): pieces
in doubt are committed or aborted before the fence is raised. One class a subject; the optional
powers have suites of their own, in `powers`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost
from twophase.contract.sink import (
    CanRewind,
    CompletesPartitions,
    KnowsOtherNames,
    NamesPieces,
    OpenSink,
    Predecessor,
    RewindsInSteps,
    Sink,
    SinkHistory,
    TellsUnfinished,
)
from twophase.errors import (
    ConfigError,
    FencedError,
    FenceLostError,
    PreflightError,
    RejectedRowsError,
    RestoreRefusedError,
    StopJobError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.ids import Attempt, Subtask
from twophase.internals.json_values import from_json, to_json
from twophase.testing.contract.base import (
    CLOSED,
    Closed,
    ContractBase,
    all_are,
    closed_by_each,
    local_time,
)
from twophase.testing.contract.declared import BeforeOpenContract
from twophase.testing.harness import (
    FIRST,
    JOB,
    LINEAGE,
    OTHER_LINEAGE,
    SINK,
    Row,
    SinkHarness,
    identity,
    transaction_id,
)

POWERS: tuple[type, ...] = (
    CanRewind,
    CompletesPartitions,
    KnowsOtherNames,
    NamesPieces,
    RewindsInSteps,
    TellsUnfinished,
)


class DeclaredContract(ContractBase):
    """A declared sink holds options and no connection."""

    def test_a_declared_sink_works_after_pickling(self, harness: SinkHarness) -> None:
        # our own bytes
        copy: Sink = pickle.loads(pickle.dumps(harness.new_sink()))  # noqa: S301
        sink = copy.open(self.context())
        sink.fence(FIRST)
        made = self.prepare(sink, range(3))
        assert self.commit(sink, made) == [Committed()] * len(made)
        assert self.ids_visible() == [0, 1, 2]
        sink.close()

    def test_one_declared_sink_is_open_for_two_jobs_at_once(self, harness: SinkHarness) -> None:
        declared = harness.new_sink()
        sinks = {job: declared.open(self.context(job=job)) for job in ("one", "two")}
        made = {}
        for number, (job, sink) in enumerate(sinks.items()):
            sink.fence(FIRST)
            made[job] = self.prepare(sink, [number], transaction_id(job=job))
        for job, sink in sinks.items():
            assert list(map(identity, sink.in_doubt())) == list(map(identity, made[job]))
        self.commit(sinks["one"], made["one"])
        sinks["one"].close()
        self.commit(sinks["two"], made["two"])
        assert self.ids_visible() == [0, 1]
        sinks["two"].close()
        assert pickle.dumps(declared), "opening it left something that cannot be pickled"

    def test_a_repair_opens_a_sink_without_columns(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        made = self.prepare(sink, [1], transaction_id(4))
        sink.close()
        repair = self.opened_for_repair()
        assert repair.target() == made[0].target
        assert repair.history().committed == {LINEAGE: 3}
        assert list(map(identity, repair.in_doubt())) == list(map(identity, made))
        assert self.commit(repair, made) == [Committed()] * len(made)
        assert self.ids_visible() == [0, 1]
        repair.close()


class LookContract(ContractBase):
    """A dry run, and a start that is refused, leave a target as it was: `SinkHarness.contents`."""

    @staticmethod
    def look(sink: OpenSink) -> None:
        """Call all that a dry run calls, and what a repair plans by."""
        sink.target()
        sink.history()
        found = sink.in_doubt()
        if isinstance(sink, KnowsOtherNames):
            sink.other_names()
        if isinstance(sink, NamesPieces):
            sink.committed_pieces(LINEAGE, 4)
        if isinstance(sink, TellsUnfinished):
            sink.unfinished(found)
        if isinstance(sink, CompletesPartitions):
            sink.waiting_partitions()
        if isinstance(sink, CanRewind):
            with suppress(RestoreRefusedError):
                sink.check_rewind({LINEAGE: 3})
        sink.close()

    def test_a_look_at_a_new_target_leaves_it_as_it_was(self, harness: SinkHarness) -> None:
        before = harness.contents()
        with suppress(ConfigError, PreflightError):  # there is no table, and none is made
            self.look(self.opened_for_repair())
        assert harness.contents() == before

    def test_a_look_at_a_target_in_use_leaves_it_as_it_was(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        sink.subsume(LINEAGE, 3)
        waiting = self.prepare(sink, [2], transaction_id(5))
        before = harness.contents()
        for again in (
            self.opened_for_repair(),
            self.opened_for_repair(job="other"),
            self.opened_for_repair(sink="other"),
            self.opened(),
        ):
            self.look(again)
            assert harness.contents() == before
        assert [*map(identity, sink.in_doubt())] == [*map(identity, waiting)]

    def test_a_fence_makes_what_a_look_has_not_made(self) -> None:
        try:
            sink = self.opened_for_repair()
        except (ConfigError, PreflightError):  # there is no table
            self.opened(job="other").close()
            sink = self.opened_for_repair()
        sink.fence(Attempt(3, 0))
        assert sink.history().generation == self.opened().history().generation == 3
        sink.close()


class PhasesContract(ContractBase):
    """Phase 1 makes rows durable and invisible; phase 2 makes them visible."""

    def test_pre_committed_rows_are_invisible(self, sink: OpenSink) -> None:
        assert self.prepare(sink, range(5))
        assert self.ids_visible() == []

    def test_a_committable_names_its_transaction_subtask_target_and_rows(
        self, sink: OpenSink
    ) -> None:
        committables = self.prepare(sink, range(5), subtask=Subtask(0, 0))
        assert {committable.transaction for committable in committables} == {transaction_id()}
        assert {committable.target for committable in committables} == {sink.target()}
        assert sum(committable.rows for committable in committables) == 5
        assert all(committable.rows > 0 for committable in committables)

    def test_what_is_pre_committed_is_in_doubt_under_its_full_identity(
        self, sink: OpenSink
    ) -> None:
        made = self.prepare(sink, range(3), transaction_id(7, Attempt(1, 4)), Subtask(0, 9))
        found = sink.in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))
        assert {committable.target for committable in found} == {sink.target()}

    def test_in_doubt_comes_from_the_target_not_from_memory(self, sink: OpenSink) -> None:
        made = self.prepare(sink, range(3))
        sink.close()
        found = self.opened().in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))

    def test_in_doubt_keeps_jobs_and_sinks_apart(self, sink: OpenSink) -> None:
        self.prepare(sink, range(3))
        assert self.opened(job="other").in_doubt() == []
        assert self.opened(sink="other").in_doubt() == []

    def test_commit_makes_the_rows_visible_unchanged(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        outcomes = self.commit(sink, self.prepare(sink, range(5)))
        assert all(outcome == Committed() for outcome in outcomes)
        visible = sorted(harness.rows_visible(), key=lambda row: row["id"])
        assert visible == harness.rows(range(5))
        assert sink.in_doubt() == []

    def test_a_second_commit_is_a_no_op_on_proof(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(5))
        self.commit(sink, committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, AlreadyCommitted) and outcome.proof for outcome in outcomes)
        assert self.ids_visible() == [0, 1, 2, 3, 4]

    def test_another_driver_commits_from_the_stored_json(self, sink: OpenSink) -> None:
        stored = json.dumps(to_json(self.prepare(sink, range(5))))
        sink.close()
        read = [from_json(Committable, value, "A piece") for value in json.loads(stored)]
        outcomes = self.commit(self.opened(), read)
        assert all(outcome == Committed() for outcome in outcomes)
        assert self.ids_visible() == [0, 1, 2, 3, 4]

    def test_another_driver_has_proof_of_an_earlier_commit(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(5))
        self.commit(sink, committables)
        sink.close()
        assert all_are(AlreadyCommitted, self.commit(self.opened(), committables))
        assert self.ids_visible() == [0, 1, 2, 3, 4]

    def test_outcomes_come_in_the_order_of_the_requests(self, sink: OpenSink) -> None:
        made = [
            piece
            for number in range(4)
            for piece in self.prepare(sink, [number], transaction_id(number))
        ]
        self.commit(sink, made[1::2])
        outcomes = self.commit(sink, made)
        assert outcomes[::2] == [Committed()] * len(made[::2])
        assert all_are(AlreadyCommitted, outcomes[1::2])

    def test_a_piece_may_have_many_rows(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, range(1000)))
        assert self.ids_visible() == [*range(1000)]

    def test_only_the_pieces_asked_for_become_visible(self, sink: OpenSink) -> None:
        winner = self.prepare(sink, range(3), subtask=Subtask(0, 1))
        loser = self.prepare(
            sink, range(10, 13), transaction_id(0, Attempt(1, 2)), subtask=Subtask(0, 2)
        )
        self.commit(sink, winner)
        assert self.ids_visible() == [0, 1, 2]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, loser))

    def test_a_piece_of_another_target_is_never_committed(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(3))
        strange = [
            dataclasses.replace(committable, target="elsewhere") for committable in committables
        ]
        with pytest.raises(TargetChangedError):
            self.commit(sink, strange)
        assert self.ids_visible() == []

    def test_a_piece_that_is_committed_needs_its_target_no_more(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(3))
        self.commit(sink, committables)
        strange = [
            dataclasses.replace(committable, target="elsewhere") for committable in committables
        ]
        assert all_are(AlreadyCommitted, self.commit(sink, strange))

    def test_each_target_has_a_name_of_its_own(self, harness: SinkHarness, sink: OpenSink) -> None:
        assert self.opened().target() == sink.target()
        pieces = self.prepare(sink, range(3))
        self.use(harness.elsewhere())
        first = self.opened()
        first.fence(FIRST)
        self.commit(first, self.prepare(first, range(2)))
        names = {sink.target(), first.target()}
        first.close()
        self.use(harness.elsewhere())
        other = self.opened()
        names.add(other.target())
        assert len(names) == 3, "elsewhere() is another target each time"
        assert self.ids_visible() == [], "elsewhere() is an empty target"
        other.fence(FIRST)
        with pytest.raises(TargetChangedError):
            self.commit(other, pieces)
        assert self.ids_visible() == []
        other.close()


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

    def test_a_piece_is_committed_after_its_predecessor(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        later = self.prepare(sink, [1], transaction_id(5))
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)
        assert self.ids_visible() == [0, 1]

    def test_the_mark_is_proof_of_a_predecessor(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        sink.subsume(LINEAGE, 3)
        self.commit_after(sink, self.prepare(sink, [1], transaction_id(4)), 3)
        assert self.ids_visible() == [0, 1]

    def test_the_predecessor_may_be_in_a_lineage_that_is_continued(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        restored = self.prepare(sink, [1], transaction_id(1, lineage=OTHER_LINEAGE))
        self.commit_after(sink, restored, 3)
        assert self.ids_visible() == [0, 1]

    @pytest.mark.parametrize(
        "predecessor", [(LINEAGE, 4), (OTHER_LINEAGE, 3)], ids=["later", "of another lineage"]
    )
    def test_a_piece_whose_predecessor_is_missing_is_refused(
        self, sink: OpenSink, predecessor: tuple[str, int]
    ) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        later = self.prepare(sink, [1], transaction_id(5))
        lineage, checkpoint = predecessor
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, later, checkpoint, lineage)
        assert self.ids_visible() == [0]
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, later)), (
            "it waits for its target"
        )
        assert self.commit_after(sink, later, 3) == [Committed()] * len(later)

    def test_a_predecessor_of_another_sink_is_none(self, sink: OpenSink) -> None:
        other = self.opened(sink="other")
        other.fence(FIRST)
        self.commit(other, self.prepare(other, [0], transaction_id(3, sink="other")))
        with pytest.raises(TargetChangedError):
            self.commit_after(sink, self.prepare(sink, [1], transaction_id(4)), 3)
        assert self.ids_visible() == [0]

    def test_a_piece_that_is_committed_needs_its_predecessor_no_more(self, sink: OpenSink) -> None:
        committed = self.prepare(sink, [0], transaction_id(3))
        self.commit(sink, committed)
        assert all_are(AlreadyCommitted, self.commit_after(sink, committed, 2))


class RowContract(ContractBase):
    """No value changes between writer and reader."""

    def test_null_stays_null_and_an_empty_text_empty(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        rows = harness.rows_with_nulls()
        assert any(value is None for row in rows for value in row.values()), (
            "rows_with_nulls() has no NULL"
        )
        batch = pa.RecordBatch.from_pylist(rows, schema=harness.schema)
        self.commit(sink, harness.pre_commit(sink, transaction_id(), batch))
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == rows

    def test_no_value_loses_anything(self, harness: SinkHarness, sink: OpenSink) -> None:
        """Compared as they are written, which tells 0.0 from -0.0. Executor, driver and reader
        have other clocks.
        """
        rows = harness.rows_of_extremes()
        batch = pa.RecordBatch.from_pylist(rows, schema=harness.schema)
        with local_time("America/New_York"):
            made = harness.pre_commit(sink, transaction_id(), batch)
        with local_time("Asia/Kolkata"):
            self.commit(sink, made)

        def written(given: Iterable[Row]) -> dict[int, dict[str, str]]:
            return {row["id"]: {name: _shown(row[name]) for name in row} for row in given}

        assert written(harness.rows_visible()) == written(rows)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
    def test_a_float_that_is_no_number_is_stored_as_it_is_or_refused_by_name(
        self, harness: SinkHarness, sink: OpenSink, value: float
    ) -> None:
        columns = [field.name for field in harness.schema if pa.types.is_floating(field.type)]
        given = dict.fromkeys(columns, value)
        batch = pa.RecordBatch.from_pylist([harness.rows([1])[0] | given], schema=harness.schema)
        made, refusal = [], ""
        try:
            made = harness.pre_commit(sink, transaction_id(), batch)
        except RejectedRowsError as error:
            refusal = error.what
        self.commit(sink, made)
        if refusal:
            assert any(name in refusal for name in columns), "the error names no column"
            assert harness.rows_visible() == []
            return
        [found] = harness.rows_visible()
        assert {name: repr(found[name]) for name in columns} == dict.fromkeys(columns, repr(value))

    def test_equal_rows_of_a_piece_are_all_there(self, sink: OpenSink) -> None:
        self._repeat(sink, [[7, 8, 7, 7]])

    def test_equal_rows_of_several_checkpoints_are_all_there(self, sink: OpenSink) -> None:
        self._repeat(sink, [[7], [8, 7], [7]])

    def _repeat(self, sink: OpenSink, ids_by_checkpoint: Sequence[Sequence[int]]) -> None:
        """Equal rows are as many as they were, unless the target has a key and refuses them."""
        written: list[int] = []
        for checkpoint, ids in enumerate(ids_by_checkpoint):
            try:
                made = self.prepare(sink, ids, transaction_id(checkpoint))
            except RejectedRowsError:
                break
            self.commit(sink, made)
            written += ids
        assert self.ids_visible() == sorted(written)

    def test_columns_of_a_piece_are_those_that_it_was_written_with(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        made = self.prepare(sink, range(3))
        sink.close()
        names = list(reversed(harness.schema.names))
        again = self.opened(schema=pa.schema([harness.schema.field(name) for name in names]))
        assert self.commit(again, made) == [Committed()] * len(made)
        again.close()
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == harness.rows(range(3))

    def test_a_query_with_fewer_columns_commits_the_whole_piece(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        made = self.prepare(sink, range(3))
        sink.close()
        try:
            again = self.opened(schema=_shortened(harness.schema))
        except TwoPhaseError:  # it needs every column of its target; so the piece waits
            again = self.opened()
        assert self.commit(again, made) == [Committed()] * len(made)
        again.close()
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == harness.rows(range(3))

    def test_a_query_with_more_columns_commits_a_piece_as_it_is(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        fewer, lacking = _shortened(harness.schema), harness.schema.names[-1]
        batch = self.batch(range(3)).select(fewer.names)
        try:
            before = self.opened(schema=fewer)
            made = harness.pre_commit(before, transaction_id(), batch)
        except TwoPhaseError:  # it needs every column of its target
            assert self.ids_visible() == []
            return
        before.close()
        assert self.commit(sink, made) == [Committed()] * len(made)
        found: list[Row] = [{lacking: None, **row} for row in harness.rows_visible()]
        assert sorted(found, key=lambda row: row["id"]) == [
            row | {lacking: None} for row in harness.rows(range(3))
        ]

    def test_columns_go_by_name_after_a_restart_with_another_order(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        """Unless files have their columns in one order, as CSV has: then another one is refused."""
        self.commit(sink, self.prepare(sink, range(2)))
        sink.close()
        names = list(reversed(harness.schema.names))
        reversed_ = pa.schema([harness.schema.field(name) for name in names])
        if harness.has_one_order:
            with pytest.raises(ConfigError):
                self.opened(schema=reversed_)
            return
        again = self.opened(schema=reversed_)
        again.fence(FIRST)
        self.commit(
            again,
            harness.pre_commit(again, transaction_id(1), self.batch(range(2, 4)).select(names)),
        )
        again.close()
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == harness.rows(range(4))


def _shortened(columns: pa.Schema) -> pa.Schema:
    """Return all columns but the last."""
    return pa.schema([*columns][:-1])


def _shown(value: object) -> str:
    """Return what two values share only if they are the same one; moments, in whatever zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return repr(value)


class AbortContract(ContractBase):
    """An aborted piece is gone; everything else stays."""

    def test_abort_leaves_nothing_behind(self, sink: OpenSink) -> None:
        sink.abort(self.prepare(sink, range(5)))
        assert self.ids_visible() == []
        assert sink.in_doubt() == []

    def test_abort_takes_what_in_doubt_gave(self, sink: OpenSink) -> None:
        self.prepare(sink, range(5))
        again = self.opened()
        again.abort(again.in_doubt())
        assert again.in_doubt() == []
        assert self.ids_visible() == []

    def test_abort_of_what_is_gone_is_done(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(5))
        sink.abort(committables)
        sink.abort(committables)

    def test_the_same_rows_can_be_written_after_an_abort(self, sink: OpenSink) -> None:
        sink.abort(self.prepare(sink, range(5)))
        second = self.prepare(sink, range(5), transaction_id(0, Attempt(1, 2)), Subtask(0, 1))
        self.commit(sink, second)
        assert self.ids_visible() == [0, 1, 2, 3, 4]

    def test_a_piece_that_is_gone_is_lost_never_called_committed(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(5))
        sink.abort(committables)
        outcomes = self.commit(sink, committables)
        assert all(isinstance(outcome, Lost) and outcome.evidence for outcome in outcomes)

    def test_abort_of_a_loser_leaves_what_is_committed_of_its_checkpoint(
        self, sink: OpenSink
    ) -> None:
        loser = self.prepare(sink, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(sink, range(3), transaction_id(0, Attempt(1, 2)), Subtask(0, 2))
        self.commit(sink, winner)
        sink.abort(loser)
        assert self.ids_visible() == [0, 1, 2]
        assert sink.in_doubt() == []
        assert all_are(AlreadyCommitted, self.commit(sink, winner))

    def test_abort_of_a_loser_leaves_what_is_pre_committed_of_its_checkpoint(
        self, sink: OpenSink
    ) -> None:
        loser = self.prepare(sink, range(10, 13), subtask=Subtask(0, 1))
        winner = self.prepare(sink, range(3), transaction_id(0, Attempt(1, 2)), Subtask(0, 2))
        sink.abort(loser)
        assert sorted(map(identity, sink.in_doubt())) == sorted(map(identity, winner))
        assert all(outcome == Committed() for outcome in self.commit(sink, winner))
        assert self.ids_visible() == [0, 1, 2]

    def test_abort_never_takes_back_what_is_committed(self, sink: OpenSink) -> None:
        committables = self.prepare(sink, range(3))
        self.commit(sink, committables)
        with suppress(StopJobError):  # an error about the contradiction is as good as doing nothing
            sink.abort(committables)
        assert self.ids_visible() == [0, 1, 2]
        assert all_are(AlreadyCommitted, self.commit(sink, committables))


class FenceContract(ContractBase):
    """A fence closes all attempts below it for ever, and is never lowered."""

    def test_a_target_that_has_not_seen_the_job_has_no_history(self) -> None:
        assert self.opened().history() == SinkHistory(0, {})

    def test_the_fence_outlives_the_driver(self, sink: OpenSink) -> None:
        sink.fence(Attempt(3, 1))
        sink.close()
        assert self.opened().history().generation == 3

    def test_raising_the_fence_again_is_a_no_op_and_never_lowers_it(self, sink: OpenSink) -> None:
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 5))
        sink.fence(Attempt(2, 3))
        with pytest.raises(CLOSED):
            self.prepare(sink, range(3), transaction_id(0, Attempt(2, 4)))
        assert sink.history().generation == 2

    def test_a_driver_of_a_lower_generation_is_fenced(self, sink: OpenSink) -> None:
        sink.fence(Attempt(2, 1))
        with pytest.raises(FencedError):
            sink.fence(Attempt(1, 9))
        assert sink.history().generation == 2

    @closed_by_each
    def test_a_closed_attempt_cannot_begin(
        self, sink: OpenSink, closed_by: Attempt, error: Closed
    ) -> None:
        sink.fence(closed_by)
        with pytest.raises(error):
            self.prepare(sink, range(3), transaction_id(0, FIRST))
        assert sink.in_doubt() == []
        assert self.ids_visible() == []

    def test_fences_of_other_jobs_and_sinks_do_not_matter(self, sink: OpenSink) -> None:
        for other in (self.opened(job="other"), self.opened(sink="other")):
            other.fence(Attempt(9, 9))
            other.close()
        assert sink.history().generation == 1
        assert self.prepare(sink, range(3))

    def test_without_a_fence_nobody_can_begin(self) -> None:
        never_fenced = self.opened()
        with pytest.raises(FenceLostError):
            self.prepare(never_fenced, range(3))
        assert never_fenced.in_doubt() == []
        assert self.ids_visible() == []

    @pytest.mark.parametrize(
        ("generation", "error"), [(1, FencedError), (3, FenceLostError)], ids=["lower", "higher"]
    )
    def test_another_generation_than_the_fences_cannot_begin(
        self, sink: OpenSink, generation: int, error: type[Exception]
    ) -> None:
        """A higher attempt that the target has not seen: its fence was lost, or it was restored.
        That is no other driver's doing, and must not end the job as if one went on.
        """
        sink.fence(Attempt(2, 1))
        with pytest.raises(error):
            self.prepare(sink, range(3), transaction_id(0, Attempt(generation, 9)))
        assert sink.in_doubt() == []
        assert self.ids_visible() == []

    def test_the_fenced_generations_later_attempts_begin(self, sink: OpenSink) -> None:
        sink.fence(Attempt(2, 1))
        assert self.prepare(sink, range(3), transaction_id(0, Attempt(2, 1)), Subtask(0, 1))
        assert self.prepare(sink, range(3, 6), transaction_id(1, Attempt(2, 2)), Subtask(0, 2))

    def test_attempts_are_compared_as_numbers(self, sink: OpenSink) -> None:
        """As text, 10 is below 9."""
        for fence, closed in [((9, 10), (9, 9)), ((10, 9), (9, 11)), ((10, 10), (10, 9))]:
            sink.fence(Attempt(*fence))
            with pytest.raises(CLOSED):
                self.prepare(sink, [0], transaction_id(0, Attempt(*closed)))
        with pytest.raises(FencedError):
            sink.fence(Attempt(9, 12))
        assert sink.history().generation == 10
        assert self.prepare(sink, [0], transaction_id(0, Attempt(10, 10)), Subtask(0, 1))
        assert self.prepare(sink, [1], transaction_id(1, Attempt(10, 100)), Subtask(0, 2))

    @pytest.mark.parametrize("call", ["abort", "commit", "subsume", "in_doubt", "open"])
    def test_no_other_call_takes_the_fence_down(self, sink: OpenSink, call: str) -> None:
        second = Attempt(2, 1)
        sink.fence(second)
        pieces = self.prepare(sink, range(3), transaction_id(0, second))
        if call == "abort":
            sink.abort(pieces)
        elif call == "in_doubt":
            sink.in_doubt()
        elif call == "open":
            self.opened().close()
        else:
            self.commit(sink, pieces)
            if call == "subsume":
                sink.subsume(LINEAGE, 0)
        late = transaction_id(1, FIRST)
        with pytest.raises(CLOSED):
            self.prepare(sink, range(10, 13), late, Subtask(0, 7))
        assert late not in [piece.transaction for piece in sink.in_doubt()]
        assert sink.history().generation == second.generation


class NamesContract(ContractBase):
    """Jobs and sinks are told apart by their whole names, letter for letter."""

    @pytest.mark.parametrize("kind", ["job", "sink"])
    def test_similar_names_are_others(self, kind: str) -> None:
        pairs = [("p", "pq"), ("rs", "r"), ("TU", "tu"), ("v_w", "vxw"), ("y.z", "y-z")]
        for number, (mine, theirs) in enumerate(pairs):
            names = {"job": JOB, "sink": SINK, kind: theirs}
            other = self.opened(**names)
            other.fence(FIRST)
            self.written(other, [(5, [number])], job=names["job"], name=names["sink"])
            waiting = self.prepare(
                other, [10 + number], transaction_id(6, job=names["job"], sink=names["sink"])
            )
            sink = self.opened(**{kind: mine})
            assert sink.history() == SinkHistory(0, {}), (mine, theirs)
            assert sink.in_doubt() == [], (mine, theirs)
            sink.fence(Attempt(9, 1))
            sink.subsume(LINEAGE, 5)
            assert other.history() == SinkHistory(1, {LINEAGE: 5}), (mine, theirs)
            assert self.commit(other, waiting) == [Committed()] * len(waiting), (mine, theirs)
            sink.close()
            other.close()


class ProofContract(ContractBase):
    """Proof is kept for ever, and proves only what was committed."""

    def test_history_counts_what_is_committed_not_what_is_prepared(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(4)))
        self.prepare(sink, [1], transaction_id(5))
        assert self.opened().history().committed == {LINEAGE: 4}

    def test_history_outlives_subsume_and_keeps_lineages_apart(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(7)))
        sink.subsume(LINEAGE, 7)
        self.commit(sink, self.prepare(sink, [1], transaction_id(0, lineage=OTHER_LINEAGE)))
        assert sink.history().committed == {LINEAGE: 7, OTHER_LINEAGE: 0}
        assert self.opened(sink="other").history().committed == {}

    def test_proof_outlives_subsume(self, sink: OpenSink) -> None:
        committables = self.written(sink, [(n, [n]) for n in range(3)])
        sink.subsume(LINEAGE, 2)
        assert all_are(AlreadyCommitted, self.commit(sink, committables))
        assert self.ids_visible() == [0, 1, 2]

    def test_subsume_never_goes_backwards(self, sink: OpenSink) -> None:
        committables = self.written(sink, [(n, [n]) for n in range(3)])
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 2)
        sink.subsume(LINEAGE, 0)
        assert all_are(AlreadyCommitted, self.commit(sink, committables))

    def test_subsume_keeps_the_proof_of_later_checkpoints(self, sink: OpenSink) -> None:
        committables = self.written(sink, [(n, [n]) for n in range(3)])
        sink.subsume(LINEAGE, 0)
        assert all_are(AlreadyCommitted, self.commit(sink, committables))

    def test_subsume_proves_no_more_than_the_target_had_proof_of(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(3)))
        sink.subsume(LINEAGE, 7)
        sink.subsume(OTHER_LINEAGE, 7)
        assert self.opened().history().committed == {LINEAGE: 3}

    def test_checkpoints_are_compared_as_numbers(self, sink: OpenSink) -> None:
        """As text, 10 is below 9."""
        made = self.written(sink, [(number, [number]) for number in (9, 10, 11)])
        assert sink.history().committed == {LINEAGE: 11}
        for folded in (9, 10, 9):
            sink.subsume(LINEAGE, folded)
            assert sink.history().committed == {LINEAGE: 11}
            assert all_are(AlreadyCommitted, self.commit(sink, made))
        sink.subsume(LINEAGE, 11)
        assert sink.history().committed == {LINEAGE: 11}
        assert all_are(AlreadyCommitted, self.commit(sink, made))

    def test_a_mark_is_compared_as_a_number(self, sink: OpenSink) -> None:
        """As text, 10 is below 9."""
        self.written(sink, [(9, [9])])
        sink.subsume(LINEAGE, 9)
        later = self.prepare(sink, [10], transaction_id(10))
        with pytest.raises(TargetChangedError):
            self.commit(sink, later, Predecessor(LINEAGE, 10))
        self.commit(sink, later, Predecessor(LINEAGE, 9))
        sink.subsume(LINEAGE, 10)
        self.commit(sink, self.prepare(sink, [11], transaction_id(11)), Predecessor(LINEAGE, 9))
        gone = self.prepare(sink, [100], transaction_id(100))
        sink.abort(gone)
        assert all_are(Lost, self.commit(sink, gone))
        assert self.ids_visible() == [9, 10, 11]

    def test_a_mark_proves_nothing_for_a_later_checkpoint(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(0)))
        sink.subsume(LINEAGE, 0)
        gone = self.prepare(sink, [1], transaction_id(1))
        sink.abort(gone)
        assert all_are(Lost, self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_lineage(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        gone = self.prepare(sink, [1], transaction_id(3, lineage=OTHER_LINEAGE))
        sink.abort(gone)
        assert all_are(Lost, self.commit(sink, gone))

    def test_a_mark_proves_nothing_for_another_sink(self, sink: OpenSink) -> None:
        self.commit(sink, self.prepare(sink, [0], transaction_id(5)))
        sink.subsume(LINEAGE, 5)
        other = self.opened(sink="other")
        other.fence(FIRST)
        gone = self.prepare(other, [1], transaction_id(3, sink="other"))
        other.abort(gone)
        assert all_are(Lost, self.commit(other, gone))


class PowersContract(ContractBase):
    """A power that nothing tests may not work on the day when it is needed."""

    def test_each_power_of_the_sink_has_its_suite(self, sink: OpenSink) -> None:
        powers = {power for power in POWERS if isinstance(sink, power)}
        suites = {vars(suite)["power"] for suite in type(self).__mro__ if "power" in vars(suite)}
        untested = sorted(power.__name__ for power in powers - suites)
        missing = sorted(power.__name__ for power in suites - powers)
        assert not untested, f"inherit the suites of {untested} (twophase.testing.contract.powers)"
        assert not missing, f"the sink has no {missing}, whose suites are inherited"


class SinkContract(
    PowersContract,
    DeclaredContract,
    BeforeOpenContract,
    LookContract,
    PhasesContract,
    PredecessorContract,
    RowContract,
    AbortContract,
    FenceContract,
    NamesContract,
    ProofContract,
):
    """The contract of every sink: subclass it, and provide the fixture `harness` only."""

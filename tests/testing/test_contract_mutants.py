"""What authors of sinks get wrong: each mistake, put into the SQLite sink, is found by the test
that is there for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.testing.sqlite_mistakes import (
    AbortDropsTheFence,
    AbortsByAttempt,
    AbortsByCheckpoint,
    AbortTakesBack,
    AbortTakesBackTheCheckpoint,
    AsksAnySinkForThePredecessor,
    AsksByPattern,
    AsksByPrefix,
    AsksForNoPredecessor,
    AsksForTheMarkOnly,
    AsksForThePredecessorLast,
    AsksForTheTargetFirst,
    AsksWithoutCase,
    BindsItself,
    CheckRewinds,
    ChecksInAnotherTransaction,
    ColumnsByPosition,
    CommitDropsTheFence,
    DeclinesWhatIsFenced,
    EmptyIsNull,
    FloatsOf32Bits,
    FortyRowsAPiece,
    InDoubtDropsTheFence,
    KeepsAConnection,
    KnownPiecesFirst,
    MarkAheadOfTheProof,
    NamesEveryLineage,
    NamesTasksOnly,
    NamesTheQuerysColumns,
    NamesWhatIsStaged,
    NeedsColumns,
    NullIsEmpty,
    NumbersAsFloats,
    OneTargetForAll,
    OpenDropsTheFence,
    ProofAfterTheRows,
    ProofBeforeTheRows,
    ProofDroppedBeforeTheMark,
    RefusesGenerationsOnly,
    RefusesLaterAttempts,
    RefusesLowerOnly,
    RewindDropsTheFence,
    RewindDropsTheMark,
    RewindLeavesTheMark,
    RewindsBehindNoFence,
    RewindsByNumber,
    RewindsOneTooMany,
    RewindsOthers,
    RewindsTheProofsFirst,
    RewindsWhatHasAPieceOnly,
    RowsMadeGoodLater,
    SixPiecesACall,
    StagesInTwoSteps,
    SubsumeDropsTheFence,
    TakesAllForUnfinished,
    TakesNoneForUnfinished,
    TextCutOff,
    TextInAscii,
    TextStripped,
    WithoutTaskAttempt,
)
from twophase.errors import ConfigError, DeclinedError, FencedError, TargetChangedError
from twophase.ids import Attempt
from twophase.testing.contract import (
    ArrowSinkContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    SinkKillContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.stepping import LINES_AT_MOST
from twophase.testing.harness import FIRST, LINEAGE
from twophase.testing.sqlite_harness import SqliteHarness
from twophase.testing.sqlite_sink import OpenSqliteSink, SqliteSink

pytestmark = pytest.mark.part("contract")


@dataclass(frozen=True)
class Mistake:
    """A sink with a mistake, and the test of the suite that finds it.

    Attributes:
        sink: its class, declared or open.
        test: of the suite.
        arguments: of the test, beside its fixtures.
        failure: what the test fails with.
        lines: of a method, at which the driver is killed.
    """

    sink: type[SqliteSink] | type[OpenSqliteSink]
    test: Callable[..., None]
    arguments: dict[str, Any] = field(default_factory=dict)
    failure: type[BaseException] | tuple[type[BaseException], ...] = (
        AssertionError,
        pytest.fail.Exception,
    )
    lines: int = LINES_AT_MOST

    def __str__(self) -> str:
        words = [value for value in self.arguments.values() if isinstance(value, str)]
        return "-".join([self.sink.__name__, self.test.__name__, *words])


class Suite(ArrowSinkContract, NamesPiecesContract, RewindContract):
    """All that the sink inherits."""


SUITE = Suite
KILLS = SinkKillContract
REWIND_KILLS = RewindKillContract
UNFINISHED = TellsUnfinishedContract
MISSING = SUITE.test_a_piece_whose_predecessor_is_missing_is_refused
FENCE_DOWN = SUITE.test_no_other_call_takes_the_fence_down
MISTAKES = [
    Mistake(
        BindsItself,
        SUITE.test_one_declared_sink_is_open_for_two_jobs_at_once,
        failure=FencedError,
    ),
    Mistake(
        KeepsAConnection,
        SUITE.test_one_declared_sink_is_open_for_two_jobs_at_once,
        failure=TypeError,
    ),
    Mistake(NeedsColumns, SUITE.test_a_repair_opens_a_sink_without_columns, failure=ConfigError),
    Mistake(NamesWhatIsStaged, SUITE.test_a_piece_that_is_not_committed_is_not_named),
    Mistake(
        NamesEveryLineage,
        SUITE.test_pieces_of_other_checkpoints_lineages_and_sinks_are_not_named,
    ),
    Mistake(NamesTasksOnly, SUITE.test_the_pieces_of_a_checkpoint_are_named_by_attempt_and_subtask),
    Mistake(TakesAllForUnfinished, UNFINISHED.test_a_pre_committed_piece_is_not_unfinished),
    Mistake(
        TakesNoneForUnfinished,
        UNFINISHED.test_a_piece_of_a_killed_writer_has_a_handle_or_is_unfinished,
    ),
    Mistake(
        AbortsByCheckpoint,
        SUITE.test_abort_of_a_loser_leaves_what_is_pre_committed_of_its_checkpoint,
    ),
    Mistake(AbortsByCheckpoint, SUITE.test_abort_of_one_piece_leaves_the_others_of_its_attempt),
    Mistake(AbortsByAttempt, SUITE.test_abort_of_one_piece_leaves_the_others_of_its_attempt),
    Mistake(AbortTakesBack, SUITE.test_abort_never_takes_back_what_is_committed),
    Mistake(
        AbortTakesBackTheCheckpoint,
        SUITE.test_abort_of_a_loser_leaves_what_is_committed_of_its_checkpoint,
    ),
    Mistake(
        AbortTakesBackTheCheckpoint,
        SUITE.test_abort_of_one_piece_leaves_what_is_committed_of_its_attempt,
    ),
    Mistake(WithoutTaskAttempt, SUITE.test_attempts_of_one_task_are_pieces_apart),
    Mistake(OneTargetForAll, SUITE.test_each_target_has_a_name_of_its_own),
    Mistake(AbortDropsTheFence, FENCE_DOWN, {"call": "abort"}),
    Mistake(CommitDropsTheFence, FENCE_DOWN, {"call": "commit"}),
    Mistake(SubsumeDropsTheFence, FENCE_DOWN, {"call": "subsume"}),
    Mistake(InDoubtDropsTheFence, FENCE_DOWN, {"call": "in_doubt"}),
    Mistake(OpenDropsTheFence, FENCE_DOWN, {"call": "open"}),
    Mistake(RefusesLowerOnly, SUITE.test_without_a_fence_nobody_can_begin),
    Mistake(
        RefusesLowerOnly,
        SUITE.test_another_generation_than_the_fences_cannot_begin,
        {"generation": 3},
    ),
    Mistake(
        RefusesGenerationsOnly, SUITE.test_raising_the_fence_again_is_a_no_op_and_never_lowers_it
    ),
    Mistake(
        RefusesLaterAttempts,
        SUITE.test_the_fenced_generations_later_attempts_begin,
        failure=FencedError,
    ),
    Mistake(
        ChecksInAnotherTransaction, SUITE.test_a_fence_between_any_two_lines_of_pre_commit_counts
    ),
    Mistake(NullIsEmpty, SUITE.test_null_stays_null_and_an_empty_text_empty),
    Mistake(EmptyIsNull, SUITE.test_null_stays_null_and_an_empty_text_empty),
    Mistake(ColumnsByPosition, SUITE.test_columns_go_by_name_after_a_restart_with_another_order),
    *(
        Mistake(mistake, SUITE.test_no_value_loses_anything)
        for mistake in (TextInAscii, TextCutOff, TextStripped, FloatsOf32Bits, NumbersAsFloats)
    ),
    Mistake(
        NamesTheQuerysColumns, SUITE.test_columns_of_a_piece_are_those_that_it_was_written_with
    ),
    Mistake(FortyRowsAPiece, SUITE.test_a_piece_may_have_many_rows),
    Mistake(SixPiecesACall, SUITE.test_a_call_may_have_many_pieces),
    Mistake(KnownPiecesFirst, SUITE.test_outcomes_come_in_the_order_of_the_requests),
    *(
        Mistake(mistake, SUITE.test_similar_names_are_others, {"kind": kind})
        for mistake in (AsksByPattern, AsksWithoutCase, AsksByPrefix)
        for kind in ("job", "sink")
    ),
    Mistake(
        DeclinesWhatIsFenced,
        SUITE.test_a_closed_attempt_cannot_begin,
        {"closed_by": Attempt(2, 1), "error": FencedError},
        failure=DeclinedError,
    ),
    Mistake(
        AsksForThePredecessorLast,
        SUITE.test_no_piece_of_a_call_is_committed_without_its_predecessor,
    ),
    Mistake(AsksForNoPredecessor, MISSING, {"predecessor": (LINEAGE, 4)}),
    Mistake(AsksForNoPredecessor, SUITE.test_a_predecessor_of_another_sink_is_none),
    Mistake(AsksAnySinkForThePredecessor, SUITE.test_a_predecessor_of_another_sink_is_none),
    Mistake(
        AsksForTheMarkOnly,
        SUITE.test_a_piece_is_committed_after_its_predecessor,
        failure=TargetChangedError,
    ),
    Mistake(
        AsksForTheTargetFirst,
        SUITE.test_a_piece_that_is_committed_needs_its_target_no_more,
        failure=TargetChangedError,
    ),
    Mistake(MarkAheadOfTheProof, SUITE.test_subsume_proves_no_more_than_the_target_had_proof_of),
    Mistake(
        ProofAfterTheRows,
        KILLS.test_a_kill_at_any_line_neither_loses_nor_repeats,
        {"method": "commit"},
    ),
    Mistake(
        ProofBeforeTheRows,
        KILLS.test_a_kill_at_any_line_neither_loses_nor_repeats,
        {"method": "commit"},
    ),
    Mistake(
        RowsMadeGoodLater,
        KILLS.test_a_kill_at_any_line_neither_loses_nor_repeats,
        {"method": "commit"},
    ),
    Mistake(
        ProofDroppedBeforeTheMark,
        KILLS.test_a_kill_at_any_line_neither_loses_nor_repeats,
        {"method": "subsume"},
        lines=5,  # a quarter of them is between the two transactions
    ),
    Mistake(RewindsByNumber, SUITE.test_a_rewind_removes_lineages_that_are_not_kept),
    Mistake(RewindsByNumber, SUITE.test_a_rewind_keeps_each_lineage_up_to_its_own_end),
    Mistake(RewindsOneTooMany, SUITE.test_a_rewind_removes_what_was_committed_after_the_checkpoint),
    Mistake(
        RewindsOneTooMany,
        SUITE.test_a_restored_lineage_writes_the_rows_again,
        failure=TargetChangedError,
    ),
    Mistake(
        RewindsOthers,
        SUITE.test_a_rewind_leaves_rows_and_proofs_of_others,
        {"whose": "sink"},
    ),
    Mistake(
        RewindsOthers,
        SUITE.test_a_rewind_leaves_rows_and_proofs_of_others,
        {"whose": "job"},
    ),
    Mistake(RewindsWhatHasAPieceOnly, SUITE.test_a_rewind_removes_what_only_the_mark_proves),
    Mistake(RewindLeavesTheMark, SUITE.test_a_piece_that_was_taken_back_is_never_called_committed),
    Mistake(RewindLeavesTheMark, SUITE.test_a_rewind_removes_what_only_the_mark_proves),
    Mistake(RewindDropsTheMark, SUITE.test_a_rewind_keeps_the_proofs_of_what_stays),
    Mistake(RewindDropsTheFence, SUITE.test_a_rewind_leaves_the_fence),
    Mistake(RewindsBehindNoFence, SUITE.test_a_driver_that_was_fenced_rewinds_nothing),
    Mistake(CheckRewinds, SUITE.test_the_check_of_a_rewind_changes_nothing),
    Mistake(
        RewindsTheProofsFirst,
        REWIND_KILLS.test_a_kill_at_any_line_of_a_rewind_is_made_good,
        lines=8,
    ),
]


def play(mistake: Mistake, folder: Path) -> None:
    """The test as pytest would call it."""
    kills = {suite.__name__: suite for suite in (KILLS, REWIND_KILLS, UNFINISHED)}.get(
        mistake.test.__qualname__.partition(".")[0]
    )
    suite: Any = type("Kills", (kills,), {"lines_at_most": mistake.lines})() if kills else SUITE()
    harness = SqliteHarness(folder, mistake.sink)
    given: dict[str, Any] = {"harness": harness, "tmp_path": folder, **mistake.arguments}
    suite.use(harness)
    wanted = inspect.signature(mistake.test).parameters
    if {"sink", "arrow"} & set(wanted):
        given["sink"] = given["arrow"] = suite.opened()
        given["sink"].fence(FIRST)
    mistake.test(suite, **{name: value for name, value in given.items() if name in wanted})


DEAR = (ProofAfterTheRows, ProofBeforeTheRows, RowsMadeGoodLater)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, marks=[pytest.mark.proof] if mistake.sink in DEAR else [])
        for mistake in MISTAKES
    ],
    ids=str,
)
def test_the_mistake_is_found(mistake: Mistake, tmp_path: Path) -> None:
    with pytest.raises(mistake.failure):
        play(mistake, tmp_path)


class TestASinkThatFinishesAPieceInASecondStep(TellsUnfinishedContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, StagesInTwoSteps)


class WithoutASuite(ArrowSinkContract, NamesPiecesContract):
    """Of a sink that can rewind."""


class WithASuiteTooMany(Suite, TellsUnfinishedContract):
    """Of a sink that tells no unfinished pieces."""


@pytest.mark.parametrize(
    ("suite", "what"),
    [(WithoutASuite, r"suites of \['CanRewind'\]"), (WithASuiteTooMany, "no .'TellsUnfinished'")],
)
def test_a_power_without_its_suite_and_a_suite_without_its_power_are_found(
    suite: type[ArrowSinkContract], what: str, tmp_path: Path
) -> None:
    whole = SUITE()
    whole.use(SqliteHarness(tmp_path))
    sink = whole.opened()
    with pytest.raises(AssertionError, match=what):
        suite().test_each_power_of_the_sink_has_its_suite(sink)
    whole.test_each_power_of_the_sink_has_its_suite(sink)

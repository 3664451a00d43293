"""What authors of sinks get wrong: each mistake, put into the SQLite sink or the one in memory, is
found by the test that is there for it.
"""

from __future__ import annotations

import inspect
import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tests.testing.memory_mistakes import (
    ByWayOfALocalMoment,
    ByWayOfTheLocalClock,
    CompletesAll,
    CompletesByPrefix,
    CompletesWhatItKnowsOnly,
    ForgetsWhatIsFolded,
    ForgetsWhatWaits,
    InfinityAsTheLargest,
    KeepsRowsWaiting,
    KnowsTheMarksOnly,
    LocalClock,
    NamesItself,
    NamesOtherJobsOnly,
    NamesOtherSinksOnly,
    NamesWhatIsPrepared,
    NamesWhoHasPrepared,
    OthersOfProofs,
    ShowsRowsTwice,
    ShowsWhatWaits,
    TellsOneLineage,
    TellsTheFirstCheckpoint,
    TellsTheHighestText,
    WaitingHarness,
    ZeroWithoutSign,
)
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
    CallsSpark,
    CheckRewinds,
    ChecksByWriting,
    ChecksInAnotherTransaction,
    ChecksNothing,
    CloseDropsTheFence,
    ColumnsByPosition,
    CommitDropsTheFence,
    DeclinesWhatIsFenced,
    EmptyIsNull,
    ExpectsTheTables,
    FenceComparesText,
    FillsColumns,
    FloatsOf32Bits,
    FlushesTwice,
    FlushForgets,
    FlushPreCommits,
    FortyRowsAPiece,
    HidesAHalfRewind,
    HistorySavesMarks,
    InDoubtDropsTheFence,
    InDoubtTidiesUp,
    KeepsAConnection,
    KnownPiecesFirst,
    LeavesASession,
    LeavesASocketBesideSpark,
    LeavesColumnsOut,
    LooksBesideGarbage,
    LooksBesideSpark,
    MakesTablesForALook,
    MarkAheadOfTheProof,
    MarkAsText,
    MovesDistinctRows,
    MovesNewRowsOnly,
    NamesEveryLineage,
    NamesTasksOnly,
    NamesTheQuerysColumns,
    NamesWhatIsStaged,
    NanIsNull,
    NanIsRefusedInGeneral,
    NeedsColumns,
    NullIsEmpty,
    NumbersAsFloats,
    NumbersAsText,
    OneTargetForAll,
    OpenDropsTheFence,
    ProofAfterTheRows,
    ProofBeforeTheRows,
    ProofDroppedBeforeTheMark,
    RefusesGenerationsOnly,
    RefusesLaterAttempts,
    RefusesLowerOnly,
    Rehearses,
    RehearsesBesideTheFolder,
    RehearsesInTheWorkingFolder,
    RehearsesWithNumbers,
    RehearsesWithoutSettings,
    RewindDropsTheFence,
    RewindDropsTheMark,
    RewindLeavesTheMark,
    RewindsBehindNoFence,
    RewindsByNumber,
    RewindsInTwoSteps,
    RewindsOneTooMany,
    RewindsOthers,
    RewindsTheProofsFirst,
    RewindsWhatHasAPieceOnly,
    RowsMadeGoodLater,
    SettingsOfNumbers,
    SettingsOfTheTarget,
    SettlesBehindNoFence,
    SettlesByRewinding,
    SettlesNothing,
    SettlesTheProofs,
    SettlesWhatHasBegunOnly,
    SixPiecesACall,
    StagesInTwoSteps,
    SubsumeDropsTheFence,
    TakesAllForUnfinished,
    TakesFewerColumns,
    TakesNoneForUnfinished,
    TellsSomethingElse,
    TextCutOff,
    TextInAscii,
    TextStripped,
    WithoutTaskAttempt,
    WriterComparesText,
)
from tests.testing.test_memory_sink import MemoryHarness, TimedMemoryHarness
from twophase.contract import sink as contract_of_sinks
from twophase.errors import (
    ConfigError,
    DeclinedError,
    FencedError,
    FenceLostError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.ids import Attempt
from twophase.testing import contract as suites_of_sinks
from twophase.testing.contract import (
    ArrowSinkContract,
    CompletesPartitionsContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    RewindRefusedContract,
    RewindStepsContract,
    RewindStepsKillContract,
    SinkKillContract,
    TellsUnfinishedContract,
    UnbegunRewindContract,
)
from twophase.testing.contract.base import ContractBase
from twophase.testing.contract.declared import BeforeOpenContract
from twophase.testing.contract.sink import POWERS, RowContract
from twophase.testing.contract.stepping import LINES_AT_MOST
from twophase.testing.harness import FIRST, LINEAGE, SinkHarness
from twophase.testing.memory import OpenMemorySink
from twophase.testing.sqlite_harness import SqliteHarness
from twophase.testing.sqlite_sink import OpenSqliteSink, SqliteSink

pytestmark = [pytest.mark.part("contract"), pytest.mark.thin(4)]


@dataclass(frozen=True)
class Mistake:
    """A sink with a mistake, and the test of the suite that finds it.

    Attributes:
        sink: its class, declared or open; or that of its harness.
        test: of the suite.
        arguments: of the test, beside its fixtures.
        failure: what the test fails with.
        lines: of a method, at which the driver is killed.
    """

    sink: type[SqliteSink | OpenSqliteSink | OpenMemorySink | SqliteHarness]
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

    killed_by: ClassVar[type | str] = RewindKillContract


class OneElsewhere(SqliteHarness):
    """A harness whose other target is not a new one each time."""

    def elsewhere(self) -> SqliteHarness:
        found: SqliteHarness = vars(self).setdefault("other", super().elsewhere())
        return found


SUITE = Suite
KILLS = SinkKillContract
REWIND_KILLS = RewindKillContract
UNFINISHED = TellsUnfinishedContract
OTHERS = KnowsOtherNamesContract
STEPS = RewindStepsContract
STEP_KILLS = RewindStepsKillContract
PARTITIONS = CompletesPartitionsContract
MISSING = SUITE.test_a_piece_whose_predecessor_is_missing_is_refused
REHEARSAL = SUITE.test_a_rehearsal_writes_into_its_folder_alone
FENCE_DOWN = SUITE.test_no_other_call_takes_the_fence_down
MISTAKES = [
    Mistake(
        BindsItself,
        SUITE.test_one_declared_sink_is_open_for_two_jobs_at_once,
        failure=FenceLostError,
    ),
    Mistake(
        KeepsAConnection,
        SUITE.test_one_declared_sink_is_open_for_two_jobs_at_once,
        failure=TypeError,
    ),
    Mistake(NeedsColumns, SUITE.test_a_repair_opens_a_sink_without_columns, failure=ConfigError),
    Mistake(ChecksByWriting, SUITE.test_an_early_look_leaves_nothing_behind),
    Mistake(LeavesASession, SUITE.test_an_early_look_leaves_nothing_behind),
    Mistake(ChecksNothing, SUITE.test_an_early_look_tells_what_open_would_tell),
    Mistake(TellsSomethingElse, SUITE.test_an_early_look_tells_what_open_would_tell),
    Mistake(SettingsOfNumbers, SUITE.test_the_settings_for_spark_are_text_and_need_no_target),
    Mistake(
        SettingsOfTheTarget,
        SUITE.test_the_settings_for_spark_are_text_and_need_no_target,
        failure=TargetUnreachableError,
    ),
    *(
        Mistake(mistake, REHEARSAL)
        for mistake in (
            RehearsesInTheWorkingFolder,
            RehearsesBesideTheFolder,
            RehearsesWithNumbers,
        )
    ),
    Mistake(RehearsesWithoutSettings, REHEARSAL, failure=TypeError),
    Mistake(CallsSpark, KILLS.test_a_repair_commits_without_spark_unless_the_sink_needs_it),
    Mistake(MakesTablesForALook, SUITE.test_a_look_at_a_new_target_leaves_it_as_it_was),
    Mistake(
        ExpectsTheTables,
        SUITE.test_a_fence_makes_what_a_look_has_not_made,
        failure=sqlite3.OperationalError,
    ),
    *(
        Mistake(mistake, SUITE.test_a_look_at_a_target_in_use_leaves_it_as_it_was)
        for mistake in (HistorySavesMarks, InDoubtTidiesUp, CheckRewinds, CloseDropsTheFence)
    ),
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
    Mistake(OneElsewhere, SUITE.test_each_target_has_a_name_of_its_own),
    Mistake(AbortDropsTheFence, FENCE_DOWN, {"call": "abort"}),
    Mistake(CommitDropsTheFence, FENCE_DOWN, {"call": "commit"}),
    Mistake(SubsumeDropsTheFence, FENCE_DOWN, {"call": "subsume"}),
    Mistake(InDoubtDropsTheFence, FENCE_DOWN, {"call": "in_doubt"}),
    Mistake(OpenDropsTheFence, FENCE_DOWN, {"call": "open"}),
    Mistake(RefusesLowerOnly, SUITE.test_without_a_fence_nobody_can_begin),
    Mistake(
        RefusesLowerOnly,
        SUITE.test_another_generation_than_the_fences_cannot_begin,
        {"generation": 3, "error": FenceLostError},
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
    Mistake(LeavesColumnsOut, SUITE.test_a_query_with_fewer_columns_commits_the_whole_piece),
    Mistake(FillsColumns, SUITE.test_a_query_with_more_columns_commits_a_piece_as_it_is),
    *(
        Mistake(mistake, SUITE.test_no_value_loses_anything)
        for mistake in (ZeroWithoutSign, LocalClock, ByWayOfTheLocalClock, ByWayOfALocalMoment)
    ),
    *(
        Mistake(
            mistake,
            SUITE.test_a_float_that_is_no_number_is_stored_as_it_is_or_refused_by_name,
            {"value": value},
        )
        for mistake, value in (
            (NanIsNull, math.nan),
            (NanIsRefusedInGeneral, math.nan),
            (InfinityAsTheLargest, math.inf),
        )
    ),
    Mistake(MovesDistinctRows, SUITE.test_equal_rows_of_a_piece_are_all_there),
    Mistake(MovesNewRowsOnly, SUITE.test_equal_rows_of_several_checkpoints_are_all_there),
    Mistake(MovesNewRowsOnly, SUITE.test_equal_rows_of_several_pieces_are_all_there),
    Mistake(FlushesTwice, SUITE.test_a_flushed_writer_shows_nothing_and_makes_the_same_piece),
    Mistake(FlushForgets, SUITE.test_a_flushed_writer_shows_nothing_and_makes_the_same_piece),
    Mistake(FlushPreCommits, SUITE.test_a_writer_that_is_flushed_and_aborted_leaves_nothing),
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
    Mistake(NumbersAsText, SUITE.test_checkpoints_are_compared_as_numbers),
    Mistake(NumbersAsText, SUITE.test_a_rewind_compares_checkpoints_as_numbers),
    Mistake(MarkAsText, SUITE.test_a_mark_is_compared_as_a_number),
    *(
        Mistake(
            mistake,
            SUITE.test_attempts_are_compared_as_numbers,
            failure=(pytest.fail.Exception, FencedError),
        )
        for mistake in (WriterComparesText, FenceComparesText)
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
    Mistake(
        HidesAHalfRewind,
        REWIND_KILLS.test_a_kill_at_any_line_of_a_rewind_is_made_good,
        lines=8,
    ),
    Mistake(SettlesNothing, STEP_KILLS.test_a_kill_at_any_line_of_a_rewind_is_settled, lines=8),
    Mistake(SettlesByRewinding, STEPS.test_a_rewind_that_has_not_reached_the_sink_is_given_up),
    Mistake(SettlesTheProofs, STEPS.test_a_rewind_that_has_not_reached_the_sink_is_given_up),
    Mistake(
        SettlesWhatHasBegunOnly,
        STEPS.test_a_rewind_that_is_done_in_the_sink_is_given_up,
        failure=TargetChangedError,
    ),
    Mistake(SettlesBehindNoFence, STEPS.test_a_driver_that_was_fenced_settles_nothing),
    *(
        Mistake(mistake, OTHERS.test_the_rows_of_others_are_known_by_their_names, {"whose": whose})
        for mistake, whose in (
            (NamesItself, "sink"),
            (NamesOtherJobsOnly, "sink"),
            (NamesOtherSinksOnly, "job"),
            (TellsTheFirstCheckpoint, "sink"),
            (TellsOneLineage, "job"),
        )
    ),
    Mistake(TellsTheHighestText, OTHERS.test_checkpoints_of_others_are_compared_as_numbers),
    Mistake(ForgetsWhatIsFolded, OTHERS.test_rows_are_known_after_their_proofs_are_folded),
    Mistake(KnowsTheMarksOnly, OTHERS.test_rows_are_known_after_their_proofs_are_folded),
    Mistake(NamesWhoHasPrepared, OTHERS.test_what_is_only_pre_committed_is_not_known),
    Mistake(ShowsWhatWaits, PARTITIONS.test_partitions_wait_unseen_until_each_is_completed),
    Mistake(CompletesAll, PARTITIONS.test_partitions_wait_unseen_until_each_is_completed),
    Mistake(CompletesByPrefix, PARTITIONS.test_only_what_is_named_is_completed),
    Mistake(
        CompletesWhatItKnowsOnly,
        PARTITIONS.test_only_what_is_named_is_completed,
        failure=KeyError,
    ),
    Mistake(
        CompletesWhatItKnowsOnly,
        PARTITIONS.test_a_repair_completes_what_another_driver_left,
        failure=KeyError,
    ),
    Mistake(ShowsRowsTwice, PARTITIONS.test_a_repair_completes_what_another_driver_left),
    Mistake(ForgetsWhatWaits, PARTITIONS.test_a_repair_completes_what_another_driver_left),
    Mistake(NamesWhatIsPrepared, PARTITIONS.test_what_is_only_pre_committed_does_not_wait),
]


def harness_of(sink: Any, folder: Path) -> SinkHarness:
    """A target of the sink."""
    if sink is OneElsewhere:
        return OneElsewhere(folder)
    if not issubclass(sink, OpenMemorySink):
        return SqliteHarness(folder, sink)
    if issubclass(sink, KeepsRowsWaiting):
        return WaitingHarness(sink)
    return MemoryHarness(sink) if issubclass(sink, OthersOfProofs) else TimedMemoryHarness(sink)


OWN = (KILLS, REWIND_KILLS, STEP_KILLS, STEPS, UNFINISHED, OTHERS, PARTITIONS)
"""Suites that `SUITE` does not inherit, each under the classes in which its tests are."""


def play(mistake: Mistake, folder: Path) -> None:
    """The test as pytest would call it."""
    place = mistake.test.__qualname__.partition(".")[0]
    [*own] = [one for one in OWN if place in [base.__name__ for base in one.__mro__]]
    suite: Any = type("One", (own[0],), {"lines_at_most": mistake.lines})() if own else SUITE()
    harness = harness_of(mistake.sink, folder)
    given: dict[str, Any] = {"harness": harness, "waiting": harness, "tmp_path": folder}
    given |= mistake.arguments
    suite.use(harness)
    wanted = inspect.signature(mistake.test).parameters
    if {"sink", "arrow"} & {*wanted}:
        given["sink"] = given["arrow"] = suite.opened()
        given["sink"].fence(FIRST)
    if "committed" in wanted:
        given["committed"] = suite.with_rows_that_wait(harness)
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


class TestASinkThatRehearses(BeforeOpenContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, Rehearses)


class TestASinkWhoseLooksAreBesideGarbage(BeforeOpenContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, LooksBesideGarbage)


class TestASinkWhoseLooksAreBesideSpark(BeforeOpenContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, spark: SparkSession) -> SqliteHarness:
        ensure_callback_server_started(spark.sparkContext._gateway)
        return SqliteHarness(tmp_path, LooksBesideSpark)

    def test_what_the_sink_leaves_open_itself_is_found(self, harness: SqliteHarness) -> None:
        leaves = SqliteHarness(harness.folder, LeavesASocketBesideSpark)
        with pytest.raises(AssertionError, match=r"stays open: socket:\[\d+\]$"):
            self.test_an_early_look_leaves_nothing_behind(leaves)


class TestASinkThatFinishesAPieceInASecondStep(TellsUnfinishedContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, StagesInTwoSteps)


class TestASinkThatTellsWhoElseHasRows(OTHERS):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(OthersOfProofs)


class TestASinkThatKeepsRowsWaiting(PARTITIONS):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()

    @pytest.fixture
    def waiting(self) -> WaitingHarness:
        return WaitingHarness(KeepsRowsWaiting)


class TestASinkThatTakesFewerColumns(RowContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, TakesFewerColumns)


class OnTwoSteps:
    lines_at_most = 8

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path, RewindsInTwoSteps)


@pytest.mark.proof
class TestASinkThatRewindsInTwoStepsIsKilled(OnTwoSteps, RewindStepsKillContract):
    pass


class TestASinkThatRewindsInTwoSteps(OnTwoSteps, RewindContract, RewindStepsContract):
    killed_by = TestASinkThatRewindsInTwoStepsIsKilled


class WithoutASuite(ArrowSinkContract, NamesPiecesContract):
    """Of a sink that can rewind."""


class WithASuiteTooMany(Suite, TellsUnfinishedContract):
    """Of a sink that tells no unfinished pieces."""


def test_each_optional_power_is_known_and_has_a_suite() -> None:
    optional = {
        power
        for power in vars(contract_of_sinks).values()
        if Protocol in getattr(power, "__bases__", ())
        and "Optional power of an open sink" in (power.__doc__ or "")
    }
    suites = [getattr(suites_of_sinks, name) for name in suites_of_sinks.__all__]
    assert optional == {*POWERS}
    assert optional == {vars(suite)["power"] for suite in suites if "power" in vars(suite)}


def test_each_method_of_a_declared_sink_is_called_by_a_suite() -> None:
    named = [name for name in suites_of_sinks.__all__ if name.endswith("Contract")]
    suites = {one for name in named for one in getattr(suites_of_sinks, name).__mro__}
    text = "".join(inspect.getsource(one) for one in suites - {object})
    names = [name for name in vars(contract_of_sinks.Sink) if not name.startswith("_")]
    assert len(names) == 5
    assert [name for name in names if f".{name}" not in text] == []


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


class KilledByNothing(Suite):
    killed_by = ""


class KilledByAnything(Suite):
    killed_by = SinkKillContract


class KilledByNobodyKnowsWhy(Suite):
    killed_by = "No suite:"


class RefusedAlone(RewindRefusedContract):
    """Nothing shows that it rewinds with any options."""


class RefusedOnceMore(RewindRefusedContract):
    rewinds_in = RefusedAlone


class InStepsThatNobodySettles(RewindRefusedContract, UnbegunRewindContract):
    rewinds_in = Suite


class SettledBeforeItBeginsOnly(RewindContract, UnbegunRewindContract):
    """A rewind that is done is never given up."""


class WithRefusal(RewindRefusedContract, UnbegunRewindContract):
    """As it should be: options with which it rewinds are in another suite."""

    rewinds_in = f"{__name__}:TestASinkThatRewindsInTwoSteps"


@pytest.mark.parametrize(
    ("suite", "test", "what"),
    [
        (KilledByNothing, "test_a_rewind_is_killed_in_a_suite_of_its_own", "in `killed_by`"),
        (KilledByAnything, "test_a_rewind_is_killed_in_a_suite_of_its_own", "kills no rewind"),
        (KilledByNobodyKnowsWhy, "test_a_rewind_is_killed_in_a_suite_of_its_own", "say why"),
        (RefusedAlone, "test_with_other_options_it_rewinds", "in `rewinds_in`"),
        (RefusedOnceMore, "test_with_other_options_it_rewinds", "RefusedAlone is no Rewind"),
        (
            InStepsThatNobodySettles,
            "test_with_other_options_it_rewinds",
            "Suite gives no rewind up",
        ),
        (
            SettledBeforeItBeginsOnly,
            "test_a_sink_that_rewinds_is_settled_after_a_rewind_too",
            "inherit RewindStepsContract",
        ),
    ],
)
def test_a_rewind_that_is_tested_in_part_only_is_found(
    suite: type[ContractBase], test: str, what: str
) -> None:
    with pytest.raises(AssertionError, match=what):
        getattr(suite(), test)()
    for whole in (Suite, WithRefusal, TestASinkThatRewindsInTwoSteps):
        if hasattr(whole, test):
            getattr(whole(), test)()

"""docs/operations.md lists every state in which a job does not start, and each of them is
led out of by a test.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from integration.repair import test_ways_by_hand, test_ways_on
from twophase import errors
from twophase.coordinator.recovery import plan
from twophase.errors import TwoPhaseError

ROOT = Path(__file__).parents[1]
_BY_HAND = "integration/repair/test_ways_by_hand.py"
_ERROR = re.compile(r"`(\w+Error)`")

# The rows that neither table of states walks through: the test that provokes the state, does what
# the row says, and counts rows.
ELSEWHERE = {
    "a sink has another name": "tests/coordinator/recovery/test_sink_names.py::"
    "test_a_sink_gets_another_name_if_that_is_allowed",
    "the job has another name": "tests/beginnings/test_renamed.py::"
    "test_a_job_with_another_name_is_told_so_and_goes_on_under_its_own",
    (
        "the job or a sink has another name, and the folder does not know the rows of the old one"
    ): "tests/beginnings/test_renamed.py::"
    "test_a_renamed_job_whose_log_was_moved_away_does_not_write_its_rows_again",
    (
        "the target is gone for good, or another one has its place, while a checkpoint waited for "
        "its commit there"
    ): "tests/beginnings/test_another_target.py::"
    "test_what_waits_in_a_target_that_is_gone_is_given_up_by_who_begins_in_another",
    "restore.path names what a rewind has taken back": "tests/operations/savepoint/"
    "test_sink_ahead.py::test_a_savepoint_of_what_a_rewind_has_taken_back_is_refused",
    "a rewind is wished, and a sink cannot take its rows back": "tests/operations/savepoint/"
    "test_sink_ahead.py::test_a_sink_that_cannot_take_it_back_refuses_before_anything_is_written",
    "a rewind has begun in another folder, and has died": "tests/beginnings/test_rewind.py::"
    "test_the_original_folder_names_a_way_on_beside_a_rewind_elsewhere",
    "another driver runs": f"{_BY_HAND}::test_a_driver_that_was_overtaken_is_left_stopped",
    "Spark's folder is gone, or an old copy": "tests/spark/job/test_job.py::"
    "test_a_restore_from_the_newest_checkpoint_leads_out_where_spark_s_folder_is_gone_or_old",
    (
        "the log of a query of the plugin form is gone, old or damaged"
    ): "tests/spark/plugin/test_plugin_adopted_query.py::"
    "test_where_spark_s_folder_is_whole_the_query_goes_on_where_the_newest_checkpoint_ended",
    (
        "an adoption in the plugin form has died before Spark's folder was written"
    ): "tests/spark/plugin/test_plugin_adopted_query.py::"
    "test_a_repair_that_died_is_run_again_and_until_then_nothing_is_written",
    "a file of Spark's log is empty": "tests/spark/job/test_job.py::"
    "test_a_file_of_spark_s_log_that_a_power_cut_emptied_is_deleted_and_the_job_goes_on",
    (
        "a decided piece of the savepoint that is restored was rolled back"
    ): "tests/cli/test_savepoint.py::"
    "test_the_loss_that_a_restore_finds_is_accepted_by_the_command_that_it_names",
    "a rewind was begun and not finished": "tests/operations/savepoint/test_sink_ahead.py::"
    "test_a_start_in_the_middle_of_a_rewind_is_refused_without_it",
    "a rewind was begun, and a sink refuses it": "tests/beginnings/test_rewind.py::"
    "test_a_begun_rewind_that_a_sink_refuses_is_given_up",
    "a rewind was begun, and a source has lost what it needs": "tests/beginnings/test_rewind.py::"
    "test_a_begun_rewind_whose_records_are_gone_by_now_takes_back_no_more",
    "a rewind was begun, and files are gone that it needs": "tests/beginnings/"
    "test_lost_records.py::test_files_that_are_gone",
    "a file that is to be read is gone": "integration/beginnings/test_file_sources.py::"
    "test_a_file_that_is_gone_when_its_micro_batch_runs_again_is_not_left_out",
    "files are gone that a rewind would take back": "tests/beginnings/"
    "test_lost_records.py::test_files_that_are_gone",
    "a source has lost what a rewind would take back": "integration/beginnings/test_kafka.py::"
    "test_no_row_is_taken_back_that_kafka_cannot_give_again",
    (
        "a source cannot prove that a rewind can read again what is taken back"
    ): "tests/operations/savepoint/test_sink_ahead.py::"
    "test_no_row_is_taken_back_that_its_source_cannot_prove_to_have",
    (
        "two sources of the program have changed places"
    ): "integration/beginnings/test_file_sources.py::"
    "test_two_file_sources_that_change_places_do_not_read_each_other_s_files",
    (
        "a target was swapped for an older copy of it, on another server"
    ): "tests/operations/repair/test_no_dead_end.py::test_a_failover_to_an_older_copy_of_a_target",
    (
        "the target was restored from a backup taken before a rewind, and has rows again that the "
        "rewind had taken back"
    ): "tests/operations/repair/test_returned_rows.py::"
    "test_they_are_taken_back_once_more_and_what_the_target_lacks_is_a_loss",
    (
        "the folder was restored from a backup, and a target or a piece is lost too"
    ): "tests/operations/repair/test_no_dead_end.py::"
    "test_a_folder_that_is_behind_beside_a_target_that_has_lost_its_rows",
    "the checkpoint restored from is gone": "tests/spark/job/test_restored_lineage.py::"
    "test_it_does_not_start_without_that_state",
    "a file of a function's state is gone or damaged": "tests/spark/plan/test_function_states.py::"
    "test_a_job_whose_state_is_gone_begins_without_it_where_it_may",
    "a plan keeps state of something else": "tests/spark/job/test_upgraded_job_spark.py::"
    "test_it_goes_on_where_that_is_allowed",
    "a function with state left the job": "tests/spark/plan/test_function_states.py::"
    "test_its_state_is_dropped_where_it_may_be_and_that_is_said",
    (
        "a newer version of twophase has written to the folder"
    ): "tests/coordinator/test_newer_format.py::"
    "test_a_start_over_a_newer_log_writes_nothing_and_the_newer_version_goes_on",
    "a record does not fit the schema": "integration/kafka/test_bad_input.py::"
    "test_a_malformed_record_stops_every_start_until_it_may_be_left_out",
    "a topic was deleted, or created again": "tests/sources/kafka/test_released_topics.py::"
    "test_it_stops_the_job_until_it_is_released",
    "a topic has left the options": "integration/kafka/test_released_topics.py::"
    "test_a_topic_that_has_left_goes_on_where_it_was_left_when_it_is_subscribed_again",
    "records are gone before they were read": "integration/kafka/test_expired_records.py::"
    "test_records_that_are_gone_before_they_were_read_stop_the_job_and_another_goes_on",
    "records that a state needs are gone": "integration/kafka/test_expired_records.py::"
    "test_where_only_spark_s_commit_log_tells_the_state_another_job_goes_on",
    "records that a state needs are others": "integration/kafka/test_expired_records.py::"
    "test_where_only_spark_s_commit_log_tells_the_state_it_is_not_built_of_other_records_by_itself",
    "a checkpoint fails in the same way again and again": "integration/mysql/test_refusals.py::"
    "test_a_row_that_a_trigger_writes_for_all_tasks_ends_the_job_in_the_end",
    "a Delta table was altered while pieces wait": "integration/delta/test_changes.py::"
    "test_a_change_that_the_files_do_not_fit_stops_the_job_and_undone_lets_it_go_on",
    (
        "this JVM has a Delta table's lock for a commit that was given up"
    ): "integration/delta/test_neighbours.py::"
    "test_a_job_whose_jvm_has_the_lock_for_ever_stops_and_goes_on_in_another_jvm",
}
REFUSALS = {
    plan.RewindUnfinished: "a rewind was begun and not finished",
    plan.HalfRewound: "a rewind has begun in another folder, and has died",
    plan.FolderBehind: "the folder was restored from a backup",
    plan.RowsReturned: "the target was restored from a backup taken before a rewind, and has rows "
    "again that the rewind had taken back",
    plan.DriverMissed: "the folder was restored from a backup, and lacks nothing but a driver that "
    "a target has seen",
    plan.RestoreBehind: "restore.path names an older checkpoint",
    plan.RestoredMeanwhile: "another driver runs",
    plan.LeftBehind: "restore.path names what a rewind has taken back",
    plan.NamedOtherwise: "the job or a sink has another name, and the folder does not know the "
    "rows of the old one",
    plan.CannotTakeBack: "a rewind is wished, and a sink cannot take its rows back",
    plan.TargetReplaced: "the table was dropped and created again",
    plan.TargetLacks: "the target was restored from a backup",
    plan.SinkRenamed: "a sink has another name",
    plan.RenamedLacks: "a sink has another name",
}
# Their states end by themselves, by a restart or when a server is back; the others need somebody.
# A `SavepointError` is of a savepoint, not of the job; after an unfinished one the next start
# commits the checkpoint.
NO_STATE = {
    "ServiceError",
    "SparkLostError",
    "InDoubtError",
    "ReplayLostError",
    "SavepointError",
    "SavepointUnfinishedError",
    "TargetUnreachableError",
}


def rows() -> dict[str, tuple[set[str], str]]:
    """For each state of the page its errors, and what it takes."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page[page.index("## Where a job does not start") :].partition("\n### ")[0]
    cells = [
        [cell.strip() for cell in line.split(" | ")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    return {
        state.removeprefix("| "): ({*_ERROR.findall(error)}, takes)
        for state, error, takes, _ in cells[2:]
    }


def walks() -> dict[str, str]:
    """For each state that the two tables of states walk through, the name of its error."""
    repaired = {name: state.error.__name__ for name, state in test_ways_on.STATES.items()}
    return repaired | {name: way.error.__name__ for name, way in test_ways_by_hand.WAYS.items()}


def test_every_row_of_the_page_is_walked_through_and_every_walk_has_a_row() -> None:
    assert not {*walks()} & {*ELSEWHERE}
    assert {*rows()} == {*walks(), *ELSEWHERE}


@pytest.mark.parametrize("state", walks())
def test_the_row_of_a_walk_names_its_error_and_what_leads_out(state: str) -> None:
    named, takes = rows()[state]
    assert named == {walks()[state]}
    assert ("twophase repair" in takes) is (state in test_ways_on.STATES)


@pytest.mark.parametrize("state", ELSEWHERE)
def test_the_test_of_a_row_exists_and_expects_its_errors(state: str) -> None:
    file, _, name = ELSEWHERE[state].partition("::")
    tree = ast.parse((ROOT / file).read_text())
    [found] = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    decorators = " ".join(ast.unparse(one) for one in found.decorator_list)
    tables = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    text = ast.unparse(found) + " ".join(
        one for one in tables if one.partition(":")[0].partition(" ")[0] in decorators
    )
    expected = {error for error in rows()[state][0] if not re.search(rf"\b{error}\b", text)}
    assert not expected, "errors of the row that the test does not expect"
    assert "skip" not in decorators


def test_every_refusal_of_a_start_has_a_row() -> None:
    assert {*REFUSALS} == {*get_args(plan.Refusal)}
    assert {*REFUSALS.values()} <= {*rows()}


def test_every_error_that_stops_a_job_has_a_row_or_needs_nobody() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, TwoPhaseError)
    }
    stop = {name for name in kinds if not getattr(errors, name).restartable} - {
        "TwoPhaseError",
        "SourceLossError",
    }
    named = {error for found, _ in rows().values() for error in found}
    assert stop - named - NO_STATE == set()
    assert not named & NO_STATE

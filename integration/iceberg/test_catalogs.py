"""Fence, proof, abort and rewind in each kind of catalog that is behind a server, at the moments
that only a second driver, another application or a lost reply can make.

The tests are those of the SQLite catalog, in `tests/sinks/iceberg`: one table of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from integration.catalogs import KINDS
from tests.sinks.iceberg import others, test_branches, test_new_columns, test_rewind
from tests.sinks.iceberg import test_other_writers as writers
from tests.sinks.iceberg import test_protocol as protocol
from tests.sinks.iceberg.given import (
    Given,
    Test,
    in_flight,
    of_branch,
    of_new_columns,
    of_rewind,
    with_sink,
)
from twophase.ids import Attempt

pytestmark = [pytest.mark.part("files"), pytest.mark.server, pytest.mark.thin(6)]


def kept(what: others.Change, audit: list[int], main: list[int]) -> Test:
    test = test_branches.test_what_leaves_the_branch_whole_is_committed_after
    return lambda given: test(given.where, 2, what, audit, main, True, given.patch)


def gone(what: others.Change, named: str) -> Test:
    b = test_branches
    test = b.test_a_branch_that_is_gone_or_replaced_stops_by_name_and_set_back_it_commits
    return lambda given: test(given.where, 2, True, what, named, True, given.patch)


def rewound(what: others.Change) -> Test:
    meant = next(early for does, early, _ in r.MEANWHILE if does is what)
    test = r.test_a_change_while_a_rewind_is_in_flight_is_exact_or_refused
    return of_rewind(
        lambda harness, patch: test(harness, patch, what, meant, r.IN_FLIGHT), patched=True
    )


def rolled_back(given: Given) -> None:
    test = writers.test_a_rollback_of_what_was_committed_is_refused_until_it_is_undone
    test(given.harness(), 2, False)


def fenced_while_others_append(given: Given, version: int = 2) -> None:
    """In version 1 snapshots have no numbers, by which a server may refuse one too."""
    harness = given.harness(format_version=version)
    sink = harness.opened()
    others.before_the_swap(given.patch, lambda: others.change(harness, others.append))
    sink.fence(Attempt(2, 0))
    assert others.ids_of(harness) == [100]
    assert sink.history().generation == 2


r = test_rewind
CASES: dict[str, Test] = {
    # a commit
    "OK is not believed": in_flight(protocol.test_an_answer_of_ok_is_not_believed),
    "two drivers commit": in_flight(
        writers.test_the_first_commit_of_two_drivers_wins_and_the_other_finds_its_proof
    ),
    "a commit arrives twice": in_flight(writers.test_a_commit_that_arrives_twice_keeps_its_files),
    "tasks are one snapshot": with_sink(writers.test_a_commit_of_several_tasks_is_one_snapshot),
    "others change it without end": in_flight(
        writers.test_a_table_that_others_change_without_end_is_retried_later
    ),
    "others replace the spec": in_flight(
        writers.test_a_table_that_no_longer_takes_the_files_stops_the_job_by_name,
        others.replace_the_spec,
        "partition spec 0 was removed",
        True,
    ),
    "others roll back": rolled_back,
    "a folded piece": with_sink(protocol.test_a_folded_piece_is_committed_still),
    # a fence, an abort
    "an older driver is fenced": in_flight(
        protocol.test_a_fence_that_died_before_its_folder_closes_older_drivers
    ),
    "others append in a fence": fenced_while_others_append,
    "a fence in flight": in_flight(
        writers.test_a_fence_beside_a_commit_in_flight_makes_it_look_again
    ),
    "a fence between two looks": in_flight(
        protocol.test_a_fence_that_is_raised_between_two_looks_loses_no_piece
    ),
    "an abort in flight": in_flight(
        writers.test_an_abort_beside_a_commit_in_flight_wins_or_is_refused
    ),
    "a commit that lands in an abort": in_flight(
        protocol.test_a_commit_that_lands_while_an_abort_has_hidden_its_piece_stops_the_abort
    ),
    "a dropped table": with_sink(
        writers.test_a_table_that_was_dropped_and_created_again_gets_nothing
    ),
    # a rewind
    "a rewind": of_rewind(
        lambda harness: r.test_one_snapshot_removes_the_files_and_lowers_the_mark(harness, False)
    ),
    "others append in a rewind": rewound(others.append),
    "others compact in a rewind": rewound(others.compact),
    "others roll back in a rewind": rewound(others.roll_back),
    "others delete in a rewind": of_rewind(
        r.test_a_delete_while_a_rewind_is_in_flight_refuses_it, patched=True
    ),
    "a newer driver in a rewind": of_rewind(
        r.test_a_newer_driver_while_a_rewind_is_in_flight_stops_it, patched=True
    ),
    "a commit in a rewind": of_rewind(
        r.test_a_commit_while_a_rewind_is_in_flight_is_taken_back_too, patched=True
    ),
    "a rewind arrives twice": of_rewind(
        r.test_a_rewind_that_arrives_twice_keeps_its_files, patched=True
    ),
    "a refused rewind": of_rewind(r.test_a_refused_rewind_leaves_no_manifest, patched=True),
    # a branch
    "others write to main": kept(others.append, [0, 1, 50], [50, 100]),
    "others drop the branch": gone(test_branches.drop, "branch audit is gone"),
    "a branch is rewound": of_branch(
        test_branches.test_a_rewind_takes_rows_out_of_the_branch_and_main_keeps_them_until_it_is_published,
        True,
    ),
    # columns
    "columns are added": of_new_columns(
        test_new_columns.test_a_start_adds_the_columns_as_optional_ones_and_older_rows_have_nulls
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_it_holds_in_each_catalog(
    place: Place, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CASES[case](Given(tmp_path, monkeypatch, place))


@pytest.mark.parametrize("kind", KINDS)
def test_another_application_sees_the_rows_and_the_next_driver_the_proof(place: Place) -> None:
    harness = IcebergHarness(place, others.FIELDS)
    sink = harness.opened()
    others.commit(harness, sink, others.rows(0, 1))
    assert others.ids_of(harness) == [0, 1]
    assert harness.opened().history() == sink.history()

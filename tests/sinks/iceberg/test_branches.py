"""A branch that is written, audited and published: what happens to it, to main and to both is
exact, or refused by name.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from tests.sinks.iceberg import others
from tests.sinks.iceberg.others import (
    FIELDS,
    Change,
    append,
    arrives_twice,
    before_the_swap,
    change,
    expire,
    ids_of,
    lake,
    overwrite,
    rival_of,
    rows,
    theirs,
)
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext
from twophase.errors import ConfigError, RestoreRefusedError, TargetChangedError
from twophase.ids import Attempt
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.contract import RewindContract
from twophase.testing.contract.sink import (
    AbortContract,
    FenceContract,
    PhasesContract,
    PredecessorContract,
    ProofContract,
)
from twophase.testing.harness import JOB, LINEAGE

AUDIT = "audit"


@pytest.fixture
def harness(tmp_path: Path) -> IcebergHarness:
    """A table with one row of others in main."""
    return audited(tmp_path / "lake")


def audited(folder: Path | Place, **options: object) -> IcebergHarness:
    plain = IcebergHarness(folder, FIELDS, **options)
    plain.opened().close()
    change(plain, lambda table: table.append(theirs(50)))
    return IcebergHarness(folder, FIELDS, branch=AUDIT, **options)


def commit(harness: IcebergHarness, sink: OpenIcebergSink, number: int) -> None:
    before = Predecessor(LINEAGE, number - 1) if number else None
    others.commit(harness, sink, rows(number), number, before)


def ids_in(harness: IcebergHarness, branch: str) -> list[int]:
    return sorted(harness.rows_of(branch).column("id").to_pylist())


def head(harness: IcebergHarness, branch: str = AUDIT) -> int:
    return harness.table().metadata.refs[branch].snapshot_id


def publish(table: Table) -> None:
    """As `CALL system.fast_forward` does."""
    table.manage_snapshots().set_current_snapshot(ref_name=AUDIT).commit()


def drop(table: Table) -> None:
    table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name=AUDIT),))


def set_to(snapshot: int, **kept: int) -> Change:
    """Replace the branch, or create it."""

    def replaced(table: Table) -> None:
        update = SetSnapshotRefUpdate(ref_name=AUDIT, type="branch", snapshot_id=snapshot, **kept)
        table.catalog.commit_table(table, (), (update,))

    return replaced


class TestIcebergSinkOnABranch(
    PhasesContract,
    PredecessorContract,
    AbortContract,
    FenceContract,
    ProofContract,
    RewindContract,
):
    killed_by = "tests.sinks.iceberg.test_contract:TestARewindOfAnIcebergTableIsKilled"
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(tmp_path / "lake", branch=AUDIT)


def test_readers_of_main_see_rows_once_they_are_published(
    harness: IcebergHarness, duck: duckdb.DuckDBPyConnection
) -> None:
    sink = harness.opened()
    commit(harness, sink, 0)
    commit(harness, sink, 1)
    assert ids_in(harness, AUDIT) == [0, 1, 50]
    assert ids_in(harness, "main") == [50]
    change(harness, publish)
    assert ids_in(harness, "main") == [0, 1, 50]
    commit(harness, sink, 2)
    assert ids_in(harness, "main") == [0, 1, 50]
    change(harness, publish)
    query = f"SELECT id FROM iceberg_scan('{harness.table().metadata_location}') ORDER BY id"
    assert duck.execute(query).fetchall() == [(0,), (1,), (2,), (50,)]


# -- how it begins ---------------------------------------------------------------------------------


def test_a_missing_branch_is_created_at_the_newest_snapshot_of_main(
    harness: IcebergHarness,
) -> None:
    harness.new_sink().check_connection()
    assert AUDIT not in harness.table().metadata.refs
    harness.opened()
    assert head(harness) == head(harness, "main")


def test_a_branch_of_an_empty_table_begins_empty_and_main_has_no_snapshot(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, branch=AUDIT)
    sink = harness.opened()
    assert harness.table().metadata.current_snapshot() is None
    assert ids_in(harness, AUDIT) == []
    commit(harness, sink, 0)
    assert harness.table().metadata.current_snapshot() is None
    change(harness, publish)
    assert ids_in(harness, "main") == [0]
    rival_of(harness)
    commit(harness, sink, 1)
    assert ids_in(harness, AUDIT) == [0, 1]


def test_a_branch_of_an_empty_table_whose_creation_arrives_twice_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    IcebergHarness(tmp_path / "lake", FIELDS).opened().close()
    harness = IcebergHarness(tmp_path / "lake", FIELDS, branch=AUDIT)
    arrives_twice(monkeypatch)
    sink = harness.opened()
    commit(harness, sink, 0)
    assert ids_in(harness, AUDIT) == [0]


def test_without_create_a_missing_branch_is_refused_and_created_by_hand_it_is_written(
    harness: IcebergHarness,
) -> None:
    before = harness.contents()
    for start in (
        lambda: harness.opened(create=False),
        harness.new_sink(create=False).check_connection,
    ):
        with pytest.raises(ConfigError, match="has no branch 'audit'") as caught:
            start()
        assert "CREATE BRANCH `audit`" in caught.value.remedy
        assert "`create=true`" in caught.value.remedy
    assert harness.contents() == before
    harness.opened(create=False, branch="main").close()
    change(harness, set_to(head(harness, "main")))
    commit(harness, harness.opened(create=False), 0)
    assert ids_in(harness, AUDIT) == [0, 50]


def test_a_look_leaves_a_missing_branch_missing(harness: IcebergHarness) -> None:
    before = harness.contents()
    sink = harness.new_sink().open(SinkContext(JOB, "lake", None, parallelism=1))
    assert sink.history().replaced == ""
    sink.close()
    assert harness.contents() == before


def test_a_tag_is_refused_by_name(harness: IcebergHarness) -> None:
    def tag(table: Table) -> None:
        found = table.current_snapshot()
        assert found is not None
        table.manage_snapshots().create_tag(found.snapshot_id, AUDIT).commit()

    change(harness, tag)
    for start in (harness.opened, harness.new_sink().check_connection):
        with pytest.raises(ConfigError, match="'audit' is a tag of the table") as caught:
            start()
        assert caught.value.remedy == "name a branch."
    harness.new_sink(branch="review").check_connection()
    commit(harness, harness.opened(branch="review"), 0)
    assert ids_in(harness, "review") == [0, 50]


def first_rows(table: Table) -> None:
    table.append(theirs(100))


def create_it(table: Table) -> None:
    found = table.current_snapshot()
    assert found is not None
    set_to(found.snapshot_id)(table)


@pytest.mark.parametrize(
    ("is_empty", "what", "has"),
    [
        (True, first_rows, [100]),
        (False, first_rows, [50, 100]),
        (False, create_it, [50]),
    ],
)
def test_a_branch_that_is_created_while_others_write_has_all_of_main(
    tmp_path: Path, is_empty: bool, what: Change, has: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_empty:
        IcebergHarness(tmp_path / "lake", FIELDS).opened().close()
        harness = IcebergHarness(tmp_path / "lake", FIELDS, branch=AUDIT)
    else:
        harness = audited(tmp_path / "lake")
    before_the_swap(monkeypatch, lambda: change(harness, what))
    harness.opened()
    assert ids_in(harness, AUDIT) == has


def test_a_branch_that_is_created_while_others_write_is_left_as_it_is(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has created it and written to it."""

    def create_and_write(table: Table) -> None:
        create_it(table)
        table.refresh()
        append_to_it(table)

    before_the_swap(monkeypatch, lambda: change(harness, create_and_write))
    harness.opened()
    assert ids_in(harness, AUDIT) == [50, 100]


# -- what others do --------------------------------------------------------------------------------


def append_to_it(table: Table) -> None:
    table.append(theirs(100), branch=AUDIT)


def take_up_main(table: Table) -> None:
    """The branch is published, main goes on, and the branch follows: a fast-forward of it."""
    publish(table)
    table.refresh()
    table.append(theirs(100))
    found = table.refresh().current_snapshot()
    assert found is not None
    set_to(found.snapshot_id)(table)


def overwrite_it(table: Table) -> None:
    table.overwrite(theirs(100), branch=AUDIT)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("what", "left", "main"),
    [
        (append, [0, 1, 50], [50, 100]),
        (overwrite, [0, 1, 50], [100]),
        (expire, [0, 1, 50], [50, 100]),
        (publish, [0, 1, 50], [0, 50]),
        (append_to_it, [0, 1, 50, 100], [50]),
        (overwrite_it, [1, 100], [50]),
        (take_up_main, [0, 1, 50, 100], [0, 50, 100]),
    ],
)
@pytest.mark.parametrize("in_flight", [False, True], ids=["before the commit", "during the commit"])
def test_what_leaves_the_branch_whole_is_committed_after(
    tmp_path: Path | Place,
    version: int,
    what: Change,
    left: list[int],
    main: list[int],
    in_flight: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = audited(lake(tmp_path), format_version=version)
    sink = harness.opened()
    commit(harness, sink, 0)
    piece = harness.write(sink, rows(1), 1)
    if in_flight:
        before_the_swap(monkeypatch, lambda: change(harness, what))
    else:
        change(harness, what)
    request = CommitRequest(piece, predecessor=Predecessor(LINEAGE, 0))
    assert sink.commit([request]) == [Committed()]
    assert ids_in(harness, AUDIT) == left
    assert ids_in(harness, "main") == main
    assert sink.history().replaced == ""


def test_a_commit_to_main_is_made_after_one_to_a_branch_of_somebody_else(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.opened().close()
    on_main = IcebergHarness(harness.place, FIELDS)
    sink = on_main.opened()
    piece = on_main.write(sink, rows(0))
    before_the_swap(monkeypatch, lambda: change(harness, append_to_it))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_in(harness, "main") == [0, 50]
    assert ids_in(harness, AUDIT) == [50, 100]


def replace_by_main(table: Table) -> None:
    found = table.current_snapshot()
    assert found is not None
    set_to(found.snapshot_id)(table)


def make_it_a_tag(table: Table) -> None:
    at = table.metadata.refs[AUDIT].snapshot_id
    drop(table)
    table.refresh()
    table.manage_snapshots().create_tag(at, AUDIT).commit()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("has_committed", [False, True], ids=["first", "later"])
@pytest.mark.parametrize(
    ("what", "named"),
    [
        (drop, "branch audit is gone"),
        (make_it_a_tag, "branch audit is gone"),
        (replace_by_main, "branch audit no longer leads to snapshot"),
    ],
)
@pytest.mark.parametrize("in_flight", [False, True], ids=["before the commit", "during the commit"])
def test_a_branch_that_is_gone_or_replaced_stops_by_name_and_set_back_it_commits(
    tmp_path: Path | Place,
    version: int,
    has_committed: bool,
    what: Change,
    named: str,
    in_flight: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = audited(lake(tmp_path), format_version=version)
    sink = harness.opened()
    if has_committed:
        commit(harness, sink, 0)
    piece, at = harness.write(sink, rows(1), 1), head(harness)
    if in_flight:
        before_the_swap(monkeypatch, lambda: change(harness, what))
    else:
        change(harness, what)
    if what is replace_by_main and not has_committed:
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
        return
    with pytest.raises(TargetChangedError, match=named) as caught:
        sink.commit([CommitRequest(piece)])
    assert "CREATE OR REPLACE BRANCH `audit`" in caught.value.remedy
    assert ids_in(harness, "main") == [50]
    assert bool(sink.history().replaced) == has_committed
    if what is make_it_a_tag:
        change(harness, drop)
    change(harness, set_to(at))
    assert sink.history().replaced == ""
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_in(harness, AUDIT) == ([0, 1, 50] if has_committed else [1, 50])


@pytest.mark.parametrize("is_published", [True, False])
def test_a_dropped_branch_is_created_again_where_main_has_what_was_committed(
    harness: IcebergHarness, is_published: bool
) -> None:
    """As after an audit that ends with the removal of the branch."""
    sink = harness.opened()
    commit(harness, sink, 0)
    at = head(harness)
    if is_published:
        change(harness, publish)
    change(harness, drop)
    if is_published:
        commit(harness, harness.opened(), 1)
        assert ids_in(harness, AUDIT) == [0, 1, 50]
        return
    with pytest.raises(TargetChangedError, match="which lacks snapshot") as caught:
        harness.opened()
    assert "CREATE OR REPLACE BRANCH `audit`" in caught.value.remedy
    assert AUDIT not in harness.table().metadata.refs
    change(harness, set_to(at))
    commit(harness, harness.opened(), 1)
    assert ids_in(harness, AUDIT) == [0, 1, 50]


def test_a_job_that_writes_to_another_branch_has_to_have_its_rows_there(
    harness: IcebergHarness,
) -> None:
    on_main = IcebergHarness(harness.place, FIELDS)
    harness.opened().close()
    commit(on_main, on_main.opened(), 0)
    assert "the job wrote to another branch" in harness.opened().history().replaced
    change(harness, drop)
    sink = harness.opened()
    assert sink.history().replaced == ""
    piece = harness.write(sink, rows(0), 0)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)


def test_two_branches_of_a_table_are_two_targets(harness: IcebergHarness) -> None:
    on_main = IcebergHarness(harness.place, FIELDS)
    plain, audit = on_main.opened(), harness.opened()
    assert plain.target() != audit.target()
    piece = on_main.write(plain, rows(0))
    with pytest.raises(TargetChangedError, match="was written to"):
        audit.commit([CommitRequest(piece)])


@pytest.mark.parametrize("branch", ["main", AUDIT])
def test_a_commit_keeps_how_long_a_branch_is_kept(tmp_path: Path, branch: str) -> None:
    harness = audited(tmp_path / "lake")
    harness = IcebergHarness(tmp_path / "lake", FIELDS, branch=branch)
    sink = harness.opened()
    kept = {"min_snapshots_to_keep": 7, "max_snapshot_age_ms": 1_000_000_000}

    def keep(table: Table) -> None:
        update = SetSnapshotRefUpdate(
            ref_name=branch, type="branch", snapshot_id=head(harness, branch), **kept
        )
        table.catalog.commit_table(table, (), (update,))

    change(harness, keep)
    commit(harness, sink, 0)
    ref = harness.table().metadata.refs[branch]
    assert {name: getattr(ref, name) for name in kept} == kept


# -- a rewind --------------------------------------------------------------------------------------


def rewound(harness: IcebergHarness) -> OpenIcebergSink:
    sink = harness.opened(Attempt(2, 0))
    sink.check_rewind({LINEAGE: 0})
    sink.rewind({LINEAGE: 0}, Attempt(2, 0))
    return sink


def filled(harness: IcebergHarness) -> None:
    sink = harness.opened()
    for number in range(3):
        commit(harness, sink, number)


@pytest.mark.parametrize("is_published", [False, True])
def test_a_rewind_takes_rows_out_of_the_branch_and_main_keeps_them_until_it_is_published(
    harness: IcebergHarness, is_published: bool
) -> None:
    filled(harness)
    if is_published:
        change(harness, publish)
    before = ids_in(harness, "main")
    assert rewound(harness).history().committed == {LINEAGE: 0}
    assert ids_in(harness, AUDIT) == [0, 50]
    assert ids_in(harness, "main") == before
    change(harness, publish)
    assert ids_in(harness, "main") == [0, 50]


@pytest.mark.parametrize(
    ("what", "left"), [(append, [0, 50]), (overwrite, [0, 50]), (append_to_it, [0, 50, 100])]
)
def test_what_others_do_to_main_while_a_branch_is_rewound_is_not_in_the_way(
    harness: IcebergHarness, what: Change, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(harness)
    sink = harness.opened(Attempt(2, 0))
    before_the_swap(monkeypatch, lambda: change(harness, what))
    sink.rewind({LINEAGE: 0}, Attempt(2, 0))
    assert ids_of(harness) == left


def test_a_rewind_of_a_branch_that_is_gone_is_refused_until_it_is_set_back(
    harness: IcebergHarness,
) -> None:
    filled(harness)
    sink, at = harness.opened(Attempt(2, 0)), head(harness)
    change(harness, drop)
    with pytest.raises(
        RestoreRefusedError, match="audit is gone, and it led to snapshot"
    ) as caught:
        sink.rewind({LINEAGE: 0}, Attempt(2, 0))
    assert caught.value.remedy == (
        "set branch audit back to a snapshot that has it (ALTER TABLE ... CREATE OR REPLACE BRANCH "
        "`audit` AS OF VERSION ...), then start the job again."
    )
    change(harness, set_to(at))
    sink.rewind({LINEAGE: 0}, Attempt(2, 0))
    assert ids_of(harness) == [0, 50]

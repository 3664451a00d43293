"""What other applications do to the table between the phases: exact, or refused by name. At which
moment they do it is in `test_moments`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import (
    SetLocationUpdate,
)
from sqlalchemy.exc import OperationalError

from harness.iceberg_harness import IcebergHarness
from tests.sinks.iceberg.others import (
    Change,
    append,
    arrives_twice,
    before_the_swap,
    change,
    commit,
    expire,
    ids_of,
    move,
    partition_it,
    rename_a_column,
    replace_the_spec,
    rival_of,
    roll_back,
    rows,
    snapshots_of,
    upgrade,
)
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import StopJobError, TargetChangedError, TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.layout import _holds
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.harness import LINEAGE


def test_a_renamed_column_keeps_its_values(harness: IcebergHarness, sink: OpenIcebergSink) -> None:
    piece = harness.write(sink, rows(3))
    change(harness, rename_a_column)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert harness.table().scan().to_arrow().column("label").to_pylist() == ["row 3"]


def test_rows_of_an_older_partition_spec_are_read_by_a_filter_of_the_new_one(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    old = harness.write(sink, rows(0, 1), 0)
    change(harness, partition_it)
    new = harness.write(sink, rows(2, 3), 1)
    outcomes = sink.commit([CommitRequest(old), CommitRequest(new)])
    assert outcomes == [Committed(), Committed()]
    for number in range(4):
        found = harness.table().scan(row_filter=f"id = {number}").to_arrow()
        assert found.column("id").to_pylist() == [number]


@pytest.mark.parametrize("in_flight", [False, True], ids=["", "in flight"])
@pytest.mark.parametrize(
    ("what", "named"),
    [(upgrade, "its format version is 3 now"), (replace_the_spec, "partition spec 0 was removed")],
)
def test_a_table_that_no_longer_takes_the_files_stops_the_job_by_name(
    harness: IcebergHarness,
    sink: OpenIcebergSink,
    what: Change,
    named: str,
    in_flight: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece = harness.write(sink, rows(0))
    now_or_in_flight(harness, monkeypatch, what, in_flight)
    with pytest.raises(StopJobError, match=f"{named}. 1 rows wait in the staging area"):
        sink.commit([CommitRequest(piece)])
    assert sink.history().committed == {}
    assert len(harness.staged()) == 1


def now_or_in_flight(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch, what: Change, in_flight: bool
) -> None:
    """Let others do something, or let them do it between the manifests of a commit and its swap."""
    if in_flight:
        before_the_swap(monkeypatch, lambda: change(harness, what))
    else:
        change(harness, what)


@pytest.mark.parametrize(
    ("was", "now", "fits"),
    [
        ("decimal(9, 2)", "decimal(12, 2)", True),
        ("decimal(12, 2)", "decimal(9, 2)", False),
        ("decimal(9, 2)", "decimal(12, 3)", False),
        ("int", "long", True),
        ("long", "int", False),
        ("float required", "double", True),
        ("double", "double required", False),
    ],
)
def test_files_fit_a_column_that_holds_all_their_values(was: str, now: str, fits: bool) -> None:
    assert _holds(now, was) is fits


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("expires", [False, True], ids=["", "and others go on"])
def test_a_rollback_of_what_was_committed_is_refused_until_it_is_undone(
    harness: IcebergHarness, version: int, expires: bool
) -> None:
    sink = harness.opened(format_version=version)
    for number in range(3):
        sink.commit([CommitRequest(harness.write(sink, rows(number), number))])
    newest = harness.table().metadata.current_snapshot_id
    piece = harness.write(sink, rows(3), 3)
    change(harness, roll_back)
    if expires:
        change(harness, append)
    assert "somebody has rolled it back" in sink.history().replaced
    with pytest.raises(TargetChangedError, match="no longer leads to snapshot") as caught:
        sink.commit([CommitRequest(piece, predecessor=Predecessor(LINEAGE, 2))])
    assert "set_current_snapshot" in caught.value.remedy
    assert ids_of(harness) == ([0, 100] if expires else [0])
    change(harness, lambda table: roll_back(table, newest))
    assert sink.history().replaced == ""
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0, 1, 2, 3]


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_whose_snapshot_has_expired_is_still_known(
    harness: IcebergHarness, version: int
) -> None:
    sink = harness.opened(format_version=version)
    piece = harness.write(sink, rows(0), 0)
    sink.commit([CommitRequest(piece)])
    change(harness, expire)
    change(harness, expire)
    assert sink.history().replaced == ""
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 100, 100]


def test_a_table_that_was_dropped_and_created_again_gets_nothing(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    piece = harness.write(sink, rows(0))
    with closing(harness.catalog()) as catalog:
        catalog.drop_table(harness.place.table)
    with pytest.raises(TargetChangedError, match="is gone"):
        sink.commit([CommitRequest(piece)])
    again = harness.opened()
    with pytest.raises(TargetChangedError, match="was dropped and created again"):
        sink.commit([CommitRequest(piece)])
    with pytest.raises(TargetChangedError):
        again.commit([CommitRequest(piece)])
    assert ids_of(harness) == []


def test_a_catalog_restored_from_a_backup_gets_nothing_more(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    database = harness.folder / "catalog.db"
    sink.commit([CommitRequest(harness.write(sink, rows(0), 0))])
    backup = database.read_bytes()
    sink.commit([CommitRequest(harness.write(sink, rows(1), 1))])
    piece = harness.write(sink, rows(2), 2)
    sink.close()
    database.write_bytes(backup)
    with pytest.raises(TargetChangedError, match="checkpoint 1 of lineage"):
        sink.commit([CommitRequest(piece, predecessor=Predecessor(LINEAGE, 1))])
    assert ids_of(harness) == [0]


def test_the_first_commit_of_two_drivers_wins_and_the_other_finds_its_proof(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0, 1))
    rival = rival_of(harness)
    before_the_swap(monkeypatch, lambda: check(rival.commit([CommitRequest(piece)])))
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]


def check(outcomes: object) -> None:
    assert outcomes == [Committed()]


def test_an_abort_beside_a_commit_in_flight_wins_or_is_refused(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0, 1))
    rival = rival_of(harness)
    before_the_swap(monkeypatch, lambda: rival.abort([piece]))
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, Lost), outcome
    assert ids_of(harness) == []
    assert harness.data_files() == []
    assert harness.staged() == []


def test_a_fence_beside_a_commit_in_flight_makes_it_look_again(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0, 1))
    rival = rival_of(harness)
    before_the_swap(monkeypatch, lambda: rival.fence(Attempt(2, 0)))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0, 1]
    assert sink.history().generation == 2


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_reply_is_lost_is_neither_repeated_nor_forgotten(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    piece = harness.write(sink, rows(0, 1))
    swap = SqlCatalog.commit_table

    def lost(self: SqlCatalog, *given: object) -> None:
        if lands:
            swap(self, *given)  # type: ignore[arg-type]
        monkeypatch.undo()
        raise OperationalError("COMMIT", {}, ConnectionResetError("gone"))

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    [first] = sink.commit([CommitRequest(piece)])
    assert isinstance(first, AlreadyCommitted if lands else RetryLater)
    [second] = sink.commit([CommitRequest(piece)])
    assert isinstance(second, AlreadyCommitted if lands else Committed)
    assert ids_of(harness) == [0, 1]


def test_a_commit_that_arrives_twice_keeps_its_files(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is refused, and the files of the first are what the table has."""
    piece = harness.write(sink, rows(0, 1))
    arrives_twice(monkeypatch)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]
    commit(harness, sink, rows(2), 1)
    assert ids_of(harness) == [0, 1, 2]


def test_a_refused_commit_keeps_its_files_if_a_look_does_not_tell_whether_it_was_made(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0, 1))
    moved: list[Path] = []

    def unmount() -> None:
        found = Path(urlsplit(harness.table().metadata_location).path)
        moved[:] = found, found.rename(found.with_suffix(".away"))

    arrives_twice(monkeypatch, unmount)
    with pytest.raises(TargetUnreachableError, match="cannot be read"):
        sink.commit([CommitRequest(piece)])
    metadata, away = moved
    away.rename(metadata)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]


def test_a_table_that_others_change_without_end_is_retried_later(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0))

    def refuse(*_: object) -> None:
        raise CommitFailedException("Table has been updated by another process")

    monkeypatch.setattr(Catalog, "_swap", refuse)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, RetryLater)
    assert "updated by another process" in outcome.reason
    monkeypatch.undo()
    metadata = {path.name for path in (harness.folder / "warehouse").rglob("*.avro")}
    assert metadata == set(), "manifests of refused commits are deleted"
    assert sink.commit([CommitRequest(piece)]) == [Committed()]


def test_a_commit_of_several_tasks_is_one_snapshot(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    made = [
        harness.write(sink, rows(number), 4, subtask=Subtask(number, number)) for number in range(3)
    ]
    assert sink.commit([CommitRequest(piece) for piece in made]) == [Committed()] * 3
    [snapshot] = snapshots_of(harness.table())
    assert snapshot.summary is not None
    assert snapshot.summary["added-records"] == "3"
    assert snapshot.summary["twophase.checkpoint"] == "4"


def test_a_rollback_whose_snapshots_have_expired_is_not_noticed(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    """Main leads to a snapshot that is younger than the commit, and its ancestors are gone."""
    for number in range(2):
        sink.commit([CommitRequest(harness.write(sink, rows(number), number))])
    change(harness, roll_back)
    change(harness, expire)
    assert sink.history().replaced == ""
    assert sink.history().committed == {LINEAGE: 1}
    assert ids_of(harness) == [0, 100]


@pytest.mark.parametrize("in_flight", [False, True], ids=["", "in flight"])
def test_a_table_whose_location_was_set_elsewhere_gets_nothing_until_it_is_set_back(
    harness: IcebergHarness,
    sink: OpenIcebergSink,
    in_flight: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece = harness.write(sink, rows(0))
    location = harness.table().location()
    now_or_in_flight(harness, monkeypatch, move, in_flight)
    with pytest.raises(TargetChangedError, match="where pieces wait"):
        sink.commit([CommitRequest(piece)])
    assert ids_of(harness) == []
    back = SetLocationUpdate(location=location)
    change(harness, lambda table: table.catalog.commit_table(table, (), (back,)))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0]


def test_a_commit_that_dies_of_a_full_disk_leaves_no_manifest(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyiceberg.table.update.snapshot.write_manifest_list", full)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, RetryLater)
    assert "No space left" in outcome.reason
    monkeypatch.undo()
    assert [*(harness.folder / "warehouse").rglob("*.avro")] == []
    assert sink.commit([CommitRequest(piece)]) == [Committed()]

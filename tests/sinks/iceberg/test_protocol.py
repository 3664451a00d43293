"""The rules of fence, proof and abort at the moments that only a second driver, a lost reply or
somebody with a shell can make.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from harness.damaged_pieces import DAMAGES, change_manifest
from harness.iceberg_harness import IcebergHarness
from harness.rights import umask
from harness.savepoint_world import killed
from tests.sinks.iceberg.others import (
    append,
    before_the_swap,
    change,
    ids_of,
    rival_of,
    roll_back,
    rows,
    theirs,
)
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import FencedError, StopJobError, TargetChangedError, TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.common.lake import committer, orphans
from twophase.sinks.common.staging import disk
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import file_name
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.sinks.iceberg.proofs import fence_key, proof_key
from twophase.testing.harness import LINEAGE, OTHER_LINEAGE, transaction_id


def committed(sink: OpenIcebergSink, *pieces: Committable) -> list[CommitOutcome]:
    return list(sink.commit([CommitRequest(piece) for piece in pieces]))


# -- a commit --------------------------------------------------------------------------------------


def test_an_answer_of_ok_is_not_believed(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0))
    commit, calls = Catalog.commit, list[object]()

    def second(self: Catalog, *given: object) -> None:
        calls.append(given)
        if len(calls) > 1:
            commit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalog, "commit", second)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [0]


def test_a_fence_that_is_raised_between_two_looks_loses_no_piece(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renames the folder in which the commit looks."""
    piece = harness.write(sink, rows(0))
    rival, load = rival_of(harness), DriverTable.load

    def late(self: DriverTable) -> object:
        monkeypatch.setattr(DriverTable, "load", load)
        rival.fence(Attempt(2, 0))
        return load(self)

    monkeypatch.setattr(DriverTable, "load", late)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [0]


def test_a_commit_of_another_driver_that_was_rolled_back_meanwhile_is_not_made_again(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main is what it was, and only the proof tells."""
    committed(sink, harness.write(sink, rows(0), 0))
    piece, rival = harness.write(sink, rows(1), 1), rival_of(harness)

    def commit_and_roll_back() -> None:
        committed(rival, piece)
        change(harness, roll_back)

    before_the_swap(monkeypatch, commit_and_roll_back)
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0]
    assert "somebody has rolled it back" in sink.history().replaced


def test_the_proof_of_a_predecessor_that_vanishes_in_flight_is_missed(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(sink, harness.write(sink, rows(0), 0))
    piece = of_another_lineage(sink)

    def forget() -> None:
        with closing(harness.catalog()) as catalog:
            table = catalog.load_table(harness.place.table)
            with table.transaction() as transaction:
                transaction.remove_properties(proof_key(sink.table.owner, LINEAGE))

    before_the_swap(monkeypatch, forget)
    with pytest.raises(TargetChangedError, match="checkpoint 0 of lineage"):
        sink.commit([CommitRequest(piece, predecessor=Predecessor(LINEAGE, 0))])
    assert ids_of(harness) == [0]


def of_another_lineage(sink: OpenIcebergSink) -> Committable:
    """A piece of another lineage, which continues the first."""
    writer = sink.writers()(transaction_id(1, lineage=OTHER_LINEAGE), Subtask(0, 1))
    writer.write(theirs(1).to_batches()[0])
    piece = writer.pre_commit()
    assert piece is not None
    return piece


@pytest.mark.parametrize("is_fence", [False, True], ids=["the proof", "the fence"])
def test_a_property_that_somebody_has_changed_stops_the_job_and_given_back_it_commits(
    harness: IcebergHarness, sink: OpenIcebergSink, is_fence: bool
) -> None:
    committed(sink, harness.write(sink, rows(0), 0))
    piece = harness.write(sink, rows(1), 1)
    owner = sink.table.owner
    key = fence_key(owner) if is_fence else proof_key(owner, LINEAGE)

    def give(value: str) -> None:
        with closing(harness.catalog()) as catalog:
            with catalog.load_table(harness.place.table).transaction() as transaction:
                transaction.set_properties({key: value})

    older = harness.table().metadata_location.removeprefix("file://")
    give(harness.table().properties[key][:-1])
    needs: Callable[[], object] = (
        (lambda: harness.opened(Attempt(2, 0))) if is_fence else (lambda: committed(sink, piece))
    )
    for call in (needs, lambda: rival_of(harness).history()):
        with pytest.raises(StopJobError, match=f"'{key}' of the table is damaged") as caught:
            call()
        assert "from an older metadata file of the table" in caught.value.remedy
    give(json.loads(Path(older).read_text())["properties"][key])
    assert committed(harness.opened(Attempt(2, 0)), piece) == [Committed()]
    assert ids_of(harness) == [0, 1]


def newer(was: bytes) -> bytes:
    return was.replace(b'"format-version":2', b'"format-version":4')


@pytest.mark.parametrize(
    ("damaged", "error", "named"),
    [
        (newer, StopJobError, "Input tag '4'"),
        (lambda was: was.replace(b'"float"', b'"variant"'), StopJobError, "Unsupported field type"),
        (lambda was: was[:100], StopJobError, "Invalid JSON"),
        (lambda was: b"\xff" + was, StopJobError, "can't decode byte 0xff"),
        (None, TargetUnreachableError, "No such file"),
    ],
    ids=["newer", "a newer type", "torn", "no text", "gone"],
)
def test_metadata_that_cannot_be_read_is_named_until_it_can(
    harness: IcebergHarness,
    sink: OpenIcebergSink,
    damaged: Callable[[bytes], bytes] | None,
    error: type[Exception],
    named: str,
) -> None:
    piece = harness.write(sink, rows(0))
    metadata = Path(harness.table().metadata_location.removeprefix("file://"))
    was = metadata.read_bytes()
    if damaged is None:
        metadata.unlink()
    else:
        metadata.write_bytes(damaged(was))
    for call in (lambda: committed(sink, piece), sink.history, harness.opened):
        with pytest.raises(error, match=f"The metadata of the table .*{named}") as caught:
            call()
        assert "restore" in getattr(caught.value, "remedy", "")
    metadata.write_bytes(was)
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ids_of(harness) == [0]


def test_what_pyiceberg_cannot_write_is_tried_again(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no error of its own for that."""
    piece = harness.write(sink, rows(0))

    def refused(*_: object) -> None:
        raise NotImplementedError("Writing V4 is not yet supported")

    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "V4 is not yet supported" in outcome.reason
    monkeypatch.undo()
    assert committed(sink, piece) == [Committed()]


def test_a_table_that_is_made_again_under_a_first_fence_is_not_fenced(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has one of our properties: its id alone tells."""
    sink = rival_of(harness)

    def make_again() -> None:
        with closing(harness.catalog()) as catalog:
            schema = catalog.load_table(harness.place.table).schema()
            catalog.drop_table(harness.place.table)
            catalog.create_table(harness.place.table, schema)

    before_the_swap(monkeypatch, make_again)
    with pytest.raises(TargetChangedError, match="was dropped and created again"):
        sink.fence(Attempt(1, 0))
    assert not [key for key in harness.table().properties if key.startswith("twophase")]


def staged_piece(harness: IcebergHarness) -> Path:
    [folder] = harness.staged()
    return folder


@pytest.mark.parametrize(("does", "named"), DAMAGES)
def test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed(
    harness: IcebergHarness, sink: OpenIcebergSink, does: Callable[[Path], None], named: str
) -> None:
    piece = harness.write(sink, rows(0, 1))
    folder = staged_piece(harness)
    left = sorted(entry.name for entry in folder.iterdir())
    does(folder)
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, Lost)
    assert named in outcome.evidence
    assert ids_of(harness) == []
    assert {entry.name for entry in folder.iterdir()} <= {*left}, "what is left of it stays"
    assert folder.exists()


def test_a_manifest_that_was_damaged_before_its_digest_was_taken_is_lost_by_name(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    piece = harness.write(sink, rows(0))
    folder = staged_piece(harness)
    change_manifest(folder)
    digest = hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
    [outcome] = committed(sink, replace(piece, handle={"manifest_sha256": digest}))
    assert isinstance(outcome, Lost)
    assert str(folder / FILE) in outcome.evidence


@pytest.mark.parametrize("is_moved", [False, True], ids=["before the move", "after the move"])
def test_a_file_of_another_in_its_place_is_not_overwritten_and_moved_away_it_commits(
    harness: IcebergHarness, sink: OpenIcebergSink, is_moved: bool
) -> None:
    piece = harness.write(sink, rows(0))
    final = final_path(harness, piece, is_moved)
    data = final.read_bytes() if is_moved else b"theirs"
    theirs = bytes([data[0] ^ 1]) + data[1:]
    final.write_bytes(theirs)
    with pytest.raises(StopJobError, match="is not the file that was pre-committed") as caught:
        committed(rival_of(harness), piece)
    assert "move that file away" in caught.value.remedy
    assert final.read_bytes() == theirs
    assert ids_of(harness) == []
    final.unlink()
    if is_moved:
        final.write_bytes(data)
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ids_of(harness) == [0]


def final_path(harness: IcebergHarness, piece: Committable, is_moved: bool) -> Path:
    """Where the only file of a piece goes; `is_moved`: a commit has died when it was there."""

    def dies() -> None:
        committed(rival_of(harness), piece)

    [folder] = harness.folder.rglob("data")
    if not is_moved:
        return folder / file_name(piece.transaction, piece.subtask, 0, ".parquet")
    assert killed("D01", dies)
    [name] = harness.data_files()
    return folder / name


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("is_moved", [False, True], ids=["", "after a commit that died"])
def test_what_a_driver_has_moved_or_read_is_not_read_again_after_a_lost_race(
    harness: IcebergHarness,
    sink: OpenIcebergSink,
    is_moved: bool,
    has_links: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes long, and others write meanwhile."""
    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    piece = harness.write(sink, rows(0))
    final = final_path(harness, piece, is_moved)
    read: list[Path] = []

    def noted(path: Path) -> str:
        read.append(path)
        return disk.digest(path)

    monkeypatch.setattr(committer, "digest", noted)
    before_the_swap(monkeypatch, lambda: change(harness, append), times=3)
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ids_of(harness) == [0, 100, 100, 100]
    assert read == ([final] if is_moved else [])


def test_a_file_that_somebody_puts_in_place_of_a_moved_one_in_flight_is_not_committed(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(0))
    final = final_path(harness, piece, False)

    def replace_it() -> None:
        change(harness, append)
        theirs = final.with_name("theirs")
        theirs.write_bytes(bytes(final.stat().st_size))
        theirs.replace(final)

    before_the_swap(monkeypatch, replace_it)
    with pytest.raises(StopJobError, match="is not the file that was pre-committed"):
        committed(sink, piece)
    assert ids_of(harness) == [100]


@pytest.mark.parametrize("is_moved", [False, True], ids=["", "after a commit that died"])
def test_a_file_is_as_young_as_its_commit(
    harness: IcebergHarness, sink: OpenIcebergSink, is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's clean-up deletes files older than three days that no snapshot names."""
    piece = harness.write(sink, rows(1))
    final = final_path(harness, piece, is_moved)
    waiting = final if is_moved else staged_piece(harness) / "0"
    os.utime(waiting, (0, 0))
    ages = list[float]()
    before_the_swap(monkeypatch, lambda: ages.append(final.stat().st_mtime))
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ages > [0]


def test_what_a_clean_up_takes_after_a_commit_that_died_is_committed_all_the_same(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    piece = harness.write(sink, rows(0, 1))
    final_path(harness, piece, True).unlink()
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ids_of(harness) == [0, 1]
    assert harness.staged() == []


def test_a_clean_up_that_has_listed_a_file_before_the_next_start_commits_it_is_not_noticed(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    piece = harness.write(sink, rows(0))
    listed = final_path(harness, piece, True)
    assert committed(rival_of(harness), piece) == [Committed()]
    listed.unlink()
    [outcome] = committed(rival_of(harness), piece)
    assert isinstance(outcome, AlreadyCommitted)
    with pytest.raises(FileNotFoundError):
        ids_of(harness)


def test_what_was_changed_before_a_clean_up_took_it_is_lost_by_name(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    """It is one file of two names."""
    piece = harness.write(sink, rows(0))
    final = final_path(harness, piece, True)
    data = final.read_bytes()
    final.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    final.unlink()
    [outcome] = committed(rival_of(harness), piece)
    assert isinstance(outcome, Lost)
    assert "which was the same file, was changed" in outcome.evidence
    assert ids_of(harness) == []


def no_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_without_hard_links_a_file_is_moved_alone(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", no_links)
    piece = harness.write(sink, rows(0))
    assert final_path(harness, piece, True).exists()
    assert {entry.name for entry in staged_piece(harness).iterdir()} == {FILE}
    assert committed(rival_of(harness), piece) == [Committed()]
    assert ids_of(harness) == [0]


# -- a fence ---------------------------------------------------------------------------------------


def test_a_fence_that_died_before_its_folder_closes_older_drivers(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError("the driver has died")

    with monkeypatch.context() as patch:
        patch.setattr(StagingArea, "raise_fence", dies)
        with pytest.raises(OSError, match="has died"):
            rival_of(harness).fence(Attempt(2, 0))
    assert sink.history().generation == 2
    with pytest.raises(FencedError):
        sink.fence(Attempt(1, 5))


def test_a_lower_fence_of_the_same_driver_leaves_the_property(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    sink.fence(Attempt(1, 3))
    sink.fence(Attempt(1, 1))
    record = sink.table.proofs(sink.table.load()).fence()
    assert record is not None
    assert record.attempt == Attempt(1, 3)


def test_a_catalog_restored_from_a_backup_does_not_lower_the_fence(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    database = harness.folder / "catalog.db"
    backup = database.read_bytes()
    sink.fence(Attempt(5, 0))
    sink.close()
    database.write_bytes(backup)
    assert rival_of(harness).history().generation == 5


# -- an abort, and what a dead commit leaves -------------------------------------------------------


def test_a_commit_that_lands_while_an_abort_has_hidden_its_piece_stops_the_abort(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece, rival = harness.write(sink, rows(0, 1)), rival_of(harness)
    commit = Catalog.commit

    def late(self: Catalog, *given: object) -> None:
        monkeypatch.setattr(Catalog, "commit", commit)
        monkeypatch.setattr(orphans, "failpoint", lambda _: commit(self, *given))  # type: ignore[arg-type]
        with pytest.raises(StopJobError, match="was decided in another folder"):
            rival.abort([piece])

    monkeypatch.setattr(Catalog, "commit", late)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [0, 1]
    assert harness.staged() == []


@pytest.fixture
def left_over(harness: IcebergHarness) -> Committable:
    """A committed piece whose folder a dead commit has left, and which only the mark stands for."""
    piece = harness.write(harness.opened(), rows(0, 1), 0)
    assert killed("D02", lambda: committed(rival_of(harness), piece))
    sink = harness.opened(Attempt(1, 0))
    sink._subsumed = {LINEAGE: 0}  # folded, and died before it was cleaned up
    assert committed(sink, harness.write(sink, rows(2), 1)) == [Committed()]
    assert len(harness.staged()) == 1
    return piece


def test_what_only_the_mark_stands_for_is_committed(
    harness: IcebergHarness, left_over: Committable
) -> None:
    [outcome] = committed(rival_of(harness), left_over)
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1, 2]
    assert harness.staged() == []


def test_what_only_the_mark_stands_for_is_not_in_doubt_and_never_aborted(
    harness: IcebergHarness, left_over: Committable
) -> None:
    sink = rival_of(harness)
    assert sink.in_doubt() == []
    with pytest.raises(StopJobError):
        sink.abort([left_over])
    assert ids_of(harness) == [0, 1, 2]
    sink.subsume(LINEAGE, 0)
    assert harness.staged() == []


def test_a_folded_piece_is_committed_still(harness: IcebergHarness, sink: OpenIcebergSink) -> None:
    """Its proof is the mark, once the next commit has folded it."""
    piece = harness.write(sink, rows(0), 0)
    committed(sink, piece)
    sink.subsume(LINEAGE, 0)
    committed(sink, harness.write(sink, rows(1), 1))
    assert sink.committed_pieces(LINEAGE, 0) == []
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]


def test_a_fold_in_a_later_commit_proves_no_more_than_was_committed(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    committed(sink, harness.write(sink, rows(0), 0))
    late = harness.write(sink, rows(2), 2)
    sink.subsume(LINEAGE, 3)
    committed(sink, harness.write(sink, rows(5), 5))
    assert committed(sink, late) == [Committed()]
    gone = harness.write(sink, rows(3), 3)
    sink.abort([gone])
    assert isinstance(committed(sink, gone)[0], Lost)


def test_a_late_piece_of_a_folded_checkpoint_is_not_called_committed(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    """Two are decided; the commit of one fails, and somebody commits and folds what is after it."""
    first = harness.write(sink, rows(0), 0, subtask=Subtask(0, 1))
    late = harness.write(sink, rows(1), 0, subtask=Subtask(1, 2))
    committed(sink, first)
    sink._subsumed = {LINEAGE: 0}
    committed(sink, harness.write(sink, rows(2), 1))
    assert committed(sink, late) == [Committed()]
    assert ids_of(harness) == [0, 1, 2]


def test_a_superseded_piece_is_in_doubt_whatever_mark_its_checkpoint_has(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    winner = harness.write(sink, rows(0), 0, subtask=Subtask(0, 1))
    loser = harness.write(sink, rows(0), 0, subtask=Subtask(0, 2))
    committed(sink, winner)
    sink.subsume(LINEAGE, 0)
    committed(sink, harness.write(sink, rows(1), 1))
    assert [piece.subtask for piece in sink.in_doubt()] == [loser.subtask]
    sink.abort([loser])
    assert harness.staged() == []
    assert ids_of(harness) == [0, 1]


def test_an_abort_deletes_the_files_of_its_piece_alone(
    harness: IcebergHarness, sink: OpenIcebergSink
) -> None:
    """Files that a commit has moved before it died; others lie beside them."""
    made = [harness.write(sink, rows(n), 0, subtask=Subtask(n, n)) for n in range(2)]
    assert killed("D01", lambda: committed(rival_of(harness), *made))
    [data] = harness.folder.rglob("data")
    (data / "theirs.parquet").touch()
    before = harness.data_files()
    sink.abort(made[:1])
    assert len(before) - len(harness.data_files()) == 1
    assert "theirs.parquet" in harness.data_files()
    assert committed(sink, made[1]) == [Committed()]
    assert ids_of(harness) == [1]


# -- the disk --------------------------------------------------------------------------------------


def test_all_that_a_commit_names_is_synced_before_the_catalog_names_it(
    harness: IcebergHarness, sink: OpenIcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set[str]()
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.add(str(Path(f"/proc/self/fd/{file}").readlink()))

    monkeypatch.setattr(os, "fsync", noted)
    committed(sink, harness.write(sink, rows(0)))
    table = harness.table()
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    [manifest] = snapshot.manifests(table.io)
    named = [table.metadata_location, snapshot.manifest_list, manifest.manifest_path]
    files = [Path(name.removeprefix("file://")) for name in named]
    folders = {*(file.parent for file in files), *harness.folder.rglob("data")}
    assert {*map(str, [*files, *folders])} <= synced


def test_what_is_staged_is_the_job_s_alone_whatever_the_umask(harness: IcebergHarness) -> None:
    harness.opened().close()  # its table is not writable by everyone
    [hidden] = harness.folder.rglob("_twophase")
    shutil.rmtree(hidden)
    with umask(0):
        sink = harness.opened()
        harness.write(sink, rows(0))
    folders = [hidden, *(path for path in hidden.rglob("*") if path.is_dir())]
    assert len(folders) > 5
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}

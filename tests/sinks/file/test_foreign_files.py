"""Hazards H22 to H25: what else may be in the folder, or happen to it, between and
during the phases.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from harness.selection import representatives
from harness.staged_sink_harness import FileHarness, Interrupt, commit, final, orders
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import (
    FencedError,
    NewerFormatError,
    PreflightError,
    StopJobError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.internals.failpoints import FailpointError
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging import committer, disk, staging_area
from twophase.sinks.common.staging.disk import rename_new
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.testing.harness import JOB, SINK, transaction_id

pytestmark = pytest.mark.part("files")


def test_h22_a_rename_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("ours")
    (tmp_path / "theirs").write_text("theirs")
    with pytest.raises(FileExistsError):
        rename_new(tmp_path / "ours", tmp_path / "theirs")
    assert ((tmp_path / "ours").read_text(), (tmp_path / "theirs").read_text()) == (
        "ours",
        "theirs",
    )


def test_h22_a_file_system_without_such_a_rename_is_refused(
    table: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1 << 4 is a flag that no file system has: the kernel answers as one does that does not
    # know RENAME_NOREPLACE.
    with monkeypatch.context() as without:
        without.setattr(disk, "_NOREPLACE", 1 << 4)
        with pytest.raises(PreflightError, match="never replaces"):
            table.opened()
    table.elsewhere().opened()  # on the local file system of the tests


def test_a_hidden_folder_without_what_proves_commits_is_refused_and_left_until_it_is_restored(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, tmp_path: Path
) -> None:
    assert commit(sink, piece) == [Committed()]
    waiting = table.write(sink, orders(range(3, 6)), 1)
    hidden = table.path / "_twophase~contract~facts"
    shutil.copytree(hidden, tmp_path / "backup")
    [done] = hidden.glob("fence-*/done")
    shutil.rmtree(done)
    for _ in range(2):
        with pytest.raises(PreflightError, match="done was missing"):
            table.opened()
        assert len(table.staged()) == 1
    shutil.rmtree(hidden)
    shutil.copytree(tmp_path / "backup", hidden)
    again = table.opened()
    assert commit(again, piece, waiting) == [AlreadyCommitted("done marker"), Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == list(range(6))


@pytest.mark.parametrize("name", ["marks", "staged"])
def test_a_folder_that_is_gone_from_the_hidden_one_is_looked_for_again_until_it_is_restored(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, tmp_path: Path, name: str
) -> None:
    hidden = table.path / "_twophase~contract~facts"
    shutil.copytree(hidden, tmp_path / "backup")
    [gone] = hidden.glob(f"fence-*/{name}")
    shutil.rmtree(gone)
    for look in (lambda: (sink.history(), sink.in_doubt()), lambda: table.opened().history()):
        with pytest.raises(TargetUnreachableError, match=f"{name} is gone") as caught:
            look()
        assert "it looks again. If that is still gone, restore" in caught.value.remedy
    shutil.rmtree(hidden)
    shutil.copytree(tmp_path / "backup", hidden)
    again = table.opened()
    assert again.history().committed == {}
    assert commit(again, piece) == [Committed()]


def started_as_the_errors_say(table: FileHarness) -> OpenStagedSink:
    """Start, and create each folder that is named, until none is."""
    for _ in range(4):
        try:
            sink = table.opened()
            sink.history(), sink.in_doubt()
        except (PreflightError, TargetUnreachableError) as error:
            told = error
        else:
            return sink
        assert "or create this one again (mkdir), if only a job that deletes" in told.remedy
        Path(re.split(" is gone| was missing", str(told))[0]).mkdir()
    raise AssertionError("it always names another one")


def test_empty_folders_that_a_clean_up_removes_stop_the_job_until_they_are_created(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    clean_up = ["find", str(table.path), "-mindepth", "1", "-type", "d", "-empty", "-delete"]
    subprocess.run(clean_up, check=True)  # between the phases: done and marks
    [outcome] = commit(sink, piece)
    assert isinstance(outcome, RetryLater)
    again = started_as_the_errors_say(table)
    assert commit(again, piece) == [Committed()]
    subprocess.run(clean_up, check=True)  # after a commit: staged and marks
    again = started_as_the_errors_say(table)
    assert commit(again, piece) == [AlreadyCommitted("done marker")]
    assert commit(again, table.write(again, orders(range(3, 6)), 1)) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == [*range(6)]


def test_a_look_below_a_fence_that_was_just_raised_is_repeated_by_the_next_start(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was paused between its look at the fence and the one below it."""
    before = sink.table.area.stage()
    table.opened(Attempt(2, 1))
    with monkeypatch.context() as paused:
        paused.setattr(StagingArea, "stage", lambda _: before)
        with pytest.raises(TargetUnreachableError, match="has just raised the fence"):
            sink.in_doubt()
    assert table.opened(Attempt(3, 1)).in_doubt() == [piece]


def test_drivers_that_keep_raising_the_fence_are_named_and_alone_one_raises_it(
    table: FileHarness, sink: OpenStagedSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = count(2)

    def overtaken(source: Path, target: Path) -> None:
        other = table.new_sink().open(SinkContext(JOB, SINK, table.fields, parallelism=2))
        with monkeypatch.context() as alone:
            alone.setattr(staging_area, "rename_new", rename_new)
            other.fence(Attempt(1, next(counters)))
        rename_new(source, target)

    with monkeypatch.context() as beside:
        beside.setattr(staging_area, "rename_new", overtaken)
        with pytest.raises(TargetUnreachableError, match="keep raising it") as caught:
            sink.fence(Attempt(2, 1))
        assert caught.value.remedy == "run only one driver."
    sink.fence(Attempt(2, 1))
    assert sink.history().generation == 2


@pytest.mark.parametrize(
    "point", representatives(["C12", "F03", "F04", "C14", "C15"], {"F03", "C14"})
)
def test_h23_a_commit_that_died_is_finished_by_the_next_driver(
    table: FileHarness, sink: OpenStagedSink, interrupt: Interrupt, point: str
) -> None:
    pieces = [table.write(sink, orders(range(3 * n, 3 * n + 3)), n) for n in range(2)]
    interrupt(point)
    with pytest.raises(FailpointError):
        commit(sink, *pieces)
    interrupt("")
    outcomes = commit(table.opened(), *pieces)
    expected = AlreadyCommitted("done marker") if point in ("C14", "C15") else Committed()
    assert outcomes == [expected, expected]
    assert sorted(row["id"] for row in table.rows_visible()) == list(range(6))
    assert table.staged() == []


@pytest.mark.parametrize("point", ["F03", "F04"])
def test_a_piece_with_files_in_the_table_is_never_aborted(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt, point: str
) -> None:
    interrupt(point)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    interrupt("")
    # of a job whose folder was restored from a backup: no decision of it names the piece
    again = table.opened()
    with pytest.raises(StopJobError, match="decided in another folder, and its commit has begun"):
        again.abort(again.in_doubt())
    assert commit(again, piece) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1, 2]


def test_h23_a_commit_that_died_between_two_markers_is_finished_for_the_other_piece(
    table: FileHarness, sink: OpenStagedSink, interrupt: Interrupt
) -> None:
    pieces = [table.write(sink, orders([n]), n) for n in range(2)]
    interrupt("C13")
    with pytest.raises(FailpointError):
        commit(sink, *pieces)
    interrupt("")
    assert commit(table.opened(), *pieces) == [AlreadyCommitted("done marker"), Committed()]
    assert len(table.rows_visible()) == 2


def test_h23_a_file_that_was_moved_and_is_gone_is_lost(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    interrupt("F04")
    with pytest.raises(FailpointError):
        commit(sink, piece)
    interrupt("")
    final(table, 1).unlink()
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert "/1 is gone" in outcome.evidence


def test_h23_a_staged_file_that_is_gone_or_cut_is_lost(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    (folder,) = table.staged()
    os.truncate(folder / "1", 10)
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert "has 10 bytes" in outcome.evidence
    (folder / "1").unlink()
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert "is gone" in outcome.evidence


@pytest.mark.parametrize("damage", ["flip", "cut", "swap"])
def test_h23_a_manifest_that_is_not_the_one_of_the_checkpoint_commits_nothing(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, damage: str
) -> None:
    path = table.staged()[0] / "manifest"
    data = path.read_bytes()
    other = dataclasses.replace(
        Manifest.decode(data, "here"), files=Manifest.decode(data, "here").files[:1]
    ).encode()
    path.write_bytes(
        {"flip": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "cut": data[:-1], "swap": other}[
            damage
        ]
    )
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert "SHA-256 differs" in outcome.evidence
    assert table.files() == []


def test_h23_every_cut_and_every_flipped_bit_of_a_manifest_is_seen(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    table.write(sink, orders([1]))
    data = (table.staged()[0] / "manifest").read_bytes()
    assert Manifest.decode(data, "here").encode() == data
    cut = [data[:length] for length in range(len(data))]
    flipped = [
        data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]
        for byte in range(len(data))
        for bit in range(8)
    ]
    for damaged in (*cut, *flipped):
        with pytest.raises((DamagedRecordError, NewerFormatError)):
            Manifest.decode(damaged, "here")


def test_h24_only_what_the_checkpoint_lists_is_moved(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    """Two attempts of one task pre-commit the same rows; the checkpoint lists one of them."""
    winner = table.write(sink, orders(range(3)))
    loser = sink.writers()(transaction_id(), Subtask(0, 99))
    loser.write(pa.RecordBatch.from_pylist(orders(range(3)), table.fields))
    lost = loser.pre_commit()
    assert lost is not None
    stray = table.staged()[0] / "7"
    stray.write_text("in no manifest")
    assert commit(sink, winner) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1, 2]
    sink.abort(sink.in_doubt())
    assert table.staged() == []


def test_h25_a_foreign_file_at_a_final_name_stops_and_is_not_replaced(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    final(table, 1).parent.mkdir()
    final(table, 1).write_text("theirs")
    with pytest.raises(StopJobError, match="is not the file that was pre-committed"):
        commit(sink, piece)
    assert final(table, 1).read_text() == "theirs"
    final(table, 1).rename(table.path.parent / "theirs")
    assert commit(table.opened(), piece) == [Committed()]
    assert len(table.rows_visible()) == 3


def test_h25_a_moved_file_that_was_changed_stops(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    interrupt("F04")
    with pytest.raises(FailpointError):
        commit(sink, piece)
    interrupt("")
    data = final(table, 1).read_bytes()
    final(table, 1).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StopJobError, match="is not the file that was pre-committed"):
        commit(sink, piece)


def test_h25_readers_see_nothing_of_what_is_staged(table: FileHarness, piece: Committable) -> None:
    assert piece.rows == 3
    assert {path.name for path in table.path.iterdir()} == {"_twophase~contract~facts"}
    assert (table.path / "_twophase~contract~facts").stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_a_partition_does_not_lead_out_of_the_table(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (table.path / "name=row 1").symlink_to(outside)
    with pytest.raises(StopJobError, match="is a link or a file"):
        commit(sink, piece)
    assert list(outside.iterdir()) == []
    (table.path / "name=row 1").unlink()
    (table.path / "name=row 1").mkdir()
    assert commit(table.opened(), piece) == [Committed()]


def test_a_late_commit_of_an_older_driver_is_never_called_lost(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still after it has looked up the fence; another driver commits,
    then raises the fence.
    """
    late = committer.Committer(sink.table, lambda *_: None)
    newer = table.opened(Attempt(1, 1))
    assert commit(newer, piece) == [Committed()]
    newer.fence(Attempt(2, 1))
    (outcome,) = late.commit([CommitRequest(piece)])
    assert isinstance(outcome, RetryLater)
    assert len(table.files()) == 3
    assert commit(sink, piece) == [AlreadyCommitted("done marker")]


def test_a_decided_piece_whose_folder_was_deleted_stops_the_job_by_name(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, tmp_path: Path
) -> None:
    shutil.copytree(table.path / "_twophase~contract~facts", tmp_path / "backup")
    shutil.rmtree(table.path / "_twophase~contract~facts")
    for call in (
        partial(commit, sink, piece),
        sink.history,
        partial(sink.fence, Attempt(9, 1)),
        sink.in_doubt,
    ):
        with pytest.raises(TargetChangedError, match="is gone, with all pre-committed rows"):
            call()
    shutil.copytree(tmp_path / "backup", table.path / "_twophase~contract~facts")
    assert commit(table.opened(), piece) == [Committed()]
    assert len(table.rows_visible()) == 3


def test_an_older_driver_that_was_overtaken_cannot_raise_its_fence(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    table.opened(Attempt(5, 1))
    with pytest.raises(FencedError):
        sink.fence(Attempt(4, 9))
    assert sink.history().generation == 5


def test_two_fences_are_nobody_s_doing_and_stop_the_job_until_a_backup_is_restored(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, tmp_path: Path
) -> None:
    hidden = table.path / "_twophase~contract~facts"
    shutil.copytree(hidden, tmp_path / "backup")
    (hidden / "fence-7.1").mkdir()
    for call in (sink.history, table.opened):
        with pytest.raises(StopJobError, match="has 2 fences"):
            call()
    shutil.rmtree(hidden)
    shutil.copytree(tmp_path / "backup", hidden)
    assert commit(table.opened(), piece) == [Committed()]


def test_a_hidden_folder_that_was_deleted_makes_decided_pieces_lost_never_committed(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    shutil.rmtree(table.path / "_twophase~contract~facts")
    (outcome,) = commit(table.opened(), piece)
    assert isinstance(outcome, Lost)


def test_a_committed_file_that_is_deleted_is_not_noticed(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    """Others may delete and rewrite files of the table: the proof is beside them, and is all
    that is looked for.
    """
    commit(sink, piece)
    final(table, 0).unlink()
    again = table.opened()
    assert again.history().committed[piece.transaction.lineage] == 0
    assert commit(again, table.write(again, orders(range(3, 6)), 1)) == [Committed()]

"""A piece that is called lost has no row in the table: it is written again, or given up, whole."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.rights import permissions_checked
from harness.selection import representatives
from harness.staged_sink_harness import FileHarness, Interrupt, commit, final, orders
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import StopJobError, TargetChangedError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.common.staging import committer, visible_files
from twophase.sinks.common.staging.disk import rename_new
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.open_sink import OpenStagedSink

pytestmark = pytest.mark.part("files")


def begin(sink: OpenStagedSink, piece: Committable, interrupt: Interrupt, point: str) -> None:
    """A commit that dies with files of the piece in the table."""
    interrupt(point)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    interrupt("")


def lose(folder: Path, how: str) -> None:
    """Take away what tells which files the piece has."""
    path = folder / "manifest"
    if how == "folder":
        shutil.rmtree(folder)
    elif how == "manifest":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        manifest = Manifest.decode(path.read_bytes(), str(path))
        path.write_bytes(dataclasses.replace(manifest, watermark_us=1).encode())


@pytest.mark.parametrize("point", ["", "F03", "F04"])
def test_h23_a_piece_of_which_a_file_is_lost_leaves_nothing_in_the_table(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt, point: str
) -> None:
    """Whoever gives the piece up can abort it."""
    if point:
        interrupt(point)
        with pytest.raises(FailpointError):
            commit(sink, piece)
        interrupt("")
    gone = final(table, 1) if point == "F04" else table.staged()[0] / "1"
    gone.unlink()
    for _ in range(2):
        (outcome,) = commit(sink, piece)
        assert isinstance(outcome, Lost)
        assert table.files() == []
    sink.abort(sink.in_doubt())
    assert table.staged() == []


@pytest.mark.parametrize(
    "how", representatives(["folder", "manifest", "damaged", "another"], {"folder", "another"})
)
@pytest.mark.parametrize("point", ["F03", "F04"])
def test_h23_a_piece_whose_manifest_is_lost_leaves_nothing_in_the_table(
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    interrupt: Interrupt,
    point: str,
    how: str,
) -> None:
    """Its rows can be written again, and what is left of it does not stop a start."""
    begin(sink, piece, interrupt, point)
    assert table.files() != []
    lose(table.staged()[0], how)
    for _ in range(2):
        (outcome,) = commit(sink, piece)
        assert isinstance(outcome, Lost)
        assert table.files() == []
    (folder,) = table.staged()
    assert (folder / "0").exists()  # until the loss is accepted, or written again
    sink.abort(sink.in_doubt())
    assert table.staged() == []
    again = table.opened()
    assert commit(again, table.write(again, orders(range(3)), 0, Attempt(1, 2))) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1, 2]


def test_h23_a_manifest_that_was_damaged_before_its_digest_was_taken_leaves_nothing_in_the_table(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    begin(sink, piece, interrupt, "F03")
    lose(table.staged()[0], "damaged")
    digest = hashlib.sha256((table.staged()[0] / "manifest").read_bytes()).hexdigest()
    (outcome,) = commit(
        sink, dataclasses.replace(piece, handle={**piece.handle, "manifest_sha256": digest})
    )
    assert isinstance(outcome, Lost)
    assert table.files() == []


def test_nothing_else_leaves_the_table_with_a_lost_piece(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    other = table.write(sink, orders(range(3)), 1)
    begin(sink, piece, interrupt, "F04")
    assert commit(sink, other) == [Committed()]
    (table.path / "theirs.parquet").write_bytes(final(table, 0).read_bytes())
    shutil.rmtree(table.staged()[0])
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert len(table.files()) == 4


def test_what_stops_before_a_piece_is_called_lost_takes_nothing_out(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    """The target was restored from a backup, or is another one: nobody knows yet what is lost."""
    begin(sink, piece, interrupt, "F04")
    shutil.rmtree(table.staged()[0])
    before = Predecessor(piece.transaction.lineage, 7)
    with pytest.raises(TargetChangedError):
        sink.commit([CommitRequest(piece, 0, before)])
    with pytest.raises(TargetChangedError):
        commit(sink, dataclasses.replace(piece, target="elsewhere"))
    assert len(table.files()) == 3


def test_a_folder_that_cannot_be_searched_stops_the_job_by_name(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    """As `lost+found` cannot where the table is a mount point. Files of the piece may be there, and
    no retry mends that.
    """
    begin(sink, piece, interrupt, "F04")
    shutil.rmtree(table.staged()[0])
    closed = table.path / "theirs" / "lost+found"
    closed.mkdir(parents=True)
    closed.chmod(0)
    with (
        permissions_checked(),
        pytest.raises(StopJobError, match=r"'theirs/lost\+found' in .*/orders cannot be searched"),
    ):
        commit(sink, piece)
    assert len(table.files()) == 3
    closed.rmdir()
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert table.files() == []


def test_a_fence_that_is_raised_in_the_last_moment_keeps_the_files_in_the_table(
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    interrupt: Interrupt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(sink, piece, interrupt, "F04")
    lose(table.staged()[0], "manifest")
    late = committer.Committer(sink.table, lambda _, __: None)
    find = visible_files.find

    def fenced(*args: object) -> object:
        found = find(*args)  # type: ignore[arg-type]
        table.opened().fence(Attempt(2, 1))
        return found

    monkeypatch.setattr(visible_files, "find", fenced)
    (outcome,) = late.commit([CommitRequest(piece)])
    assert isinstance(outcome, RetryLater)
    assert len(table.files()) == 3


def test_a_death_while_files_are_taken_out_is_finished_by_the_next_driver(
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    interrupt: Interrupt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(sink, piece, interrupt, "F04")
    shutil.rmtree(table.staged()[0])
    rename, moved = rename_new, list[object]()

    def dies(source: Path, target: Path) -> None:
        if moved:
            raise FailpointError("after the first file")
        moved.append(target)
        rename(source, target)

    monkeypatch.setattr(visible_files, "rename_new", dies)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    monkeypatch.setattr(visible_files, "rename_new", rename)
    assert len(table.files()) == 2
    (outcome,) = commit(table.opened(), piece)
    assert isinstance(outcome, Lost)
    assert table.files() == []


def linked(path: Path) -> None:
    outside = path.parent.parent.parent / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def copied(path: Path) -> None:
    shutil.copy(path, path.parent.parent)


def renamed(path: Path) -> None:
    path.rename(path.with_name(path.name + ".old"))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (linked, "a link"),
        (copied, "exists twice"),
        (renamed, "does not have the name of one of our files"),
        (folder, "is not a plain file"),
    ],
)
@pytest.mark.parametrize("how", ["folder", "file"])
def test_what_cannot_be_taken_out_safely_stops_the_job_by_name(
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    interrupt: Interrupt,
    change: Callable[[Path], None],
    named: str,
    how: str,
) -> None:
    begin(sink, piece, interrupt, "F04")
    if how == "folder":
        shutil.rmtree(table.staged()[0])
    else:
        final(table, 0).unlink()
    change(final(table, 1))
    files = table.files()
    with pytest.raises(StopJobError, match=named):
        commit(sink, piece)
    assert table.files() == files


def test_a_file_of_a_lost_piece_that_was_changed_stops_the_job(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, interrupt: Interrupt
) -> None:
    begin(sink, piece, interrupt, "F04")
    final(table, 0).unlink()
    data = final(table, 1).read_bytes()
    final(table, 1).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StopJobError, match="is not the file that was pre-committed"):
        commit(sink, piece)
    assert [path.name for path in table.files()] == [final(table, 1).name, final(table, 2).name]


def test_a_file_that_is_staged_too_is_not_taken_out(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    (staged,) = table.staged()
    (staged / "manifest").unlink()
    final(table, 1).parent.mkdir()
    final(table, 1).write_text("theirs")
    with pytest.raises(StopJobError, match="exists twice"):
        commit(sink, piece)
    assert final(table, 1).read_text() == "theirs"


def test_h23_no_file_of_a_lost_piece_is_seen_while_others_are_committed(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost last is known before anything is moved."""
    (table.staged()[0] / "2").unlink()
    healthy = table.write(sink, orders(range(3)), 1)
    seen: list[list[Path]] = []

    def look(_: str) -> None:
        seen.append(table.files())

    monkeypatch.setattr(committer, "failpoint", look)
    for _ in range(2):
        outcomes = commit(sink, piece, healthy)
        assert isinstance(outcomes[0], Lost)
        assert outcomes[1] == Committed() or outcomes[1] == AlreadyCommitted("done marker")
    assert {len(files) for files in seen} == {0, 1, 2, 3}
    assert not [path for files in seen for path in files if "-0-1.1-" in path.name]

"""A driver aborts a piece that a driver with another folder has decided, in the middle of its
commit: either the abort takes the piece away whole, or it is refused and the commit goes on.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.staged_sink_harness import FileHarness, commit, final, orders
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed, Lost, RetryLater
from twophase.errors import StopJobError, TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.common.staging import committer, disk, orphans
from twophase.sinks.common.staging.aborted import AbortedPieces, restage
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.common.staging.staging_area import STAGED

pytestmark = pytest.mark.part("files")


@pytest.fixture
def other(table: FileHarness, sink: OpenStagedSink) -> OpenStagedSink:
    """The sink of the other driver: open, with the same fence up."""
    return table.opened()


def before_move(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Act once, before a commit moves its file with this number into the table."""
    moves = iter(range(number + 1))

    def rename_new(*names: Any) -> None:
        if next(moves, None) == number:
            act()
        disk.rename_new(*names)

    monkeypatch.setattr(committer, "rename_new", rename_new)


def test_a_commit_that_has_moved_nothing_finds_the_piece_gone(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before_move(monkeypatch, 0, lambda: other.abort([piece]))
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert isinstance(commit(sink, piece)[0], Lost)
    assert table.rows_visible() == []
    assert sink.in_doubt() == []


@pytest.mark.parametrize("looks", ["before its first move", "after it"])
def test_an_abort_is_refused_once_a_file_is_in_the_table(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
    looks: str,
) -> None:
    """It may have looked for the files before the first of them was moved."""
    refused: list[str] = []

    def abort() -> None:
        with pytest.raises(StopJobError) as stop:
            other.abort([piece])
        refused.append(stop.value.what)

    if looks == "after it":
        before_move(monkeypatch, 1, abort)
        assert isinstance(commit(sink, piece)[0], Committed)
    else:
        add = AbortedPieces.hide

        def move_one_first(*place: Any) -> None:
            before_move(monkeypatch, 1, lambda: add(*place))
            assert isinstance(commit(sink, piece)[0], RetryLater)

        with monkeypatch.context() as patch:
            patch.setattr(AbortedPieces, "hide", move_one_first)
            abort()
        assert isinstance(commit(sink, piece)[0], Committed)
    assert "its commit has begun. Nothing was deleted." in refused[0]
    assert len(table.rows_visible()) == 3
    assert sink.in_doubt() == []


def test_of_several_pieces_none_is_deleted_if_one_is_in_the_table(
    table: FileHarness, sink: OpenStagedSink, other: OpenStagedSink, piece: Committable
) -> None:
    later = table.write(sink, orders(range(3, 6)), checkpoint=1)
    before = table.staged()
    final(table, 0).parent.mkdir()
    (before[0] / "0").rename(final(table, 0))
    with pytest.raises(StopJobError):
        other.abort([later, piece])
    assert table.staged() == before


def in_the_window(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once, after an abort has hidden its pieces and before it searches the table."""
    acts = iter([act])

    def failpoint(name: str) -> None:
        if name == "F06":
            next(acts, lambda: None)()

    monkeypatch.setattr(orphans, "failpoint", failpoint)


def aborts_and_dies(table: FileHarness, point: str) -> None:
    """Another driver aborts all that is in doubt, and is killed at this point."""
    script = (
        "import sys; from pathlib import Path; from harness.staged_sink_harness import FileHarness;"
        "sink = FileHarness(Path(sys.argv[1]), partition_by=['name']).opened();"
        "sink.abort(sink.in_doubt())"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(table.path)],
        env={**os.environ, "TWOPHASE_FAILPOINTS": f"{point}=kill"},
        check=False,
    )
    assert run.returncode == -signal.SIGKILL


def stage(table: FileHarness) -> Path:
    return next(table.path.glob("_twophase~*/fence-*"))


def name_of(piece: Committable) -> PieceName:
    return PieceName.of(piece.transaction, piece.subtask)


def hidden(table: FileHarness) -> list[Path]:
    return [*table.path.glob("_twophase~*/fence-*/aborted/*")]


def test_a_commit_restages_what_a_dead_driver_hid(
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before_move(monkeypatch, 0, lambda: aborts_and_dies(table, "F06"))
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert table.staged() == []
    assert sink.in_doubt() == [piece]
    assert sink.unfinished([piece]) == []
    assert isinstance(commit(sink, piece)[0], Committed)
    assert len(table.rows_visible()) == 3
    assert sink.in_doubt() == []
    assert hidden(table) == []


def test_a_commit_restages_the_rest_if_a_file_is_in_the_table(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden after the first file was moved, by a driver that died before it saw that."""
    before_move(monkeypatch, 1, lambda: AbortedPieces(stage(table)).hide(name_of(piece)))
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert len(table.rows_visible()) == 1
    assert isinstance(commit(sink, piece)[0], Committed)
    assert len(table.rows_visible()) == 3
    assert hidden(table) == []


def test_a_commit_takes_a_piece_back_from_a_living_abort(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes: list[object] = []
    in_the_window(monkeypatch, lambda: outcomes.extend(commit(sink, piece)))
    with pytest.raises(StopJobError, match="but is committed in"):
        other.abort([piece])
    assert isinstance(outcomes[0], Committed)
    assert len(table.rows_visible()) == 3
    assert sink.in_doubt() == []


def test_what_is_restaged_after_the_search_is_not_deleted(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = AbortedPieces.claim

    def commit_first(pieces: AbortedPieces) -> bool:
        monkeypatch.setattr(AbortedPieces, "claim", claim)
        assert isinstance(commit(sink, piece)[0], Committed)
        return pieces.claim()

    monkeypatch.setattr(AbortedPieces, "claim", commit_first)
    with pytest.raises(StopJobError, match="but is committed in"):
        other.abort([piece])
    assert len(table.rows_visible()) == 3


def test_a_piece_that_was_committed_after_it_was_listed_is_not_reported_as_aborted(
    sink: OpenStagedSink, other: OpenStagedSink, piece: Committable
) -> None:
    listed = other.in_doubt()
    assert isinstance(commit(sink, piece)[0], Committed)
    with pytest.raises(StopJobError, match="but is committed in"):
        other.abort(listed)


def test_two_aborts_of_a_piece_leave_nothing_of_it(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_the_window(monkeypatch, lambda: sink.abort([piece]))
    other.abort([piece])
    assert table.staged() == hidden(table) == []
    assert isinstance(commit(sink, piece)[0], Lost)
    assert table.rows_visible() == []


def test_two_aborts_are_both_refused_once_a_file_is_in_the_table(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither removes what the other has hidden."""
    staged = table.staged()

    def move_one_and_abort() -> None:
        final(table, 0).parent.mkdir()
        (hidden(table)[0] / "0").rename(final(table, 0))
        with pytest.raises(StopJobError, match="its commit has begun"):
            sink.abort([piece])

    in_the_window(monkeypatch, move_one_and_abort)
    with pytest.raises(StopJobError, match="its commit has begun"):
        other.abort([piece])
    assert table.staged() == staged
    assert isinstance(commit(sink, piece)[0], Committed)
    assert len(table.rows_visible()) == 3


def test_an_abort_that_fails_stages_its_pieces_again(
    table: FileHarness,
    sink: OpenStagedSink,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = table.write(sink, orders(range(3, 6)), checkpoint=1)
    staged = table.staged()

    def fail() -> None:
        raise OSError(errno.EIO, "the disk is ill")

    in_the_window(monkeypatch, fail)
    with pytest.raises(OSError, match="the disk is ill"):
        other.abort([piece, later])
    assert table.staged() == staged
    assert hidden(table) == []


def test_a_piece_is_staged_again_into_a_folder_that_exists(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    """A driver may have died while it did that: some files are in one folder, some in the other."""
    AbortedPieces(stage(table)).hide(name_of(piece))
    half = stage(table) / STAGED / str(name_of(piece))
    half.mkdir()
    (hidden(table)[0] / "1").rename(half / "1")
    assert isinstance(commit(sink, piece)[0], Committed)
    assert len(table.rows_visible()) == 3
    assert hidden(table) == []


def test_what_a_dead_driver_had_begun_to_delete_is_in_doubt_and_never_committed(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    table.write(sink, orders(range(3, 6)), checkpoint=1)
    aborts_and_dies(table, "C20")
    left = sink.in_doubt()
    assert len(left) == 1
    assert all(isinstance(outcome, Lost) for outcome in commit(sink, piece, *left))
    sink.abort(left)
    assert sink.in_doubt() == []
    assert table.rows_visible() == []
    assert hidden(table) == []


def test_an_abort_under_which_the_fence_is_raised_is_done_by_the_next_start(
    table: FileHarness,
    other: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_the_window(monkeypatch, lambda: table.opened(Attempt(2, 1)))
    with pytest.raises(TargetUnreachableError, match="has just raised the fence"):
        other.abort([piece])
    again = table.opened(Attempt(3, 1))
    again.abort(again.in_doubt())
    assert table.staged() == hidden(table) == []


def test_an_abort_whose_piece_others_keep_taking_is_done_once_they_do_not_run(
    table: FileHarness, other: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as beside:
        beside.setattr(orphans, "failpoint", lambda _: restage(stage(table), name_of(piece)))
        with pytest.raises(TargetUnreachableError, match="keep taking them") as caught:
            other.abort([piece])
    assert caught.value.remedy == "run only one driver."
    assert len(table.staged()) == 1
    other.abort([piece])
    assert table.staged() == hidden(table) == []

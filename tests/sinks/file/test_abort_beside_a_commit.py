"""A driver aborts a piece that a driver with another folder has decided, in the middle of its
commit: either the abort takes the piece away whole, or it is refused and the commit goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.staged_sink_harness import FileHarness, commit, final, orders
from twophase.errors import StopJobError
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import Committed, Lost, RetryLater
from twophase.sinks.common.staging import committer, disk, orphans, staging_area
from twophase.sinks.file.sink import FileSink

pytestmark = pytest.mark.part("files")


@pytest.fixture
def other(table: FileHarness, sink: FileSink) -> FileSink:
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
    sink: FileSink,
    other: FileSink,
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
    sink: FileSink,
    other: FileSink,
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
        set_aside = staging_area.set_aside

        def move_one_first(*place: Any) -> None:
            before_move(monkeypatch, 1, lambda: set_aside(*place))
            assert isinstance(commit(sink, piece)[0], RetryLater)

        monkeypatch.setattr(orphans, "set_aside", move_one_first)
        abort()
        assert isinstance(commit(sink, piece)[0], Committed)
    assert "its commit has begun. Nothing was deleted." in refused[0]
    assert len(table.rows_visible()) == 3
    assert sink.in_doubt() == []


def test_of_several_pieces_none_is_deleted_if_one_is_in_the_table(
    table: FileHarness, sink: FileSink, other: FileSink, piece: Committable
) -> None:
    later = table.write(sink, orders(range(3, 6)), checkpoint=1)
    before = table.staged()
    final(table, 0).parent.mkdir()
    (before[0] / "0").rename(final(table, 0))
    with pytest.raises(StopJobError):
        other.abort([later, piece])
    assert table.staged() == before


def test_a_piece_that_was_set_aside_is_in_doubt_until_it_is_deleted(
    table: FileHarness,
    sink: FileSink,
    other: FileSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver may die in between; its handle is still known, and the next driver aborts it."""

    def die(*_: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(orphans, "remove", die)
        with pytest.raises(InterruptedError):
            other.abort([piece])
    assert table.staged() == []
    assert sink.in_doubt() == [piece]
    assert sink.unfinished([piece]) == []
    sink.abort([piece])
    assert sink.in_doubt() == []
    assert not [*table.path.glob("_twophase~*/fence-*/aborted/*")]

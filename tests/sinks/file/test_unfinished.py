"""Which pieces in doubt were never pre-committed, and what is said where the
table does not tell.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.rights import permissions_checked
from harness.staged_sink_harness import FileHarness, final
from twophase.contract.committable import Committable
from twophase.errors import StopJobError
from twophase.sinks.common.staging.open_sink import OpenStagedSink

pytestmark = pytest.mark.part("files")


@pytest.fixture
def begun(table: FileHarness, piece: Committable) -> Committable:
    """A piece whose writer died, or whose manifest is gone."""
    (table.staged()[0] / "manifest").unlink()
    return piece


def test_a_piece_without_a_manifest_and_without_a_file_in_the_table_was_never_pre_committed(
    sink: OpenStagedSink, begun: Committable
) -> None:
    assert sink.unfinished([begun]) == [begun]


def test_a_piece_with_either_of_them_may_have_been(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    assert sink.unfinished([piece]) == []
    (table.staged()[0] / "manifest").unlink()
    final(table, 0).parent.mkdir()
    final(table, 0).touch()
    assert sink.unfinished([piece]) == []


def test_a_piece_that_cannot_be_committed_has_no_handle(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    """By that an adoption tells that it may not guess."""
    assert [found.handle for found in sink.in_doubt()] == [piece.handle]
    assert piece.handle
    (table.staged()[0] / "manifest").write_bytes(b"twophase-files/1")
    assert [found.handle for found in sink.in_doubt()] == [{}]


def asked(sink: OpenStagedSink, piece: Committable) -> StopJobError:
    """What is raised where it cannot be determined; it says nothing of a loss, or of a start, which
    does not ask this.
    """
    with pytest.raises(StopJobError) as stop:
        sink.unfinished([piece])
    assert "lost" not in str(stop.value).replace("lost+found", "")
    assert "Nothing was written." in stop.value.what
    assert stop.value.remedy.endswith("then run the command again.")
    return stop.value


def test_a_link_in_the_table_is_named_with_what_to_do(
    table: FileHarness, sink: OpenStagedSink, begun: Committable, tmp_path: Path
) -> None:
    """Files of the piece may lie where it leads to."""
    (tmp_path / "elsewhere").mkdir()
    (table.path / "old").symlink_to(tmp_path / "elsewhere")
    assert "'old' in folder '.' of" in asked(sink, begun).what
    (table.path / "old").rename(tmp_path / "old")
    assert sink.unfinished([begun]) == [begun]


def test_a_folder_that_cannot_be_searched_is_named_with_what_to_do(
    table: FileHarness, sink: OpenStagedSink, begun: Committable
) -> None:
    closed = table.path / "theirs" / "lost+found"
    closed.mkdir(parents=True)
    closed.chmod(0)
    with permissions_checked():
        assert "'theirs/lost+found' in" in asked(sink, begun).what
        closed.chmod(0o755)
        assert sink.unfinished([begun]) == [begun]

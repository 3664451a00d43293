"""Manifests of a newer version of twophase are refused by their version, and their pieces
stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.staged_sink_harness import FileHarness, commit, orders
from tests.state.conftest import snapshot
from twophase.contract.committable import Committable
from twophase.contract.outcome import Lost
from twophase.errors import NewerFormatError
from twophase.ids import Attempt
from twophase.internals.record import digest
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.hive.pending import PendingPartitions
from twophase.testing.harness import LINEAGE

pytestmark = pytest.mark.part("files")


def renew(manifest: Path) -> bytes:
    """Write a manifest as a newer version would, and return its content."""
    content = b"twophase-files/2 manifest crc32c 00c0ffee\n" + manifest.read_bytes()
    manifest.write_bytes(content)
    return content


USES: dict[str, Callable[[OpenStagedSink, Committable], object]] = {
    "in doubt": lambda sink, _: sink.in_doubt(),
    "abort": lambda sink, piece: sink.abort([piece]),
}


@pytest.mark.parametrize("use", USES)
def test_a_newer_manifest_stops_what_would_read_it_and_its_files_stay(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, use: str
) -> None:
    renew(table.staged()[0] / "manifest")
    before = snapshot(table.path)
    with pytest.raises(
        NewerFormatError,
        match=r"/manifest was written by a newer twophase \(format 2; this one reads",
    ):
        USES[use](sink, piece)
    assert snapshot(table.path) == before


def test_a_decided_newer_piece_is_neither_lost_nor_damaged(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    """Its digest is the one that was decided."""
    manifest = table.staged()[0] / "manifest"
    old = manifest.read_bytes()
    decided = replace(piece, handle={**piece.handle, "manifest_sha256": digest(renew(manifest))})
    with pytest.raises(NewerFormatError):
        commit(sink, decided)
    manifest.write_bytes(old)  # the newer version is back
    commit(sink, piece)
    assert len(table.rows_visible()) == 3


def test_a_newer_piece_among_others_stops_the_cleanup_of_a_start(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    for number in range(2):
        table.write(sink, orders([number]), number)
    renew(table.staged()[1] / "manifest")
    successor = table.opened(Attempt(2, 0))
    before = snapshot(table.path)
    with pytest.raises(NewerFormatError):
        successor.abort(successor.in_doubt())
    assert snapshot(table.path) == before


def test_subsume_deletes_no_newer_proof(table: FileHarness, sink: OpenStagedSink) -> None:
    for number in range(3):
        commit(sink, table.write(sink, orders([number]), number))
    done = sorted(table.path.glob("_twophase~*/fence-*/done/*"))
    content = renew(done[0] / "manifest")
    sink.subsume(LINEAGE, 1)
    assert sorted(table.path.glob("_twophase~*/fence-*/done/*")) == [done[0], done[2]]
    assert (done[0] / "manifest").read_bytes() == content
    assert sink.history().committed == {LINEAGE: 2}


def test_a_newer_waiting_partition_stops_the_commit_and_stays(tmp_path: Path) -> None:
    pending = PendingPartitions(tmp_path)
    pending.create()
    pending.add([("2026-08-01",)])
    (file,) = (tmp_path / "pending").iterdir()
    file.write_bytes(b"twophase-files/2 partition\n" + file.read_bytes())
    before = snapshot(tmp_path)
    with pytest.raises(
        NewerFormatError, match=r"/pending/[0-9a-f]{64} was written by a newer twophase"
    ):
        pending.partitions()
    assert snapshot(tmp_path) == before


def test_a_flipped_version_digit_of_a_decided_manifest_is_a_lost_piece(
    table: FileHarness, sink: OpenStagedSink, piece: Committable
) -> None:
    """Its digest says that it is damaged, so that a repair writes its rows again."""
    manifest = table.staged()[0] / "manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b"twophase-files/1 ", b"twophase-files/3 "))
    [outcome] = commit(sink, piece)
    assert isinstance(outcome, Lost)

"""Finds staged pieces, and aborts those that no checkpoint holds, unless one is committed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging.aborted import AbortedPieces, abort_all, folders_of, has_manifest
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import remove
from twophase.sinks.iceberg.committer import final_path, is_moved
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.fence import Fence
from twophase.sinks.iceberg.proofs import Proofs
from twophase.sinks.iceberg.records import Manifest


def in_doubt(table: DriverTable) -> Sequence[Committable]:
    """See `OpenSink.in_doubt`."""
    names = table.area.in_doubt()
    if not names:  # as after almost every commit: to load a table takes longer with each snapshot
        return []
    proofs = table.proofs(table.load())
    return [_committable(table, name) for name in names if not is_committed(table, name, proofs)]


def is_committed(table: DriverTable, name: PieceName, proofs: Proofs) -> bool:
    """Return whether there is proof of a piece: it is named, or stood for by the mark.

    The mark stands for a piece only if a commit has moved its files: superseded task attempts have
    the checkpoint in common with it.
    """
    proof = proofs.lineage(name.lineage)
    if proof.names(name):
        return True
    found = _manifest(table, name)
    return proof.mark >= name.checkpoint and found is not None and is_moved(*found)


def unfinished(table: DriverTable, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`."""
    return [piece for piece in pieces if not has_manifest(table.area, _name(piece))]


def forget_committed(table: DriverTable, lineage: str, checkpoint: int) -> None:
    """Remove what a crash left behind in the staging area after the commit of a piece."""
    names = [
        name
        for name in table.area.in_doubt()
        if name.lineage == lineage and name.checkpoint <= checkpoint
    ]
    if names:
        proofs = table.proofs(table.load())
        stage = table.area.stage()
        for name in names:
            if is_committed(table, name, proofs):
                for folder in folders_of(stage, name):
                    remove(folder)


def abort(table: DriverTable, committables: Sequence[Committable]) -> None:
    """See `OpenSink.abort`.

    A driver with another folder may have decided a piece, and be about to commit it. So a piece is
    hidden, then the fence is written again, which makes a commit in flight fail, and only then the
    proofs are looked at. Before it is deleted it is claimed: a commit that begins again finds
    nothing, or has taken it.
    """
    stage = table.area.stage()
    names = [_name(piece) for piece in committables]
    abort_all(stage, lambda: _abort(table, names, stage))


def _abort(table: DriverTable, names: Sequence[PieceName], stage: Path) -> bool:
    """Abort once; False if a commit or another abort took a piece meanwhile."""
    aborted = AbortedPieces(stage)
    try:
        _check_uncommitted(table, names)
        for name in names:
            aborted.hide(name)
        failpoint("F06")
        if any(_manifest(table, name) for name in names):
            Fence(table).write_again()
            _check_uncommitted(table, names)
        claimed = aborted.claim()
    except BaseException:
        aborted.restage()
        raise
    if not claimed:
        aborted.restage()
        return False
    for name in names:
        _delete_data(table, name)
    aborted.delete()
    return not any(folder.exists() for name in names for folder in folders_of(stage, name))


def _check_uncommitted(table: DriverTable, names: Sequence[PieceName]) -> None:
    """Check that no piece is committed.

    Raises:
        StopJobError: one is.
    """
    proofs = table.proofs(table.load())
    for name in names:
        if is_committed(table, name, proofs):
            raise StopJobError(
                f"Piece {name} is in no decision of this job's folder, but is committed in "
                f"{table.target}: its checkpoint was decided in another folder. "
                "Nothing was deleted.",
                remedy="start the job with the folder (checkpointLocation) that decided it.",
            )


def _delete_data(table: DriverTable, name: PieceName) -> None:
    """Delete the files of a claimed piece that a commit has moved before it failed."""
    found = _manifest(table, name)
    if found is None:
        return
    manifest, folder = found
    for file in manifest.files:
        if not (folder / str(file.number)).exists():
            final_path(table.data, manifest, file).unlink(missing_ok=True)


def _committable(table: DriverTable, name: PieceName) -> Committable:
    """Return the committable in a piece's manifest, or what its name tells."""
    found = _manifest(table, name)
    if found is not None:
        return found[0].committable(table.target)
    return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)


def _name(piece: Committable) -> PieceName:
    return PieceName.of(piece.transaction, piece.subtask)


def _manifest(table: DriverTable, name: PieceName) -> tuple[Manifest, Path] | None:
    """Return the manifest of a piece, staged or hidden, and its folder."""
    for folder in folders_of(table.area.stage(), name):
        with suppress(FileNotFoundError, DamagedRecordError):
            return Manifest.read(folder), folder
    return None

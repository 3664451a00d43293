"""Finds staged pieces, and aborts those that no checkpoint holds, unless one is committed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.contract.sink import decided_elsewhere
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import folders
from twophase.sinks.common.staging.aborted import AbortedPieces, abort_all, folders_of, has_manifest
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.staging_area import DONE
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.visible_files import has_files


def in_doubt(table: Table) -> Sequence[Committable]:
    """See `OpenSink.in_doubt`."""
    return [_committable(table, name) for name in table.area.in_doubt()]


def _committable(table: Table, name: PieceName) -> Committable:
    """Return the committable in a piece's manifest, or what its name tells."""
    for folder in folders_of(table.area.stage(), name):
        with suppress(FileNotFoundError, DamagedRecordError):
            return Manifest.read(folder).committable(table.target)
    return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)


def unfinished(table: Table, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`. A file in the table shows that the commit of a piece had begun."""
    return [
        piece
        for piece in pieces
        if not has_manifest(table.area, _name(piece)) and not has_files(table, piece)
    ]


def _name(piece: Committable) -> PieceName:
    return PieceName.of(piece.transaction, piece.subtask)


def abort(table: Table, committables: Sequence[Committable]) -> None:
    """See `OpenSink.abort`.

    A driver with another folder may have decided a piece, and be about to move its files. So a
    piece is hidden before the table is searched for it, and claimed before it is deleted.
    """
    stage = table.area.stage()
    names = [_name(piece) for piece in committables]
    abort_all(stage, lambda: _abort(table, names, stage))


def _abort(table: Table, names: Sequence[PieceName], stage: Path) -> bool:
    """Abort once; False if a commit or another abort took a piece meanwhile."""
    aborted = AbortedPieces(stage)
    try:
        check_uncommitted(table, names, stage)
        for name in names:
            aborted.hide(name)
        failpoint("F06")
        check_uncommitted(table, names, stage)
        claimed = aborted.claim()
    except BaseException:
        aborted.restage()
        raise
    if not claimed:
        aborted.restage()
        return False
    aborted.delete()
    return not any(folder.exists() for name in names for folder in folders_of(stage, name))


def check_uncommitted(table: Table, names: Sequence[PieceName], stage: Path) -> None:
    """Check that no piece is committed, and no file of one is in the table.

    Raises:
        StopJobError: one is.
    """
    for name in names:
        for folder in folders_of(stage, name):
            _check_not_moved(table, name, folder)
        if (stage / DONE / str(name)).exists():
            raise decided_elsewhere(name, str(table.area.root))


def _check_not_moved(table: Table, name: PieceName, folder: Path) -> None:
    """Check that no file that the manifest in this folder lists is in the table.

    Raises:
        StopJobError: one is.
        NewerFormatError: a newer version of twophase has written the piece.
    """
    try:
        manifest = Manifest.read(folder)
    except (FileNotFoundError, DamagedRecordError):
        return
    root = table.area.root
    for file in manifest.files:
        partition = root.joinpath(*folders(table.partition_by, file.partition))
        final = file_name(manifest.transaction, manifest.subtask, file.number, table.format.suffix)
        if (partition / final).exists():
            raise StopJobError(
                f"Piece {name} is in no decision of this job's folder, but {final} is in partition "
                f"{shown(file.partition)} of {table.area.root}: its checkpoint was decided in "
                "another folder, and its commit has begun. Nothing was deleted.",
                remedy="restore the job's folder (checkpointLocation) as it was, and start the "
                "job: it commits the rest. If it is gone for good, decide by hand whether the "
                "table is to have the piece.",
            )

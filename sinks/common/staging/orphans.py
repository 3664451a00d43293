"""Staged pieces: finds ours and removes them."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.errors import StopJobError, TargetUnreachableError
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable
from twophase.protocol.record import DamagedRecordError
from twophase.redaction import shown
from twophase.sinks.common.partition_names import folders
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.manifest import FILE, Manifest
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.staging_area import STAGED, remove
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.withdrawal import has_files


def in_doubt(table: Table) -> Sequence[Committable]:
    """See `Sink.in_doubt`."""
    return [_committable(table, name) for name in table.area.pieces(STAGED)]


def abort(table: Table, committables: Sequence[Committable]) -> None:
    """See `Sink.abort`."""
    stage = table.area.stage()
    for number, committable in enumerate(committables):
        if number:
            failpoint("C20")
        name = PieceName.of(committable.transaction, committable.subtask)
        _check_unseen(table, name)
        remove(stage / STAGED / str(name))
    try:
        sync(stage / STAGED)
    except FileNotFoundError as error:
        raise TargetUnreachableError(
            f"{stage} is gone: another driver has just raised the fence, "
            "or somebody has deleted it.",
            remedy="start the job again: it looks once more.",
        ) from error


def unfinished(table: Table, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`. A file in the table shows that the commit of a piece had begun."""
    return [
        piece for piece in pieces if not _has_manifest(table, piece) and not has_files(table, piece)
    ]


def _has_manifest(table: Table, piece: Committable) -> bool:
    """Return whether a piece has a manifest, whole or damaged: it was durable in pre-commit."""
    return (table.area.staged(PieceName.of(piece.transaction, piece.subtask)) / FILE).exists()


def _read(table: Table, name: PieceName) -> Manifest:
    path = table.area.staged(name) / FILE
    return Manifest.decode(path.read_bytes(), str(path))


def _check_unseen(table: Table, name: PieceName) -> None:
    """Check that no file of the piece is in the table: then another log has decided it.

    Raises:
        StopJobError: one is.
        NewerFormatError: a newer version of twophase has written the piece.
    """
    try:
        manifest = _read(table, name)
    except (FileNotFoundError, DamagedRecordError):
        return
    for file in manifest.files:
        folder = table.area.root.joinpath(*folders(table.partition_by, file.partition))
        final = file_name(manifest.transaction, manifest.subtask, file.number, table.format.suffix)
        if (folder / final).exists():
            raise StopJobError(
                f"Piece {name} is in no decision of this job's folder, and {final} is in partition "
                f"{shown(file.partition)} of {table.area.root}: its checkpoint was decided in "
                "another folder, and its commit has begun. Nothing was deleted.",
                remedy="restore the job's folder (checkpointLocation) as it was, and start the "
                "job: it commits the rest. If it is gone for good, decide by hand whether the "
                "table is to have the piece.",
            )


def _committable(table: Table, name: PieceName) -> Committable:
    """Return the committable in a piece's manifest, or what its name tells."""
    try:
        return _read(table, name).committable(table.target)
    except (FileNotFoundError, DamagedRecordError):
        return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)

"""Staged pieces: finds ours and removes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twophase.errors import StopJobError, TargetUnreachableError
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable
from twophase.protocol.record import DamagedRecordError
from twophase.redaction import shown
from twophase.sinks.common.partition_names import folders
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.manifest import FILE, Manifest
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.staging_area import (
    ABORTED,
    STAGED,
    remove,
    restage,
    set_aside,
)
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.withdrawal import has_files


def in_doubt(table: Table) -> Sequence[Committable]:
    """See `Sink.in_doubt`."""
    return [_committable(table, name) for name in table.area.in_doubt()]


def abort(table: Table, committables: Sequence[Committable]) -> None:
    """See `Sink.abort`.

    A driver with another folder may have decided a piece, and be about to move its files. So a
    piece is set aside first, where no commit finds it, and the table is searched for it after that.
    """
    stage = table.area.stage()
    names = [PieceName.of(piece.transaction, piece.subtask) for piece in committables]
    try:
        _check_all_unseen(table, names, stage)
        for name in names:
            set_aside(stage, name)
        _check_all_unseen(table, names, stage)
        for number, name in enumerate(names):
            if number:
                failpoint("C20")
            remove(stage / ABORTED / str(name))
        sync(stage / STAGED)
    except FileNotFoundError as error:
        raise TargetUnreachableError(
            f"{stage} is gone: another driver has just raised the fence, "
            "or somebody has deleted it.",
            remedy="start the job again: it looks once more.",
        ) from error


def _check_all_unseen(table: Table, names: Sequence[PieceName], stage: Path) -> None:
    """Check all pieces, staged or set aside; if one is seen, stage all of them again."""
    try:
        for name in names:
            for place in (STAGED, ABORTED):
                _check_unseen(table, name, stage / place)
    except StopJobError:
        for name in names:
            restage(stage, name)
        raise


def unfinished(table: Table, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`. A file in the table shows that the commit of a piece had begun."""
    return [
        piece for piece in pieces if not _has_manifest(table, piece) and not has_files(table, piece)
    ]


def _has_manifest(table: Table, piece: Committable) -> bool:
    """Return whether a piece has a manifest, whole or damaged: it was durable in pre-commit."""
    return (table.area.uncommitted(PieceName.of(piece.transaction, piece.subtask)) / FILE).exists()


def _read(folder: Path) -> Manifest:
    path = folder / FILE
    return Manifest.decode(path.read_bytes(), str(path))


def _check_unseen(table: Table, name: PieceName, pieces: Path) -> None:
    """Check that no file of the piece is in the table: then another log has decided it.

    Raises:
        StopJobError: one is.
        NewerFormatError: a newer version of twophase has written the piece.
    """
    try:
        manifest = _read(pieces / str(name))
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
        return _read(table.area.uncommitted(name)).committable(table.target)
    except (FileNotFoundError, DamagedRecordError):
        return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)

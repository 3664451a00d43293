"""Checks that a piece to abort is not committed, nor half committed by another driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twophase.errors import StopJobError
from twophase.protocol.record import DamagedRecordError
from twophase.redaction import shown
from twophase.sinks.common.partition_names import folders
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.set_aside import places
from twophase.sinks.common.staging.staging_area import DONE
from twophase.sinks.common.staging.table import Table


def check_all_unseen(table: Table, names: Sequence[PieceName], stage: Path) -> None:
    """Check that no piece is committed, and no file of one is in the table.

    Raises:
        StopJobError: one is.
    """
    for name in names:
        for folder in places(stage, name):
            _check_unseen(table, name, folder)
        if (stage / DONE / str(name)).exists():
            raise StopJobError(
                f"Piece {name} is in no decision of this job's folder, and it is committed in "
                f"{table.area.root}: its checkpoint was decided in another folder. "
                "Nothing was deleted.",
                remedy="start the job with the folder (checkpointLocation) that decided it.",
            )


def _check_unseen(table: Table, name: PieceName, folder: Path) -> None:
    """Check that no file that the manifest in this folder lists is in the table.

    Raises:
        StopJobError: one is.
        NewerFormatError: a newer version of twophase has written the piece.
    """
    try:
        manifest = Manifest.read(folder)
    except (FileNotFoundError, DamagedRecordError):
        return
    for file in manifest.files:
        partition = table.area.root.joinpath(*folders(table.partition_by, file.partition))
        final = file_name(manifest.transaction, manifest.subtask, file.number, table.format.suffix)
        if (partition / final).exists():
            raise StopJobError(
                f"Piece {name} is in no decision of this job's folder, and {final} is in partition "
                f"{shown(file.partition)} of {table.area.root}: its checkpoint was decided in "
                "another folder, and its commit has begun. Nothing was deleted.",
                remedy="restore the job's folder (checkpointLocation) as it was, and start the "
                "job: it commits the rest. If it is gone for good, decide by hand whether the "
                "table is to have the piece.",
            )

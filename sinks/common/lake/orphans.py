"""Finds staged pieces, and aborts those that no checkpoint holds, unless one is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twophase.contract.committable import Committable
from twophase.contract.sink import decided_elsewhere
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.lake.committer import name_of
from twophase.sinks.common.lake.table import LakeTable
from twophase.sinks.common.staging.aborted import AbortedPieces, abort_all, folders_of, has_manifest
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import remove

AnyTable = LakeTable[Any, Any]


def in_doubt(table: AnyTable) -> Sequence[Committable]:
    """See `OpenSink.in_doubt`."""
    names = table.area.in_doubt()
    if not names:  # as after almost every commit: to load a table takes longer with each snapshot
        return []
    look = table.look()
    return [_committable(table, name) for name in names if not table.is_committed(name, look)]


def unfinished(table: AnyTable, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`."""
    return [piece for piece in pieces if not has_manifest(table.area, name_of(piece))]


def forget_committed(table: AnyTable, lineage: str, checkpoint: int) -> None:
    """Remove what a crash left behind in the staging area after the commit of a piece."""
    names = [
        name
        for name in table.area.in_doubt()
        if name.lineage == lineage and name.checkpoint <= checkpoint
    ]
    if names:
        look = table.look()
        stage = table.area.stage()
        for name in names:
            if table.is_committed(name, look):
                for folder in folders_of(stage, name):
                    remove(folder)


def abort(
    table: AnyTable, committables: Sequence[Committable], stop_commits: Callable[[], None]
) -> None:
    """See `OpenSink.abort`.

    A driver with another folder may have decided a piece, and be about to commit it. So a piece is
    hidden, then commits in flight are made to fail, and only then the proofs are looked at. Before
    it is deleted it is claimed: a commit that begins again finds nothing, or has taken it.

    Args:
        table: the table.
        committables: the pieces.
        stop_commits: makes commits in flight fail: those that the table does not show by now have
            to begin again, and look at the piece again.
    """
    stage = table.area.stage()
    names = [name_of(piece) for piece in committables]
    abort_all(stage, lambda: _abort(table, names, stage, stop_commits))


def _abort(
    table: AnyTable, names: Sequence[PieceName], stage: Path, stop_commits: Callable[[], None]
) -> bool:
    """Abort once; False if a commit or another abort took a piece meanwhile."""
    aborted = AbortedPieces(stage)
    try:
        _check_uncommitted(table, names)
        for name in names:
            aborted.hide(name)
        failpoint("F06")
        if any(table.manifest(name) for name in names):
            stop_commits()
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


def _check_uncommitted(table: AnyTable, names: Sequence[PieceName]) -> None:
    """Check that no piece is committed.

    Raises:
        StopJobError: one is.
    """
    look = table.look()
    for name in names:
        if table.is_committed(name, look):
            raise decided_elsewhere(name, table.target)


def _delete_data(table: AnyTable, name: PieceName) -> None:
    """Delete the files of a claimed piece that a commit has moved before it failed."""
    found = table.manifest(name)
    if found is None:
        return
    manifest, folder = found
    for file in manifest.files:
        if not (folder / str(file.number)).exists():
            table.final_path(manifest, file).unlink(missing_ok=True)


def _committable(table: AnyTable, name: PieceName) -> Committable:
    """Return the committable in a piece's manifest, or what its name tells."""
    found = table.manifest(name)
    if found is not None:
        made: Committable = found[0].committable(table.target)
        return made
    return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)

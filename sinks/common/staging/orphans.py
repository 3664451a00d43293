"""Aborts staged pieces that no checkpoint holds, unless one of them is committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twophase.errors import TargetUnreachableError
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.orphan_check import check_all_unseen
from twophase.sinks.common.staging.set_aside import SetAside, places
from twophase.sinks.common.staging.staging_area import STAGED
from twophase.sinks.common.staging.table import Table

_TRIES = 100


def abort(table: Table, committables: Sequence[Committable]) -> None:
    """See `Sink.abort`.

    A driver with another folder may have decided a piece, and be about to move its files. So a
    piece is set aside before the table is searched for it, and claimed before it is deleted.
    """
    stage = table.area.stage()
    names = [PieceName.of(piece.transaction, piece.subtask) for piece in committables]
    try:
        for _ in range(_TRIES):
            if _abort(table, names, stage):
                sync(stage / STAGED)
                return
    except FileNotFoundError as error:
        raise TargetUnreachableError(
            f"{stage} is gone: another driver has just raised the fence, "
            "or somebody has deleted it.",
            remedy="start the job again: it looks once more.",
        ) from error
    raise TargetUnreachableError(
        f"Pieces in {stage} could not be aborted in {_TRIES} tries: other drivers take them.",
        remedy="start one driver only.",
    )


def _abort(table: Table, names: Sequence[PieceName], stage: Path) -> bool:
    """Abort once; False if a commit or another abort has taken a piece meanwhile."""
    aside = SetAside(stage)
    try:
        check_all_unseen(table, names, stage)
        for name in names:
            aside.add(name)
        failpoint("F06")
        check_all_unseen(table, names, stage)
        claimed = aside.claim()
    except BaseException:
        aside.take_back()
        raise
    if not claimed:
        aside.take_back()
        return False
    aside.delete()
    return not any(folder.exists() for name in names for folder in places(stage, name))

"""Pieces that are staged: which are ours, and how one is removed."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.staging.disk import sync
from sinks.staging.home import STAGED, remove
from sinks.staging.manifest import FILE, DamagedRecordError, Manifest
from sinks.staging.names import PieceName
from sinks.staging.table import Table
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable


def in_doubt(table: Table) -> Sequence[Committable]:
    """See `Sink.in_doubt`."""
    return [_committable(table, name) for name in table.home.pieces(STAGED)]


def abort(table: Table, committables: Sequence[Committable]) -> None:
    """See `Sink.abort`."""
    stage = table.home.stage()
    for number, committable in enumerate(committables):
        if number:
            failpoint("C20")
        name = PieceName.of(committable.transaction, committable.subtask)
        remove(stage / STAGED / str(name))
    sync(stage / STAGED)


def _committable(table: Table, name: PieceName) -> Committable:
    """What its manifest says; a piece without a whole one was never pre-committed, and only its name is known."""
    try:
        return Manifest.decode((table.home.staged(name) / FILE).read_bytes()).committable(table.target)
    except (FileNotFoundError, DamagedRecordError):
        return Committable(name.transaction(table.home.owner), name.subtask, table.target, 0)

"""Finds the staged pieces of a sink, and tells which were left before their pre-commit ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from twophase.protocol.committable import Committable
from twophase.protocol.record import DamagedRecordError
from twophase.sinks.common.staging.manifest import FILE, Manifest
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.set_aside import places
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.withdrawal import has_files


def in_doubt(table: Table) -> Sequence[Committable]:
    """See `Sink.in_doubt`."""
    return [_committable(table, name) for name in table.area.in_doubt()]


def _committable(table: Table, name: PieceName) -> Committable:
    """Return the committable in a piece's manifest, or what its name tells."""
    for folder in places(table.area.stage(), name):
        with suppress(FileNotFoundError, DamagedRecordError):
            return Manifest.read(folder).committable(table.target)
    return Committable(name.transaction(table.area.owner), name.subtask, table.target, 0)


def unfinished(table: Table, pieces: Sequence[Committable]) -> Sequence[Committable]:
    """See `TellsUnfinished`. A file in the table shows that the commit of a piece had begun."""
    return [
        piece for piece in pieces if not _has_manifest(table, piece) and not has_files(table, piece)
    ]


def _has_manifest(table: Table, piece: Committable) -> bool:
    """Return whether a piece has a manifest, whole or damaged: it was durable in pre-commit."""
    name = PieceName.of(piece.transaction, piece.subtask)
    return any((folder / FILE).exists() for folder in places(table.area.stage(), name))

"""The table of one job and sink, as the driver has it: its folder and its staging area."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twophase.errors import TargetChangedError, TargetUnreachableError
from twophase.sinks.common.lake.table import HIDDEN, LakeTable, create_area, is_moved
from twophase.sinks.common.staging.names import Owner, PieceName, file_name
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.paimon.private_api import (
    ConflictError,
    PaimonTable,
    first_schema,
    newest_schema,
)
from twophase.sinks.paimon.proofs import Found, Proofs
from twophase.sinks.paimon.records import Manifest, StagedFile, decode_manifest

_SUFFIX = ".parquet"
_TRIES = 100


@dataclass(frozen=True)
class Look:
    """The table as it was at one time.

    Attributes:
        table: with its newest schema.
        latest: its newest snapshot; None if there was none.
        proofs: those of the job and sink.
    """

    table: PaimonTable
    latest: Any
    proofs: Proofs


class DriverTable(LakeTable[Look, Manifest]):
    """One table.

    Args:
        owner: job and sink.
        location: its folder.
        name: its name.
    """

    def __init__(self, owner: Owner, location: Path, name: str) -> None:
        self.owner = owner
        self.location = location
        self.name = name
        self.id = table_id(location)
        self.area = StagingArea(location / HIDDEN / self.id, owner)
        self._table = self.load()

    @property
    def target(self) -> str:
        """The target's identity (I10): the table's folder, and what its first schema file has,
        which is made at another time if a table is created again.
        """
        return f"paimon:{self.id}:{self.location}"

    def load(self) -> PaimonTable:
        """Return the table as it is now.

        Raises:
            TargetChangedError: it is gone, or another is in its place.
        """
        found = newest_schema(self.location)
        if found is None:
            raise TargetChangedError(
                f"The table {self.name} in {self.location} is gone: it was dropped or renamed.",
                remedy="restore the table's folder, then start the job again.",
            )
        if (now := table_id(self.location)) != self.id:
            raise TargetChangedError(
                f"The table {self.name} in {self.location} is not the one that the job started "
                f"with: its id was {self.id} and is {now}. It was dropped and created again.",
                remedy="restore the table that the job had, then start the job again.",
            )
        self._table = PaimonTable(self.location, self.name, found)
        return self._table

    def look(self) -> Look:
        """See `LakeTable.look`."""
        table = self.load()
        latest = table.latest()
        newest = 0 if latest is None else latest.id
        return Look(table, latest, Proofs(self.owner, self.area, table, newest))

    def is_committed(self, name: PieceName, look: Look) -> bool:
        """See `LakeTable.is_committed`.

        The mark stands for a piece only if a commit has moved its files: superseded task attempts
        have the checkpoint in common with it.
        """
        if look.proofs.noted(name):
            return True
        found = self.manifest(name)
        if found is None or not is_moved(*found):
            return False
        manifest, _ = found
        return (
            look.proofs.mark(name.lineage) >= name.checkpoint
            or look.proofs.published(name, manifest) is not None
        )

    def unnoted(self, look: Look) -> dict[PieceName, Found]:
        """Return the pieces that are committed and not noted: their driver died in between."""
        pieces = {}
        for name in self.area.in_doubt() if self.area.exists() else []:
            found = self.manifest(name)
            if found is not None and is_moved(*found):
                published = look.proofs.published(name, found[0])
                if published is not None:
                    pieces[name] = published
        return pieces

    def decode(self, data: bytes, where: str) -> Manifest:
        """See `LakeTable.decode`."""
        return decode_manifest(data, where)

    def final_path(self, manifest: Manifest, file: StagedFile) -> Path:
        """See `LakeTable.final_path`."""
        partition = tuple(self._table.message(file.message).partition)
        name = file_name(manifest.transaction, manifest.subtask, file.number, _SUFFIX)
        return self._table.file_path(partition, name)

    def stop_commits(self) -> None:
        """Make commits in flight fail, by an empty snapshot: it takes the name of theirs.

        Raises:
            TargetUnreachableError: the folder does not take it.
        """
        failure: Exception | None = None
        for _ in range(_TRIES):
            look = self.look()
            identifier = 0 if look.latest is None else look.latest.id
            try:
                look.table.publish(look.latest, [], f"twophase~{self.owner.job}", identifier, {})
            except ConflictError as error:
                failure = error
            except OSError as error:
                failure = error
            else:
                return
        raise TargetUnreachableError(
            f"An empty snapshot of {self.target} could not be made in {_TRIES} tries: {failure}.",
            remedy="check that the table's folder can be written, then start the job again.",
        )

    def create_area(self) -> None:
        """Create the staging area if it is missing.

        Raises:
            TargetChangedError: the table is gone, or another is in its place, which gets nothing.
            PreflightError: the file system has no rename that replaces nothing, or it cannot be
                created.
        """
        if not self.area.exists():
            self.load()
            create_area(self.area)


def table_id(location: Path) -> str:
    """Return the id of a table: the digest of its first schema, which says when it was created."""
    first = first_schema(location)
    if first is None:
        raise TargetChangedError(
            f"{location / 'schema' / 'schema-0'} is gone, which the sink knows the table by.",
            remedy="restore it from a backup, then start the job again.",
        )
    return hashlib.sha256(first).hexdigest()[:32]

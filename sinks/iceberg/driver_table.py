"""The table of one job and sink, as the driver has it: its catalog and its staging area."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID, ValidatableTableRequirement

from twophase.errors import PreflightError, TargetChangedError
from twophase.sinks.common.lake.table import HIDDEN, LakeTable, create_area, is_moved
from twophase.sinks.common.staging.names import Owner, PieceName, file_name
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.proofs import Proofs, fence_key, proof_key
from twophase.sinks.iceberg.records import Manifest, StagedFile

DATA = "data"
"""The folder in a table's that holds its data files."""

_SUFFIX = ".parquet"


@dataclass(frozen=True)
class Look:
    """The table as it was at one time.

    Attributes:
        loaded: its metadata.
        proofs: those of the job and sink, which are in it.
    """

    loaded: Table
    proofs: Proofs


class DriverTable(LakeTable[Look, Manifest]):
    """One table.

    Args:
        owner: job and sink.
        catalog: finds the table.
        loaded: the table as it was found.
        location: its folder.
        branch: the branch that rows go to.
    """

    def __init__(
        self, owner: Owner, catalog: Catalog, loaded: Table, location: Path, branch: str
    ) -> None:
        self.owner = owner
        self.catalog = catalog
        self.branch = branch
        self.location = location
        self._location = loaded.location()
        self.uuid = loaded.metadata.table_uuid
        self.area = StagingArea(location / HIDDEN / str(self.uuid), owner)

    @property
    def target(self) -> str:
        """The target's identity (I10): the table's id, which a table created again does not have,
        its folder, where pieces wait, and the branch, unless it is main.
        """
        branch = "" if self.branch == MAIN_BRANCH else f"@{self.branch}"
        return f"iceberg:{self.uuid}:{self.location}{branch}"

    @property
    def data(self) -> Path:
        """The folder of committed data files."""
        return self.location / DATA

    def load(self) -> Table:
        """Return the table as it is now.

        Raises:
            TargetChangedError: it is gone, or another has its name.
        """
        found = self.catalog.load()
        if found.metadata.table_uuid != self.uuid:
            raise TargetChangedError(
                f"The table {'.'.join(found.name())} is not the one that the job started with: "
                f"its id was {self.uuid} and is {found.metadata.table_uuid}. It was dropped and "
                "created again.",
                remedy="restore the table that the job had, then start the job again.",
            )
        if found.location() != self._location:
            raise TargetChangedError(
                f"The table {'.'.join(found.name())} was at {self._location}, where pieces wait, "
                f"and is at {found.location()}.",
                remedy="set its location back, then start the job again.",
            )
        return found

    def look(self) -> Look:
        """See `LakeTable.look`."""
        loaded = self.load()
        return Look(loaded, self.proofs(loaded))

    def is_committed(self, name: PieceName, look: Look) -> bool:
        """See `LakeTable.is_committed`: it is named, or stood for by the mark.

        The mark stands for a piece only if a commit has moved its files: superseded task attempts
        have the checkpoint in common with it.
        """
        proof = look.proofs.lineage(name.lineage)
        if proof.names(name):
            return True
        found = self.manifest(name)
        return proof.mark >= name.checkpoint and found is not None and is_moved(*found)

    def decode(self, data: bytes, where: str) -> Manifest:
        """See `LakeTable.decode`."""
        return Manifest.decode(data, where)

    def final_path(self, manifest: Manifest, file: StagedFile) -> Path:
        """See `LakeTable.final_path`. All files are in one folder, whatever their partition: the
        name of a partition's folder could be too long, which phase 1 would have to know.
        """
        return self.data / file_name(manifest.transaction, manifest.subtask, file.number, _SUFFIX)

    def proofs(self, loaded: Table) -> Proofs:
        """Return the proofs of this job and sink."""
        return Proofs(self.owner, loaded.metadata.properties)

    def unchanged(self) -> ValidatableTableRequirement:
        """Return what a new branch requires: it is this table."""
        return AssertTableUUID(uuid=self.uuid)

    def as_read(
        self, loaded: Table, lineages: Iterable[str] = ()
    ) -> list[ValidatableTableRequirement]:
        """Return what the commit of rows requires: fence, proofs and the branch are as they were
        read. No other table has this fence.

        Args:
            loaded: as it was read.
            lineages: those that have no proof yet.
        """
        keys = {
            fence_key(self.owner),
            *self.proofs(loaded).keys(),
            *(proof_key(self.owner, lineage) for lineage in lineages),
        }
        return [*self.catalog.as_read(loaded, self.branch, keys)]

    def create_area(self) -> None:
        """Create the staging area and the folder of data files if they are missing.

        Raises:
            PreflightError: a file cannot be moved from the one to the other.
        """
        self.data.mkdir(exist_ok=True)
        if self.data.is_symlink() or self.data.stat().st_dev != self.location.stat().st_dev:
            raise PreflightError(
                f"{self.data} is a link, or on another file system than {self.location}: files "
                "cannot be moved into it in one step.",
                remedy="replace it with a plain folder.",
            )
        if not self.area.exists():
            create_area(self.area)

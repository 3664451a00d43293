"""A table whose data files no reader sees before its metadata names them, as the driver has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging.aborted import folders_of
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.manifest import FILE, PieceManifest
from twophase.sinks.common.staging.names import Owner, PieceName
from twophase.sinks.common.staging.preflight import create_staging_area
from twophase.sinks.common.staging.staging_area import StagingArea

LookT = TypeVar("LookT")
ManifestT = TypeVar("ManifestT", bound=PieceManifest)

HIDDEN = "_twophase"
"""The folder in a table's that holds the staging areas of its jobs and sinks, by the table's id."""

MOVED = "~moved"
"""The suffix of a file that a commit has linked to its final name, in the folder of its piece."""


class LakeTable(ABC, Generic[LookT, ManifestT]):
    """One table of one job and sink.

    Attributes:
        owner: job and sink.
        area: its staging area, in the table's folder.
    """

    owner: Owner
    area: StagingArea

    @property
    @abstractmethod
    def target(self) -> str:
        """The target's identity (I10)."""

    @abstractmethod
    def look(self) -> LookT:
        """Return the table as it is now, with its proofs.

        Raises:
            TargetChangedError: it is gone, or another has its name.
        """

    @abstractmethod
    def is_committed(self, name: PieceName, look: LookT) -> bool:
        """Return whether there is proof of a piece."""

    @abstractmethod
    def decode(self, data: bytes, where: str) -> ManifestT:
        """Return the manifest in some bytes; see `PieceManifest.decode`."""

    @abstractmethod
    def final_path(self, manifest: ManifestT, file: Any) -> Path:
        """Return the path of a committed data file.

        Args:
            manifest: of its piece.
            file: one of its files.
        """

    def manifest(self, name: PieceName) -> tuple[ManifestT, Path] | None:
        """Return the manifest of a piece, staged or hidden, and its folder."""
        for folder in folders_of(self.area.stage(), name):
            with suppress(FileNotFoundError, DamagedRecordError):
                path = folder / FILE
                return self.decode(path.read_bytes(), str(path)), folder
        return None


def create_area(area: StagingArea) -> None:
    """Create a staging area in the hidden folder of a table, for the job's user only.

    Raises:
        PreflightError: the file system has no rename that replaces nothing, or it cannot be
            created.
    """
    hidden = area.root.parent
    for folder in (hidden, area.root):
        folder.mkdir(mode=0o700, exist_ok=True)
    sync(hidden.parent, hidden)
    create_staging_area(area.root, area.owner)


def is_moved(manifest: PieceManifest, folder: Path) -> bool:
    """Return whether a commit has taken a file of a piece out of its folder."""
    return any(not (folder / str(file.number)).exists() for file in manifest.files)


def kept_link(folder: Path, number: int) -> Path:
    """Return the name that a moved file keeps in the folder of its piece, until the commit ends."""
    return folder / f"{number}{MOVED}"

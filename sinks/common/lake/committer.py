"""Phase 2: all pieces of a checkpoint become visible in one step, with their proof (I4).

    1. for each piece       proven: committed; or its manifest, or nothing: lost
       the others           it is this table, with the proof of the predecessor, and it has what was
                            committed before; without that nothing is moved
    2. move the files       from the staging area into the table's folder, where nothing names them:
                            they are as young as the commit, and the staging area keeps a link to
                            each, as clean-ups of others delete old files that nothing names
    3. one commit           metadata that names them, and their proof; it fails if somebody else has
                            committed since 1
    4. read it back         OK is not believed
    5. finish               take the pieces out of `staged`, and what they keep

A commit that somebody was faster than is tried again from 1. One whose outcome is unknown is left
to the next call, which finds the proof or does all of it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import (
    CommitRequest,
    Predecessor,
    another_target,
    predecessor_missing,
)
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.common.lake.table import LakeTable, LookT, ManifestT, is_moved, kept_link
from twophase.sinks.common.staging.aborted import restage
from twophase.sinks.common.staging.disk import digest, not_overwritten, rename_new, sync
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import STAGED

_TRIES = 10
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system without hard links says."""


@dataclass(frozen=True)
class StagedPiece(Generic[ManifestT]):
    """One piece that is not committed.

    Attributes:
        name: its name.
        folder: where it is staged.
        manifest: its manifest.
    """

    name: PieceName
    folder: Path
    manifest: ManifestT


class LakeCommitter(ABC, Generic[LookT, ManifestT]):
    """Commits pieces.

    Args:
        table: the table they go to.
    """

    conflict: ClassVar[type[Exception]]
    """Raised by step 3 if somebody else was faster; nothing was committed."""

    def __init__(self, table: LakeTable[LookT, ManifestT]) -> None:
        self._lake = table
        self._made: set[PieceName] = set()
        self._moved: dict[Path, tuple[int, ...]] = {}
        """What is known to be as it was pre-committed, by its version: after a lost race it is not
        read again, which would lose the next one too.
        """

    @abstractmethod
    def _proven(self, name: PieceName, look: LookT) -> AlreadyCommitted | Committed | None:
        """Return what a look at the table proves of a piece by name; None for nothing."""

    @abstractmethod
    def _settled(
        self, piece: StagedPiece[ManifestT], look: LookT
    ) -> AlreadyCommitted | Committed | None:
        """Return what is proven of a piece in `staged`, beyond its name; None for nothing."""

    @abstractmethod
    def _mark(self, lineage: str, look: LookT) -> int:
        """Return the high-water mark of a lineage; -1 if there is none."""

    @abstractmethod
    def _has(self, checkpoint: Predecessor, look: LookT) -> bool:
        """Return whether there is proof of a checkpoint."""

    @abstractmethod
    def _check_whole(self, committable: Committable, look: LookT) -> None:
        """Check that the table has what was committed before.

        Raises:
            TargetChangedError: it does not.
        """

    @abstractmethod
    def _together(self, piece: StagedPiece[ManifestT]) -> Hashable:
        """Return what the pieces of one commit have in common."""

    @abstractmethod
    def _append(self, pieces: Sequence[StagedPiece[ManifestT]], look: LookT) -> None:
        """Steps 2 and 3.

        Raises:
            OSError: whether they are committed is unknown.
        """

    @abstractmethod
    def _finish(self, stage: Path, names: Sequence[PieceName]) -> None:
        """Step 5."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        failpoint("C12")
        reason = ""
        for _ in range(_TRIES):
            stage = self._lake.area.stage()
            try:
                outcomes = self._try(requests, stage)
            except self.conflict as error:
                reason = brief(error)
                continue
            except OSError as error:
                reason = brief(error)
                break
            if outcomes is None:
                continue
            if any(isinstance(outcome, Lost) for outcome in outcomes) and not stage.exists():
                reason = f"{stage} is gone: the fence was raised"
                continue
            failpoint("C15")
            return outcomes
        return self._later(requests, reason)

    def _later(self, requests: Sequence[CommitRequest], reason: str) -> Sequence[CommitOutcome]:
        look = self._lake.look()
        names = [name_of(request.committable) for request in requests]
        return [self._proven(name, look) or RetryLater(reason) for name in names]

    def _try(
        self, requests: Sequence[CommitRequest], stage: Path
    ) -> Sequence[CommitOutcome] | None:
        """Do steps 1 to 3, or 4 and 5 if nothing is left to commit; None if it has to be called
        again.
        """
        look = self._lake.look()  # first: an abort hides a piece, then makes commits in flight fail
        found = [self._find(request.committable, look, stage) for request in requests]
        for request, piece in zip(requests, found, strict=True):
            if not isinstance(piece, AlreadyCommitted | Committed):
                self._check_target(request, look)
        outcomes = [
            (self._missing(piece) or piece) if isinstance(piece, StagedPiece) else piece
            for piece in found
        ]
        if whole := [piece for piece in outcomes if isinstance(piece, StagedPiece)]:
            one = self._together(whole[0])
            self._append([piece for piece in whole if self._together(piece) == one], look)
            return None
        failpoint("C14")
        done = [
            name_of(request.committable)
            for request, outcome in zip(requests, outcomes, strict=True)
            if not isinstance(outcome, Lost)
        ]
        self._finish(stage, done)
        self._moved.clear()
        return [outcome for outcome in outcomes if not isinstance(outcome, StagedPiece)]

    def _find(
        self, committable: Committable, look: LookT, stage: Path
    ) -> StagedPiece[ManifestT] | AlreadyCommitted | Committed | Lost:
        """Step 1."""
        name = name_of(committable)
        if (proven := self._proven(name, look)) is not None:
            return proven
        folder = stage / STAGED / str(name)
        data = _read_manifest(stage, name)
        mark = self._mark(name.lineage, look)
        if data is None:
            if mark >= name.checkpoint:
                return AlreadyCommitted("high-water mark")
            return Lost(
                f"piece {name} is neither staged nor named by the table's proofs, and the "
                f"high-water mark of its lineage is {mark}"
            )
        if hashlib.sha256(data).hexdigest() != committable.handle["manifest_sha256"]:
            return Lost(
                f"{folder / FILE} is not the manifest of the checkpoint: its SHA-256 differs"
            )
        try:
            manifest = self._lake.decode(data, str(folder / FILE))
        except DamagedRecordError as error:  # damaged before its digest was taken
            return Lost(f"{folder / FILE}: {error}")
        if mark >= name.checkpoint and is_moved(manifest, folder):
            return AlreadyCommitted("high-water mark")
        piece = StagedPiece(name, folder, manifest)
        return self._settled(piece, look) or piece

    def _check_target(self, request: CommitRequest, look: LookT) -> None:
        """Check that this is the table of a piece without proof, and has what came before."""
        committable, before = request.committable, request.predecessor
        if committable.target != self._lake.target:
            raise another_target(committable, self._lake.target)
        if before is not None and not self._has(before, look):
            raise predecessor_missing(request, self._lake.target)
        self._check_whole(committable, look)

    def _missing(self, piece: StagedPiece[ManifestT]) -> Lost | None:
        """Return the first file of a piece that is missing, truncated or changed."""
        for file in piece.manifest.files:
            source, final = piece.folder / str(file.number), self._final(piece, file)
            kept = kept_link(piece.folder, file.number)
            ways = (source, kept, final)  # the way of a file that another driver moves meanwhile
            found = next((path for path in ways if _size(path) is not None), None)
            if found is None:
                return Lost(f"{source} is gone, and {final.name} is not in {final.parent}")
            if (size := _size(found)) != file.size:
                return Lost(
                    f"{found} has {size} bytes, not the {file.size} that were pre-committed"
                )
            if found == kept and not final.exists() and digest(kept) != file.sha256:
                return Lost(f"{final} is gone, and {kept}, which was the same file, was changed")
        return None

    def _move(self, pieces: Sequence[StagedPiece[ManifestT]]) -> None:
        """Step 2. The folders exist, and are synced by the caller."""
        for piece in pieces:
            for file in piece.manifest.files:
                source = piece.folder / str(file.number)
                with suppress(FileNotFoundError):  # an earlier commit has done so
                    source.replace(kept_link(piece.folder, file.number))
                    source.unlink(missing_ok=True)  # it stays if it is the same file, moved back
        sync(*(piece.folder for piece in pieces))  # it is moved, before the table has any of it
        for count, piece in enumerate(pieces):
            if count:
                failpoint("C13")
            for file in piece.manifest.files:
                self._move_file(piece, file)

    def _move_file(self, piece: StagedPiece[ManifestT], file: Any) -> None:
        kept, final = kept_link(piece.folder, file.number), self._final(piece, file)
        if not final.exists():
            os.utime(kept)
            self._moved[final] = _version(kept)
            with suppress(FileExistsError):  # another driver was faster
                _link(kept, final)
                return
        if self._moved.get(final) != _version(final) and digest(final) != file.sha256:
            raise not_overwritten(final)
        os.utime(final)
        self._moved[final] = _version(final)

    def _final(self, piece: StagedPiece[ManifestT], file: Any) -> Path:
        return self._lake.final_path(piece.manifest, file)


def name_of(committable: Committable) -> PieceName:
    """Return the name of a piece."""
    return PieceName.of(committable.transaction, committable.subtask)


def altered(
    committable: str, target: str, changes: Sequence[str], rows: int, undo: str
) -> StopJobError:
    """Return the error of a decided piece that no longer fits the table's columns.

    Args:
        committable: its transaction.
        target: the table.
        changes: what somebody has changed.
        rows: how many rows wait.
        undo: how to undo it.
    """
    return StopJobError(
        f"{committable} is decided and cannot be committed to {target}: the table was altered "
        f"since it was written: {'; '.join(changes)}. {rows} rows wait in the staging area.",
        remedy=f"undo the change ({undo}), then start the job again: it commits them.",
    )


def _read_manifest(stage: Path, name: PieceName) -> bytes | None:
    """Return the manifest of a staged piece; another driver's abort may have hidden it."""
    manifest = stage / STAGED / str(name) / FILE
    is_hidden = True
    while is_hidden:
        with suppress(FileNotFoundError):
            return manifest.read_bytes()
        is_hidden = restage(stage, name)
    return manifest.read_bytes() if manifest.exists() else None  # staged again in between


def _link(kept: Path, final: Path) -> None:
    """Give a file its final name too; where the file system has no links, that name alone."""
    try:
        final.hardlink_to(kept)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_new(kept, final)


def _version(path: Path) -> tuple[int, ...]:
    """Return what tells a file from another, and from itself before it was written to."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _size(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None

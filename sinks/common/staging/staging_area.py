"""The staging area: the hidden folder of a job and sink, and its fence (invariant I7).

The fence is the name of a folder, and everything that is not yet committed is below it. Raising the
fence renames that folder: one atomic step, after which every path that an older writer knows leads
nowhere, whatever process it is in. No check precedes a write, so no check can be overtaken (hazard
rule HD9); no lock is held, so a paused process holds none.

    1. a writer looks up the fence; closed for its attempt: it writes nothing
    2. it writes its data and, last, its manifest, by paths below that fence
    3. raised in between: the next path fails, which tells the writer; the scan that follows
       finds what it wrote

If two drivers raise it at once, one of them renames, and the other finds no such
folder and looks again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from twophase.contract.fencing import attempt_is_closed, driver_is_fenced
from twophase.errors import DeclinedError, StopJobError, TargetChangedError, TargetUnreachableError
from twophase.ids import Attempt
from twophase.internals.record import HEAD_BYTES, newer_version
from twophase.sinks.common.staging.disk import rename_new, sync
from twophase.sinks.common.staging.manifest import FILE, FORMAT
from twophase.sinks.common.staging.names import (
    Owner,
    PieceName,
    fence_name,
    mark_name,
    parse_fence,
    parse_mark,
)

STAGED = "staged"
DONE = "done"
ABORTED = "aborted"
REWOUND = "rewound"
MARKS = "marks"

_TRIES = 100
_NOBODY = Attempt(0, 0)


@dataclass(frozen=True)
class StagingArea:
    """The staging area of one job and sink.

    Attributes:
        root: the table's folder.
        owner: job and sink.
    """

    root: Path
    owner: Owner

    @property
    def path(self) -> Path:
        """The hidden folder."""
        return self.root / self.owner.folder

    def exists(self) -> bool:
        """Return whether the hidden folder is there."""
        return self.path.exists()

    def create(self) -> None:
        """Create it in one step, with a fence that closes nothing; never a second one."""
        new = self.root / self.owner.new_folder
        stage = new / fence_name(_NOBODY)
        for _ in range(_TRIES):
            if self.path.exists():
                shutil.rmtree(new, ignore_errors=True)
                sync(self.root)
                return
            with suppress(FileNotFoundError, FileExistsError):  # another driver has just created it
                for folder in (new, stage, stage / STAGED, stage / DONE, stage / MARKS):
                    folder.mkdir(mode=0o700, exist_ok=True)
                sync(stage, new)
                rename_new(new, self.path)
        raise TargetUnreachableError(
            f"Could not create {self.path} in {_TRIES} tries: other drivers are creating it too."
        )

    def fence(self) -> Attempt:
        """Return the fence: attempts below it may not pre-commit.

        Raises:
            TargetChangedError: the hidden folder is gone.
        """
        for _ in range(_TRIES):
            try:
                names = os.listdir(self.path)
            except FileNotFoundError:
                raise self.missing() from None
            found = [attempt for name in names if (attempt := parse_fence(name)) is not None]
            if len(found) == 1:
                return found[0]
        raise StopJobError(
            f"{self.path} has {len(found)} fences instead of one. Someone changed it by hand.",
            remedy="restore this folder from a backup; do not delete it: "
            "all pre-committed rows are in it.",
        )

    def missing(self) -> TargetChangedError:
        """Return the error for a staging area that no longer exists."""
        return TargetChangedError(
            f"{self.path} is gone, with all pre-committed rows of this table: the table was "
            "dropped, its disk is not mounted, or someone deleted the folder.",
            remedy="mount the disk, or restore the folder from a backup, then start the job "
            "again: it commits decided checkpoints.",
        )

    def stage(self) -> Path:
        """Return the folder of the current fence."""
        return self.path / fence_name(self.fence())

    def staged(self, name: PieceName) -> Path:
        """Return the folder in which a piece is staged."""
        return self.stage() / STAGED / str(name)

    def check_open(self, attempt: Attempt) -> Path:
        """Return the stage, for a writer.

        Raises:
            FencedError: the attempt is closed.
            DeclinedError: the hidden folder is gone.
        """
        try:
            fence = self.fence()
        except TargetChangedError as error:
            raise DeclinedError(
                f"{self.path} is gone: someone deleted it, or the table."
            ) from error
        if attempt.is_closed_by(fence):
            raise attempt_is_closed(self.owner.job, self.owner.sink, attempt, str(self.root), fence)
        return self.path / fence_name(fence)

    def raise_fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        for _ in range(_TRIES):
            fence = self.fence()
            if fence.generation > attempt.generation:
                raise driver_is_fenced(self.owner.job, self.owner.sink, fence, attempt)
            with suppress(FileNotFoundError):  # another driver has raised it in between
                if fence < attempt:
                    rename_new(self.path / fence_name(fence), self.path / fence_name(attempt))
                # even if another driver has raised it: it may have died before its own sync
                sync(self.path)
                return
        raise TargetUnreachableError(
            f"The fence in {self.path} could not be raised to {attempt} in {_TRIES} tries: "
            "other drivers keep raising it.",
            remedy="run only one driver.",
        )

    def pieces(self, state: str) -> list[PieceName]:
        """Return the pieces that are `STAGED` or `DONE`, oldest first, by names of our format."""
        return pieces_in(self.stage() / state)

    def in_doubt(self) -> list[PieceName]:
        """Return the pieces that are staged, or hidden by an abort that died."""
        stage = self.stage()
        staged = entries(stage / STAGED)  # first: a piece moves from here to the other
        aside = entries(stage / ABORTED) if (stage / ABORTED).exists() else []
        return _pieces({*staged, *map(piece, aside)})

    def marks(self) -> dict[str, int]:
        """Return the high-water mark of each lineage that has one."""
        return highest_marks(self.stage())

    def raise_mark(self, lineage: str, checkpoint: int) -> None:
        """Raise a lineage's mark up to this checkpoint, then remove what it replaces (H50).

        Proofs that a newer version of twophase has written stay.
        """
        stage = self.stage()
        marks = stage / MARKS
        pieces = [piece for piece in self.pieces(DONE) if piece.lineage == lineage]
        if not pieces:  # they go last, so nothing is left to do
            return
        proven = max((one.checkpoint for one in pieces if one.checkpoint <= checkpoint), default=-1)
        highest = self.marks().get(lineage, -1)
        if highest < proven:
            (marks / mark_name(lineage, proven)).touch(mode=0o600)  # empty, so never torn
            highest = proven
        sync(marks)  # even if it was there: its driver may have died before its own sync
        for name in entries(marks):
            mark = parse_mark(name)
            if mark is not None and mark[0] == lineage and mark[1] < highest:
                (marks / name).unlink(missing_ok=True)
        for piece in pieces:
            if piece.checkpoint <= highest and not _is_newer(stage / DONE / str(piece)):
                remove(stage / DONE / str(piece))

    def has(self, lineage: str, checkpoint: int) -> bool:
        """Return whether a piece or the mark proves that a checkpoint is committed."""
        if self.marks().get(lineage, -1) >= checkpoint:
            return True
        return any(
            (piece.lineage, piece.checkpoint) == (lineage, checkpoint)
            for piece in self.pieces(DONE)
        )

    def committed(self) -> dict[str, int]:
        """Return, for each lineage, the highest checkpoint that has a committed piece."""
        highest = self.marks()
        for piece in self.pieces(DONE):
            highest[piece.lineage] = max(highest.get(piece.lineage, -1), piece.checkpoint)
        return highest

    def committed_beside(self) -> dict[str, int]:
        """Return `committed` of an area of somebody else, who may raise its fence meanwhile.

        Nothing if it is no whole area, or belongs to another version of twophase.
        """
        for _ in range(_TRIES):
            with suppress(TargetUnreachableError):
                try:
                    return self.committed()
                except StopJobError:  # neither its folder nor its fence is what we know
                    return {}
        return {}

    def others(self) -> list[StagingArea]:
        """Return the areas of other jobs and sinks in the same table."""
        owners = [Owner.parse(name) for name in sorted(os.listdir(self.root))]
        return [replace(self, owner=one) for one in owners if one and one != self.owner]


def piece(entry: str) -> str:
    """Return the piece's name that an entry of `ABORTED` begins with (see `AbortedPieces`)."""
    return entry.partition("~")[0]


def remove(folder: Path) -> None:
    """Remove a folder and its content, in several tries: a late writer may still add files.

    Raises:
        OSError: it still exists.
    """
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def _is_newer(piece: Path) -> bool:
    with suppress(FileNotFoundError), (piece / FILE).open("rb") as file:
        return newer_version(FORMAT, file.read(HEAD_BYTES)) is not None
    return False


def entries(folder: Path) -> list[str]:
    """Return the names in a folder below the fence.

    Raises:
        TargetUnreachableError: it is gone.
    """
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError as error:
        raise TargetUnreachableError(
            f"{folder} is gone: another driver has just raised the fence, or someone deleted it.",
            remedy="start the job again: it looks again. If that is still gone, restore the hidden "
            "folder from a backup; or create this one again (mkdir), if only a job that deletes "
            "empty folders can have removed it.",
        ) from error


def pieces_in(folder: Path) -> list[PieceName]:
    """Return the pieces in a folder below the fence, oldest first, by names of our format."""
    return _pieces(entries(folder))


def _pieces(names: Iterable[str]) -> list[PieceName]:
    return sorted(piece for name in names if (piece := PieceName.parse(name)) is not None)


def highest_marks(stage: Path) -> dict[str, int]:
    """Return the high-water mark of each lineage that has one, below a fence."""
    highest: dict[str, int] = {}
    for name in entries(stage / MARKS):
        mark = parse_mark(name)
        if mark is not None:
            highest[mark[0]] = max(highest.get(mark[0], -1), mark[1])
    return highest

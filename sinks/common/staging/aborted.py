"""Pieces that an abort has hidden: no commit finds them unless it restages them.

A driver with another folder may have decided a piece that is aborted here, and may be about to move
its files into the table. Neither driver can lock the other out, so the rename of one folder decides
between them, which only one of them can do:

    1. hide      `staged/<piece>` -> `aborted/<piece>~<id>`, a name that no other abort uses:
                 no path that the commit knows leads to the files any more
    2. check     what the commit has moved into the table before is there by now
    3. claim     `aborted/<piece>~<id>` -> the same name with `~claimed`, and then delete it
       restage   `aborted/<piece>~<id>` -> `staged/<piece>`, by a commit that misses its piece,
                 or by an abort that was refused or has failed

A piece that a commit restaged after step 2 cannot be claimed: the abort begins again. If the driver
dies before step 3, a commit restages the piece, and the next abort hides it again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from twophase.errors import TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.staging.disk import rename_new, sync
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import ABORTED, STAGED, StagingArea, piece, remove

_CLAIMED = "~claimed"
_TRIES = 100


class AbortedPieces:
    """Pieces that one abort hides.

    Args:
        stage: the folder of the fence.
    """

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._folders: list[Path] = []

    def hide(self, name: PieceName) -> None:
        """Hide a piece if it is staged, or hidden by another abort."""
        (self._stage / ABORTED).mkdir(mode=0o700, exist_ok=True)
        for folder in folders_of(self._stage, name):
            own = _new_name(self._stage, str(name))
            with suppress(FileNotFoundError):  # committed, aborted or restaged in between
                rename_new(folder, own)
                self._folders.append(own)

    def claim(self) -> bool:
        """Claim the pieces for deletion; False if a commit or another abort has taken one."""
        for number, folder in enumerate(self._folders):
            claimed = folder.with_name(folder.name + _CLAIMED)
            try:
                rename_new(folder, claimed)
            except FileNotFoundError:
                return False
            self._folders[number] = claimed
        return True

    def restage(self) -> None:
        """Restage all pieces that are still hidden, even if one of them fails.

        Raises:
            OSError: the first failure.
        """
        errors: list[OSError] = []
        while self._folders:
            try:
                _restage_folder(self._stage, self._folders.pop())
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def delete(self) -> None:
        """Delete the claimed pieces."""
        for number, folder in enumerate(self._folders):
            if number:
                failpoint("C20")
            remove(folder)


def folders_of(stage: Path, name: PieceName) -> Sequence[Path]:
    """Return the folders that an uncommitted piece may be in: staged, then hidden.

    It is hidden in several if a driver died while it restaged the piece.
    """
    return stage / STAGED / str(name), *_hidden(stage, name)


def restage(stage: Path, name: PieceName) -> bool:
    """Restage a piece that an abort has hidden and not claimed; True if there was one."""
    found = [folder for folder in _hidden(stage, name) if not folder.name.endswith(_CLAIMED)]
    for folder in found:
        _restage_folder(stage, folder)
    return bool(found)


def _hidden(stage: Path, name: PieceName) -> Sequence[Path]:
    folder = stage / ABORTED
    with suppress(FileNotFoundError):
        return [folder / entry for entry in sorted(os.listdir(folder)) if piece(entry) == str(name)]
    return ()


def _new_name(stage: Path, name: str) -> Path:
    return stage / ABORTED / f"{name}~{uuid.uuid4().hex}"


def _restage_folder(stage: Path, folder: Path) -> None:
    """Rename a folder to where it was staged, or move its files into the folder that is there."""
    name = piece(folder.name)
    staged = stage / STAGED / name
    with suppress(FileNotFoundError):  # another driver was faster
        try:
            rename_new(folder, staged)
        except FileExistsError:
            own = _new_name(stage, name)  # no other driver can claim it meanwhile
            rename_new(folder, own)
            for entry in sorted(os.listdir(own), key=FILE.__eq__):  # a commit begins with FILE
                with suppress(FileExistsError):
                    rename_new(own / entry, staged / entry)
            remove(own)


def abort_all(stage: Path, abort_once: Callable[[], bool]) -> None:
    """Abort pieces, again and again while others take them.

    Args:
        stage: the folder of the fence.
        abort_once: aborts them; False if a commit or another abort took one meanwhile.

    Raises:
        TargetUnreachableError: the fence was raised, or others keep taking them.
    """
    try:
        for _ in range(_TRIES):
            if abort_once():
                sync(stage / STAGED)
                return
    except FileNotFoundError as error:
        raise TargetUnreachableError(
            f"{stage} is gone: another driver has just raised the fence, or someone deleted it.",
            remedy="start the job again: it looks again.",
        ) from error
    raise TargetUnreachableError(
        f"Pieces in {stage} could not be aborted in {_TRIES} tries: "
        "other drivers keep taking them.",
        remedy="run only one driver.",
    )


def has_manifest(area: StagingArea, name: PieceName) -> bool:
    """Return whether a piece has a manifest, whole or damaged: it was durable in pre-commit."""
    return any((folder / FILE).exists() for folder in folders_of(area.stage(), name))

"""Checks of the folder and its file system before the first row."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from twophase.errors import PreflightError
from twophase.internals.links import ways_to
from twophase.internals.volumes import advice, is_own_in_volume
from twophase.sinks.common.staging.disk import rename_new
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.staging_area import (
    DONE,
    STAGED,
    StagingArea,
    entries,
)


def check_folder(path: Path) -> None:
    """Check that the table's folder exists, that we may write it, and that only we may replace it.

    Raises:
        PreflightError: it is not.
    """
    if not path.is_dir():
        raise PreflightError(f"{path} is not a folder.", remedy="name a folder that exists.")
    check_owned(path)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise PreflightError(
            f"{path} cannot be written.",
            remedy="give the driver's account the right to write there.",
        )


def check_owned(path: Path) -> None:
    """Check that no other account may replace a folder or those above it, nor those above what a
    symbolic link on the way points to. It need not exist yet. A volume of a container has no other
    accounts (docs/decisions/0069).

    Raises:
        PreflightError: one is writable by everyone.
    """
    for way in ways_to(path):
        for folder in (way, *way.parents):
            mode = folder.stat().st_mode if folder.exists() else 0
            is_open = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
            if is_open and not is_own_in_volume(way, folder):
                raise PreflightError(
                    f"{folder} is writable by everyone: anyone could replace what is staged in "
                    f"{path}.",
                    remedy=advice(way, folder, "table"),
                )


def open_staging_area(root: Path, owner: Owner, *, writes: bool) -> StagingArea:
    """Return the staging area, and create it if rows will follow.

    Args:
        root: the table's folder.
        owner: job and sink.
        writes: whether rows will follow. A dry run, a repair or a fork's look at another job makes
            nothing in the table.

    Raises:
        PreflightError: as `create_staging_area`.
    """
    area = StagingArea(root, owner)
    return create_staging_area(root, owner) if writes or area.exists() else area


def create_staging_area(root: Path, owner: Owner) -> StagingArea:
    """Create the staging area; check that the file system renames without replacing (hazard H22).

    Args:
        root: the table's folder.
        owner: job and sink.

    Raises:
        PreflightError: it cannot, or the folder cannot be created.
        TargetUnreachableError: what is staged is gone.
    """
    area = StagingArea(root, owner)
    try:
        area.create()
        stage = area.stage()
        entries(stage / STAGED)  # says so if it is gone
        rename_new(stage / STAGED, stage / DONE)
        rename_new(stage / DONE, stage / STAGED)  # what is staged is not committed
    except FileExistsError:
        return area
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            raise PreflightError(
                f"The file system of {area.root} has no rename that never replaces a file "
                "(renameat2, RENAME_NOREPLACE).",
                remedy="use a local file system such as ext4, XFS or Btrfs.",
            ) from error
        raise PreflightError(
            f"Cannot create {area.path}: {error}.",
            remedy="give the driver's account the right to write there.",
        ) from error
    raise PreflightError(
        f"{stage / DONE} was missing.",
        remedy="restore the hidden folder from a backup; or create this one again (mkdir), if only "
        "a job that deletes empty folders can have removed it.",
    )

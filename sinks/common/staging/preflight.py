"""Checks before the first row: of the folder, the file system and the rows' columns."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from twophase.errors import ConfigError, PreflightError
from twophase.sinks.common.partition_names import folder_name
from twophase.sinks.common.staging import formats, rows
from twophase.sinks.common.staging.disk import rename_new
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.staging_area import DONE, STAGED, StagingArea


def local_path(text: str, option: str) -> Path:
    """Return the folder that an option names, with links resolved.

    Raises:
        ConfigError: it is on another storage or machine.
    """
    url = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", text, flags=re.DOTALL)
    scheme, host, path = url.groups() if url else ("file", "", text)
    is_here = scheme == "file" and host in (None, "", "localhost")
    if not is_here or not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"{option} {text!r} is no absolute path of a file system that is mounted here. "
            "Object stores and HDFS are refused: their rename is not atomic, "
            "or is not proven to be.",
            remedy="name a folder that the driver and all executors mount at the same place.",
        )
    return Path(path).resolve()


def check_inside(path: Path, root: Path) -> None:
    """Check that a table is in the folder that it is confined to.

    Raises:
        ConfigError: it is elsewhere.
    """
    if not path.is_relative_to(root):
        raise ConfigError(
            f"The table's folder {path} is not in {root}, where it is allowed to be.",
            remedy="correct path, or root.",
        )


def check_columns(schema: pa.Schema, kind: Format, partition_by: Sequence[str]) -> None:
    """Check that every column reads back unchanged, and that names differ in more than case.

    Raises:
        ConfigError: a column cannot; the message names it.
    """
    problems = [f"column {name!r} appears twice" for name in _duplicates(schema.names)]
    absent = [name for name in partition_by if name not in schema.names]
    problems += [f"partition column {name!r} is not in the rows" for name in absent]
    problems += [
        f"partition column {name!r} begins with {name[0]!r}: readers would skip its folders"
        for name in partition_by
        if name[:1] in ("_", ".")
    ]
    for field in schema:
        in_name = field.name in partition_by
        reason = rows.refusal(field.type) if in_name else formats.refusal(kind, field.type)
        problems += [f"column {field.name!r}: {reason}"] if reason else []
    if set(schema.names) <= {*partition_by}:
        problems.append("there is no column beside the partition columns, so files would be empty")
    if problems:
        raise ConfigError(
            f"The rows cannot be written as {kind.value}: {'; '.join(problems)}.",
            remedy="change the rows.",
        )
    for name in partition_by:
        folder_name(name, None)


def check_folder(path: Path) -> None:
    """Check that the table's folder exists, that we may write it, and that only we may replace it.

    Raises:
        PreflightError: it is not.
    """
    if not path.is_dir():
        raise PreflightError(f"{path} is no folder.", remedy="name a folder.")
    check_owned(path)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise PreflightError(
            f"{path} cannot be written.",
            remedy="give the driver's account the right to write there.",
        )


def check_owned(path: Path) -> None:
    """Check that nobody else may replace a folder or those above it. It need not exist yet.

    Raises:
        PreflightError: one is writable by everyone.
    """
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode if folder.exists() else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PreflightError(
                f"{folder} is writable by everyone: anyone could replace what is staged in {path}.",
                remedy=f"run: chmod o-w {folder}",
            )


def make_staging_area(area: StagingArea) -> None:
    """Create the staging area; check that the file system renames without replacing (hazard H22).

    Raises:
        PreflightError: it cannot, or the folder cannot be created.
    """
    try:
        area.make()
        stage = area.stage()
        rename_new(stage / STAGED, stage / DONE)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            raise PreflightError(
                f"The file system of {area.root} has no rename that never replaces a file "
                "(renameat2, RENAME_NOREPLACE).",
                remedy="use a local file system such as ext4, XFS or Btrfs.",
            ) from error
        raise PreflightError(
            f"{area.path} cannot be made: {error}.",
            remedy="give the driver's account the right to write there.",
        ) from error
    raise PreflightError(
        f"{stage / DONE} was missing.", remedy="restore the hidden folder from a backup."
    )


def _duplicates(names: Sequence[str]) -> list[str]:
    lower = [name.lower() for name in names]
    return sorted({name for name in lower if lower.count(name) > 1})

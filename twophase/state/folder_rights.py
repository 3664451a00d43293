"""Who may change what is decided: nobody but the account of the job."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from twophase.errors import ConfigError


def check_rights(path: Path) -> None:
    """Nobody else may write to the job's folder, or put another one in its place. It need not be there yet.

    With umask 002 every folder is its group's to write, and the group is the user's alone: that is no other. Folders above
    are their group's to administer, so only those that everybody may write to are refused.

    Raises:
        ConfigError: somebody else may.
    """
    for folder in (path, *path.parents):
        try:
            found = folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if found.st_mode & stat.S_IWOTH and (folder == path or not found.st_mode & stat.S_ISVTX):
            raise ConfigError(
                f"checkpointLocation {str(path)!r}: {folder} is writable by everyone: anyone could change what is decided.",
                remedy=f"run: chmod o-w {folder}",
            )
        if folder == path and found.st_mode & stat.S_IWGRP and (others := _others(found)):
            raise ConfigError(
                f"checkpointLocation {str(path)!r} is writable by its group, which has {', '.join(others[:3])}"
                f"{' and others' if len(others) > 3 else ''} in it: they could change what is decided.",
                remedy=f"run: chmod g-w {folder}",
            )


def _others(found: os.stat_result) -> list[str]:
    """Who is known to be in the group of a folder, beside its owner, this account and root."""
    try:
        named = {*grp.getgrgid(found.st_gid).gr_mem}
    except KeyError:  # a number without a name, as containers have: nobody is listed in it
        named = set()
    trusted = {0, os.geteuid(), found.st_uid}
    users = pwd.getpwall()
    trusted_names = {user.pw_name for user in users if user.pw_uid in trusted}
    return sorted((named | {user.pw_name for user in users if user.pw_gid == found.st_gid}) - trusted_names)

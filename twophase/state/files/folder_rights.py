"""Permissions of the job's folder: only the job's account may change decisions."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from twophase.errors import ConfigError
from twophase.internals.links import ways_to
from twophase.internals.volumes import advice, is_own_in_volume


def check_rights(path: Path, option: str) -> None:
    """Check that no other account can write to the job's folder or replace it, existing or not.

    Symbolic links are followed one by one: whoever can replace one can replace the folder.
    With umask 002 every folder is group-writable, but the group holds only the user: that is no
    other account. Parent folders are administered by their groups, so only world-writable
    ones are rejected; not a volume of a container, which has no other accounts
    (docs/decisions/0069).

    Raises:
        ConfigError: another account can.
    """
    for way in ways_to(path):
        _check_way(way, path, option)


def _check_way(way: Path, path: Path, option: str) -> None:
    """Check a folder and those above it on one of the ways to it."""
    for folder in (way, *way.parents):
        try:
            found = folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if found.st_mode & stat.S_IWOTH and (folder == way or not found.st_mode & stat.S_ISVTX):
            if is_own_in_volume(way, folder):
                continue
            raise ConfigError(
                f"{option} {str(path)!r}: {folder} is writable by everyone: any user could change "
                "decided checkpoints.",
                remedy=advice(way, folder, "job"),
            )
        if folder == way and found.st_mode & stat.S_IWGRP and (others := _others(found)):
            raise ConfigError(
                f"{option} {str(path)!r} is writable by its group, "
                f"whose members include {', '.join(others[:3])}"
                f"{' and others' if len(others) > 3 else ''}: they could change decided "
                "checkpoints.",
                remedy=f"run: chmod g-w {shlex.quote(str(folder))}",
            )


def check_owner(path: Path, option: str = "checkpointLocation") -> None:
    """Check that what root writes into a job's folder can be read by the account that runs the job.

    It is the one that the log belongs to; whoever may write to the folder itself says nothing. A
    file system may give all files to one account, whoever writes them: a new file tells.

    Raises:
        ConfigError: it could not: the job would never start again.
    """
    log = path / "log"
    if os.geteuid() != 0 or not log.is_dir():
        return
    owner = log.stat().st_uid
    if owner == 0:
        return
    try:
        with TemporaryFile(dir=path) as file:
            if os.fstat(file.fileno()).st_uid == owner:
                return
    except OSError:
        return  # it is not written to; whoever tries is told why
    name = _account(owner)
    raise ConfigError(
        f"{option} {str(path)!r}: the job runs as the account {name}, which could not read what "
        "root writes there.",
        remedy=f"run the same command as that account: sudo -u {shlex.quote(name)} ...; or, if "
        f"root runs the job from now on, run: chown -R root {shlex.quote(str(path))}",
    )


@contextmanager
def owner_named() -> Iterator[None]:
    """Name the account whose folder it is, where another one may not read in it: a job's folder is
    for its account alone.

    Raises:
        ConfigError: something in the context is denied to this account.
    """
    try:
        yield
    except PermissionError as error:
        if not isinstance(error.filename, str):
            raise
        denied = Path(error.filename).absolute()
        folder = next(one for one in (denied, *denied.parents) if _is_seen(one))
        number = folder.stat().st_uid
        if number == os.geteuid():
            raise  # its own account has closed it
        owner = _account(number)
        raise ConfigError(
            f"{denied} is closed to the account {_account(os.geteuid())}: {folder} belongs to the "
            f"account {owner}.",
            remedy=f"run the same command as that account: sudo -u {shlex.quote(owner)} ...",
        ) from error


def _is_seen(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True


def _account(number: int) -> str:
    """Return the name of an account."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container
        return f"#{number}"


def _others(found: os.stat_result) -> list[str]:
    """Return the known members of a folder's group, except its owner, this account and root."""
    try:
        named = {*grp.getgrgid(found.st_gid).gr_mem}
    except KeyError:  # a group id without a name, as in containers: it has no listed members
        named = set()
    trusted = {0, os.geteuid(), found.st_uid}
    users = pwd.getpwall()
    trusted_names = {user.pw_name for user in users if user.pw_uid in trusted}
    return sorted(
        (named | {user.pw_name for user in users if user.pw_gid == found.st_gid}) - trusted_names
    )

"""Volumes of a container: writable by everyone who is there, which is the job alone
(docs/decisions/0069).
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
"""One of these is in a container of Docker or Podman; only root could make one."""
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"


def is_volume(folder: Path) -> bool:
    """Return whether a folder is where something is mounted in this container."""
    in_container = _POD_VARIABLE in os.environ or any(map(os.path.exists, _CONTAINER_FILES))
    return in_container and folder.is_mount()


def is_own_in_volume(path: Path, folder: Path) -> bool:
    """Return whether a folder above a path is a volume, and the next one of the path ours, or not
    there yet.
    """
    if path == folder or not is_volume(folder):
        return False
    inside = folder / path.relative_to(folder).parts[0]
    try:
        found = inside.lstat()
    except FileNotFoundError:
        return True
    return found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)


def advice(path: Path, folder: Path, inside: str) -> str:
    """Return what to do about a folder that is writable by everyone.

    Args:
        path: what is to be kept from others.
        folder: it, or one above it.
        inside: the name of a folder that may take its place.
    """
    if path == folder and is_volume(folder):
        return f"use a folder in this volume instead of the volume itself: {path}/{inside}"
    return f"run: chmod o-w {shlex.quote(str(folder))}"

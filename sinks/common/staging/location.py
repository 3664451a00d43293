"""Checks of the folder that an option names, before anything looks into it."""

from __future__ import annotations

import re
from pathlib import Path

from twophase.errors import ConfigError


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
            f"{option} {text!r} is not an absolute path on a file system that is mounted here. "
            "Object stores and HDFS are refused: their rename is not atomic, "
            "or not proven to be.",
            remedy="name a folder that the driver and all executors mount at the same path.",
        )
    return Path(path).resolve()


def check_inside(path: Path, root: Path) -> None:
    """Check that a table is in the folder that it is confined to.

    Raises:
        ConfigError: it is elsewhere.
    """
    if not path.is_relative_to(root):
        raise ConfigError(
            f"The table's folder {path} is outside {root}, where it has to be.",
            remedy="correct path, or root.",
        )

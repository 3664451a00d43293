"""Looks up what packages offer under an entry point group."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from twophase.errors import ConfigError, PreflightError
from twophase.internals.user_code import RAISED, described


def offered(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without importing any."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(where: str, what: str, entry: EntryPoint, remedy: str) -> Any:
    """Import what an entry point names.

    Args:
        where: what asks for it, for the error.
        what: the kind of thing it is, likewise.
        entry: the entry point.
        remedy: of an error that has none of its own.

    Raises:
        ConfigError: it cannot be loaded, such as without its dependencies.
    """
    failed = f"{where}: the {what} {entry.name!r} cannot be loaded"
    try:
        return entry.load()
    except PreflightError as error:
        raise ConfigError(f"{failed}: {error.what}", remedy=error.remedy) from error
    except RAISED as error:
        raise ConfigError(f"{failed}: {described(error)}.", remedy=remedy) from error


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    return entry.dist.name if entry.dist else "twophase"

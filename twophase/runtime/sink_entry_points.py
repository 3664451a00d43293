"""Finds sinks through the entry point group `twophase.sinks`; nothing here depends on one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from twophase.errors import ConfigError, TwoPhaseError

GROUP = "twophase.sinks"


def sink_names() -> list[str]:
    """Return the names of all installed sinks, sorted, without importing any."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load_sink(where: str, name: str) -> Any:
    """Return the class of a sink.

    Args:
        where: what asks for it, for the error.
        name: the name of the entry point.

    Raises:
        ConfigError: there is no such sink, or its dependencies are not installed.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        raise ConfigError(
            f"{where}: unknown sink type {name!r}{f'; did you mean {near[0]!r}?' if near else '.'} "
            f"Known types: {', '.join(sorted(found)) or 'none'}.",
            remedy="correct it, install the package that provides it, "
            "or name your own class as module:Class.",
        )
    try:
        return found[name].load()
    except ImportError as error:
        raise ConfigError(
            f"{where}: the sink type {name!r} cannot be loaded: {error}.",
            remedy=f"run: {_install(found[name])}",
        ) from error


def make_sink(
    where: str, kind: Any, options: Mapping[str, Any], remedy: str = "correct the options."
) -> Any:
    """Make a sink of a class that the user has named; it is neither opened nor known to be a sink.

    Args:
        where: what asks for it, for the error.
        kind: the class.
        options: its arguments.
        remedy: of an error that has none of its own.

    Raises:
        ConfigError: the options are not right.
    """
    try:
        return kind(**options)
    except TwoPhaseError as error:
        raise ConfigError(f"{where}: {error.what}", remedy=error.remedy or remedy) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: {kind.__name__} does not take these options: {error}.", remedy=remedy
        ) from error


def _install(entry: EntryPoint) -> str:
    """Return the command that installs a sink: its extra has the name of its type."""
    package = entry.dist.name if entry.dist else "twophase"
    return f"pip install '{package}[{entry.name}]'"

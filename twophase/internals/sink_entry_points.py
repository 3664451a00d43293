"""Finds sinks through the entry point group `twophase.sinks`; nothing here depends on one."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from twophase.errors import ConfigError, TwoPhaseError
from twophase.internals.entry_points import load, offered, package_of
from twophase.internals.user_code import RAISED, described

GROUP = "twophase.sinks"


def sink_names() -> list[str]:
    """Return the names of all installed sinks, sorted, without importing any."""
    return sorted(offered(GROUP))


def load_sink(where: str, name: str) -> Any:
    """Return the class of a sink.

    Args:
        where: what asks for it, for the error.
        name: the name of the entry point.

    Raises:
        ConfigError: there is no such sink, or its dependencies are not installed.
    """
    found = offered(GROUP)
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        raise ConfigError(
            f"{where}: unknown sink type {name!r}{f'; did you mean {near[0]!r}?' if near else '.'} "
            f"Known types: {', '.join(sorted(found)) or 'none'}.",
            remedy="correct it, install the package that provides it, "
            "or name your own class as module:Class.",
        )
    # a sink's extra has the name of its type
    remedy = (
        f"run: {shlex.quote(sys.executable)} -m pip install '{package_of(found[name])}[{name}]'"
    )
    return load(where, "sink type", found[name], remedy)


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
            f"{where}: {_name(kind)} does not take these options: {error}.", remedy=remedy
        ) from error
    except RAISED as error:
        raise ConfigError(
            f"{where}: {_name(kind)} cannot be made of these options: {described(error)}.",
            remedy=remedy,
        ) from error


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", type(kind).__name__))

"""Finds sources through the entry point group `twophase.sources`; nothing here depends on one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from twophase.errors import ConfigError
from twophase.protocol.source import Source, UnknownSource
from twophase.runtime.entry_points import load, offered, package_of

GROUP = "twophase.sources"
_UNKNOWN = UnknownSource()


@cache
def installed_sources() -> Mapping[str, Source]:
    """Return every installed source by its format.

    Raises:
        ConfigError: one cannot be loaded, or is no source.
    """
    found: dict[str, Source] = {}
    for name, entry in sorted(offered(GROUP).items()):
        remedy = f"install what {package_of(entry)} needs for it, or uninstall that package."
        kind = load("twophase.sources", "source", entry, remedy)
        if not (isinstance(kind, type) and issubclass(kind, Source)):
            raise ConfigError(
                f"twophase.sources: {entry.value} is not a subclass of twophase.Source.",
                remedy=f"correct the entry point {name!r} of {package_of(entry)}.",
            )
        found[name] = kind()
    return found


def source_of(name: str) -> Source:
    """Return the source of a format; one that knows nothing if none is installed for it.

    Args:
        name: the format as Spark's plan shows it, such as "FileSource[/data/orders]".
    """
    return installed_sources().get(name.partition("[")[0], _UNKNOWN)


def owner_of(line: str) -> tuple[str, Source]:
    """Return the format and the source of an offset line; "" and one that knows nothing if none."""
    for name, source in installed_sources().items():
        if source.owns(line):
            return name, source
    return "", _UNKNOWN


def first_line(end: str | None) -> str | None:
    """Return the line at which a source began its first micro-batch.

    Args:
        end: the line at which that micro-batch ended, of any Spark source.

    Returns:
        None if the line does not say.
    """
    if end is None:
        return None
    _, source = owner_of(end)
    return source.first_line(end)

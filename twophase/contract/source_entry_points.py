"""Finds sources through the entry point group `twophase.sources`; nothing here depends on one.

A package that cannot be loaded stops only the jobs that name its source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint

from twophase.contract.source import Source, SourceLeg, UnknownSource
from twophase.errors import ConfigError, SourceLossError
from twophase.internals.entry_points import load, offered, package_of
from twophase.internals.redaction import shown

GROUP = "twophase.sources"
_BUILT_IN = "twophase."
_UNKNOWN = UnknownSource()

_log = logging.getLogger(__name__)


def installed_sources() -> Iterator[tuple[str, Source]]:
    """Yield the format and the source of each one that can be loaded, the built-in ones first."""
    for name in _entries():
        if (source := _usable(name)) is not None:
            yield name, source


def source_of(name: str) -> Source:
    """Return the source of a format; one that knows nothing if none is installed for it.

    Args:
        name: the format as Spark's plan shows it, such as "FileSource[/data/orders]".

    Raises:
        ConfigError: it cannot be loaded, or is no source.
    """
    kind = name.partition("[")[0]
    return _made(kind) if kind in _entries() else _UNKNOWN


def skips_existing(legs: Iterable[SourceLeg]) -> bool:
    """Return whether a source begins after the records that exist, or may."""
    return any(source_of(leg.name).skips_existing(leg.options) for leg in legs)


def owner_of(line: str) -> tuple[str, Source]:
    """Return the format and the source of an offset line; "" and one that knows nothing if none."""
    owners = (found for found in installed_sources() if found[1].owns(line))
    return next(owners, ("", _UNKNOWN))


def lag_of(positions: Iterable[tuple[str | None, str | None]]) -> int | None:
    """Return how many records wait in the sources of a job; None if none of them can tell.

    Args:
        positions: where the newest micro-batch ended in each source and its newest offset, as
            `Source.lag`; None if Spark does not report it.
    """
    known = []
    for end, latest in positions:
        if end is None or latest is None:
            continue
        name, source = owner_of(end)
        try:
            known.append(source.lag(end, latest))
        except Exception as error:  # noqa: BLE001 the other figures are known
            _log.debug("how much waits in %s is unknown: %s", name, shown(str(error)))
    found = [lag for lag in known if lag is not None]
    return sum(found) if found else None


def loss_of(condition: str, said: str) -> SourceLossError | None:
    """Return the loss of records that an error of Spark means to one of the sources; None if it
    means none. The arguments: see `Source.loss`.
    """
    for name, source in installed_sources():
        try:
            loss = source.loss(condition, said)
        except Exception as error:  # noqa: BLE001 the error of Spark is what counts
            why = f"{type(error).__name__}: {shown(str(error))}"
            _log.warning("source %s cannot tell what %s means: %s", name, condition, why)
            continue
        if loss is not None:
            return loss
    return None


@cache
def _entries() -> Mapping[str, EntryPoint]:
    """Return what is installed by its format, the built-in ones first, without importing any."""
    found = offered(GROUP).items()
    return dict(sorted(found, key=lambda item: (not item[1].value.startswith(_BUILT_IN), item[0])))


@cache
def _made(name: str) -> Source:
    entry = _entries()[name]
    remedy = f"install what {package_of(entry)} needs for it, or uninstall that package."
    kind = load("twophase.sources", "source", entry, remedy)
    if not (isinstance(kind, type) and issubclass(kind, Source)):
        raise ConfigError(
            f"twophase.sources: {entry.value} is not a subclass of twophase.Source.",
            remedy=f"correct the entry point {name!r} of {package_of(entry)}.",
        )
    try:
        return kind()
    except Exception as error:
        raise ConfigError(
            f"twophase.sources: the source {name!r} cannot be made: {error}.", remedy=remedy
        ) from error


@cache
def _usable(name: str) -> Source | None:
    """Return a source; None if it cannot be loaded, which is logged once."""
    try:
        return _made(name)
    except ConfigError as error:
        _log.warning("The source is left out: %s", error)
        return None


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

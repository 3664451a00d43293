"""Collects the mistakes of a job file, so that one run reports all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twophase.errors import ConfigError

T = TypeVar("T")


class Mistakes:
    """What is wrong with a job file.

    Args:
        where: the file's name.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._found: list[ConfigError] = []

    def note(self, check: Callable[[], T], where: str = "") -> T | None:
        """Return what a check returns; None if it has found a mistake, which is kept.

        Args:
            check: may raise a ConfigError.
            where: put before the message of one that does not name its place.
        """
        try:
            return check()
        except ConfigError as error:
            remedy = error.remedy or f"correct {self.where}; docs/cli.md lists every key."
            prefix = f"{where}: " if where else ""
            self._found.append(ConfigError(f"{prefix}{error.what}", remedy=remedy))
            return None

    def add(self, what: str, *, remedy: str) -> None:
        """Keep a mistake in a part of the file."""
        self._found.append(ConfigError(f"{self.where}: {what}", remedy=remedy))

    def check(self) -> None:
        """Raise what was found.

        Raises:
            ConfigError: the only mistake.
            ExceptionGroup: of all of them, if there are several.
        """
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ExceptionGroup(f"{self.where} has {len(self._found)} mistakes", self._found)

"""Shows progress while something is fetched: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

_PLAIN_INTERVAL_S = 5.0


class Progress(ABC):
    """Reports the progress of one step."""

    @abstractmethod
    def update(self, message: str) -> None:
        """Show what is being done right now."""


class _LiveProgress(Progress):
    def __init__(self, title: str, status: Status) -> None:
        self._title = title
        self._status = status

    def update(self, message: str) -> None:
        self._status.update(f"{self._title}: {message}")


class _PlainProgress(Progress):
    """Prints at most one line every few seconds, because a CI log keeps every line."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._last_s = time.monotonic()

    def update(self, message: str) -> None:
        if time.monotonic() - self._last_s >= _PLAIN_INTERVAL_S:
            self._last_s = time.monotonic()
            self._console.print(f"{self._title}: {message}", soft_wrap=True, highlight=False)


@contextmanager
def show_progress(title: str) -> Iterator[Progress]:
    """Show one step from start to end on standard error, with the time it took."""
    console = Console(stderr=True)
    begin_s = time.monotonic()
    if console.is_terminal:
        with console.status(f"{title} ...") as status:
            yield _LiveProgress(title, status)
    else:
        console.print(f"{title} ...", soft_wrap=True, highlight=False)
        yield _PlainProgress(title, console)
    console.print(
        f"{title}: done in {time.monotonic() - begin_s:.1f} s", soft_wrap=True, highlight=False
    )

"""Passes on what others print while a command runs: log records, and the lines of Spark."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO

import click

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Spark asks for it, nothing turns it off
_JAVA_GREETING = "WARNING: Using incubator modules: jdk.incubator.vector"
# Ivy's report of what it looks for: a hundred lines at a first start.
_IVY = re.compile(
    r":: |\t|\s*[-|]{2}|Ivy Default Cache set|The jars for the packages|downloading https?:|\S+ "
    r"added as a dependency|\s+\|"
)


@contextmanager
def log_lines(
    print_line: Callable[[str], None],
    *,
    verbose: bool,
    events_are_shown: bool,
    formatter: logging.Formatter | None = None,
) -> Iterator[None]:
    """Send log records to `print_line` inside the context.

    Args:
        print_line: called with each line.
        verbose: print all records of twophase, and warnings of others; otherwise warnings only.
        events_are_shown: a view already shows the job's events, so they are left out of the log.
        formatter: makes the lines; None for text.
    """
    root, ours, py4j = logging.getLogger(), logging.getLogger("twophase"), logging.getLogger("py4j")
    handler = _LineHandler(print_line)
    handler.setFormatter(formatter or logging.Formatter(_FORMAT))
    before = [(logger, logger.level) for logger in (root, ours, py4j)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(
        logging.DEBUG if verbose else logging.ERROR if events_are_shown else logging.WARNING
    )
    py4j.setLevel(logging.WARNING if verbose else logging.CRITICAL)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in before:
            logger.setLevel(level)


def print_to_stderr(line: str) -> None:
    """Print a line for commands without a view."""
    click.echo(line, err=True)


def log_to_stderr(*, verbose: bool) -> AbstractContextManager[None]:
    """Send log records to standard error inside the context, those of events too."""
    return log_lines(print_to_stderr, verbose=verbose, events_are_shown=False)


class _LineHandler(logging.Handler):
    def __init__(self, print_line: Callable[[str], None]) -> None:
        super().__init__()
        self._print_line = print_line

    def emit(self, record: logging.LogRecord) -> None:
        """Print each line of the record."""
        try:
            for line in self.format(record).splitlines():
                self._print_line(line)
        except Exception:  # noqa: BLE001 as logging.Handler wants it
            self.handleError(record)


class SparkOutput:
    """Receives what Spark prints.

    Args:
        print_line: called with each line, in a separate thread.

    Attributes:
        print_line: see above.
        fetching: whether packages are being fetched; Ivy's lines are held back.
        muted: whether everything is dropped, because Spark is being stopped and reports everything
            that it interrupts.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self.print_line = print_line
        self._kept: list[str] = []
        self.fetching = False
        self.muted = False

    def open(self) -> IO[bytes]:
        """Open a file for Spark to write to; its lines are passed on as long as Spark lives."""
        reading, writing = os.pipe()
        threading.Thread(
            target=self._pump, args=(reading,), name="twophase-spark-output", daemon=True
        ).start()
        return os.fdopen(writing, "wb", buffering=0)

    def print_kept(self) -> None:
        """Print the lines that were held back: Spark did not start, and they may say why."""
        self.fetching = False
        kept, self._kept = self._kept, []
        for line in kept:
            self.print_line(line)

    def _pump(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.rstrip()
                if not text or text == _JAVA_GREETING or self.muted:
                    continue
                if self.fetching and _IVY.match(text):
                    self._kept.append(text)
                else:
                    self.print_line(text)

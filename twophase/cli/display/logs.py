"""Routes log records to a line printer while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def log_lines(
    print_line: Callable[[str], None], *, verbose: bool, events_are_shown: bool
) -> Iterator[None]:
    """Send log records to `print_line` inside the context.

    Args:
        print_line: called with each line.
        verbose: print all records of twophase, and warnings of others; otherwise warnings only.
        events_are_shown: a view already shows the job's events, so they are left out of the log.
    """
    root, ours, py4j = logging.getLogger(), logging.getLogger("twophase"), logging.getLogger("py4j")
    handler = _LineHandler(print_line)
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


class _LineHandler(logging.Handler):
    def __init__(self, print_line: Callable[[str], None]) -> None:
        super().__init__()
        self._print_line = print_line
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Print each line of the record."""
        try:
            for line in self.format(record).splitlines():
                self._print_line(line)
        except Exception:  # noqa: BLE001 as logging.Handler wants it
            self.handleError(record)

"""`--log-format json`: one JSON object a line, for programs that collect logs.

{"at": "2026-11-21T10:55:17.250+00:00", "level": "INFO", "job": "orders", "message": ..., ...}
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from twophase.cli.display.console import JobConsole, parts_of, traceback_of
from twophase.cli.display.sentences import sentence
from twophase.cli.display.text import clean
from twophase.cli.display.views import SilentView, summary
from twophase.events import Event
from twophase.internals.logging_observer import level_of
from twophase.state.files.event_file import ROUTINE, event_to_json, utc


def json_line(level: int, message: str, **values: Any) -> str:
    """Return a line: the time, the level and the message, then other values."""
    head = {"at": utc(_now_ms()), "level": logging.getLevelName(level), "message": clean(message)}
    return json.dumps({**head, **values})


class JsonFormatter(logging.Formatter):
    """Makes such a line of a log record, with its logger and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        values = {"logger": record.name}
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json_line(record.levelno, record.getMessage(), **values)


class JsonView(SilentView):
    """Prints events on standard output, and on standard error what others print."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self.log_formatter = JsonFormatter()
        self._console = console

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self.print_log(json_line(logging.INFO, text, job=self._job))

    def print_log(self, line: str) -> None:
        """See `View.print_log`."""
        self._errors.print(Text(line), soft_wrap=True)

    def _close(self) -> None:
        self._print(json_line(logging.INFO, summary(self.tracker), job=self._job))

    def _show(self, event: Event) -> None:
        if not isinstance(event, ROUTINE):
            level = max(logging.INFO, level_of(event))
            text = sentence(event, self.tracker.progress)
            self._print(json_line(level, text, **event_to_json(event, _now_ms())))

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def print_error(error: BaseException, *, verbose: bool) -> int:
    """Print an error on standard error as `show_error` does; return the code to exit with."""
    if isinstance(error, ExceptionGroup):
        return max(print_error(one, verbose=verbose) for one in error.exceptions)
    shown = parts_of(error, verbose=verbose)
    texts = {
        "error": shown.kind,
        "data": shown.data,
        "next": shown.next,
        "traceback": traceback_of(error) if verbose else "",
    }
    given = {name: text for name, text in texts.items() if text}
    line = json_line(logging.ERROR, shown.what, **given, exit_code=shown.exit_code)
    JobConsole(stderr=True).print(Text(line), soft_wrap=True)
    return shown.exit_code


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

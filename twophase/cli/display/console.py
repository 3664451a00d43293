"""The console of a command: its reader may go away, and the job goes on. It also shows errors:
what happened, what became of the data, and what to do next.
"""

from __future__ import annotations

import traceback
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.display.streams import LossyStream, send_nowhere
from twophase.cli.display.text import clean, on_one_line
from twophase.errors import carried
from twophase.internals.redaction import REDACTED, is_redacting, printable
from twophase.wording import worded

TEXT: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
"""Of a console that prints texts as they are: paths, names and rows are no markup."""
INTERRUPT_CHARS = len("^C") + 1
"""The columns that a terminal's echo of Ctrl-C takes, and the one after it."""
_WIDTH_ELSEWHERE = 200
_UNEXPECTED_CHARS = 600
_UNEXPECTED_EXIT_CODE = 1


class JobConsole(Console):
    """A console that falls silent when its reader is gone: `| head`, a journal that restarts.

    Rich would end the process by an exception that Spark's callbacks do not expect, and the JVM
    would wait for ever.

    Args:
        file: a file of its own, whose failures end nothing; else standard output or error.
        **settings: of the console.
    """

    def __init__(self, *, file: TextIO | None = None, **settings: Any) -> None:
        own: Any = None if file is None else LossyStream(file)
        super().__init__(file=own, **{**TEXT, **settings})

    def on_broken_pipe(self) -> None:
        """Drop everything from here on, also what Python still buffers for this file."""
        self.quiet = True
        send_nowhere(self.file)


def show_error(console: Console, error: BaseException, *, verbose: bool) -> int:
    """Print an error.

    Args:
        console: the console to print to.
        error: any error; ours is recognised if Spark carried it out of a worker.
        verbose: print the traceback too.

    Returns:
        The code to exit with.
    """
    if isinstance(error, ExceptionGroup):  # of a job file: nothing was done
        return max(show_error(console, one, verbose=verbose) for one in error.exceptions)
    if verbose:
        for line in traceback_of(error).splitlines():
            console.print(Text(printable(line)), soft_wrap=True)
    shown = parts_of(error, verbose=verbose)
    _print(console, "Error", shown.head)
    for head, text in (("Data", shown.data), ("Next", shown.next)):
        if text:
            _print(console, head, text)
    return shown.exit_code


@dataclass(frozen=True)
class ErrorParts:
    """What is shown of an error.

    Attributes:
        kind: its class.
        what: what happened.
        data: what became of the data; empty where the question does not arise.
        next: what to do next.
        exit_code: the code to exit with.
        is_ours: whether it is a `TwoPhaseError`.
    """

    kind: str
    what: str
    data: str
    next: str
    exit_code: int
    is_ours: bool

    @property
    def head(self) -> str:
        """What happened, with the class."""
        return f"{self.what} [{self.kind}]" if self.is_ours else f"{self.kind}: {self.what}"


def parts_of(error: BaseException, *, verbose: bool) -> ErrorParts:
    """Return what is shown of an error. The arguments: see `show_error`."""
    known = carried(error)
    if known is None:
        then = "" if verbose else "run the command again with --verbose for the traceback."
        return ErrorParts(
            type(error).__name__, _unexpected(error), "", then, _UNEXPECTED_EXIT_CODE, is_ours=False
        )
    what, data, then = clean(known.what), clean(known.data_lost), on_one_line(worded(known.remedy))
    return ErrorParts(type(known).__name__, what, data, then, known.exit_code, is_ours=True)


def _unexpected(error: BaseException) -> str:
    return REDACTED if is_redacting() else clean(str(error))[:_UNEXPECTED_CHARS]


def traceback_of(error: BaseException) -> str:
    """Return where it was raised, and its message unless values of rows are redacted."""
    if is_redacting():
        return "".join(traceback.format_tb(error.__traceback__))
    return "".join(traceback.format_exception(error))


def _print(console: Console, head: str, text: str) -> None:
    style = "bold red" if head == "Error" else "bold"
    console.print(Text.assemble((f"{head}: ", style), text), soft_wrap=True)


def plain_table(columns: Iterable[str], right: Container[str] = ()) -> Table:
    """Return an empty table without lines.

    Args:
        columns: their heads.
        right: those with numbers.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def print_lines(lines: Iterable[str | Table]) -> None:
    """Print lines of text and tables, for people."""
    console = table_console()
    for line in lines:
        if isinstance(line, str):
            console.print(Text(on_one_line(line)), soft_wrap=True)
        else:
            console.print(line)


def table_console() -> Console:
    """Return a console for tables; without a terminal it is so wide that a row is one line."""
    console = Console(**TEXT)
    return console if console.is_terminal else Console(**TEXT, width=_WIDTH_ELSEWHERE)

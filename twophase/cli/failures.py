"""Errors on the terminal: what happened, what became of the data, what to do next. No traceback unless asked for."""

from __future__ import annotations

import traceback

from rich.console import Console
from rich.text import Text

from twophase.cli.text import clean
from twophase.errors import TwoPhaseError, from_text

_UNEXPECTED_CHARS = 600
_UNEXPECTED_EXIT_CODE = 1


def show_error(console: Console, error: BaseException, *, verbose: bool) -> int:
    """Print an error.

    Args:
        console: where to.
        error: any error; one of ours that Spark carried out of a worker as text is recognised.
        verbose: print the traceback too.

    Returns:
        The code to exit with.
    """
    if verbose:
        console.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
    known = error if isinstance(error, TwoPhaseError) else from_text(str(error))
    if known is None:
        _print(console, "Error", f"{type(error).__name__}: {clean(str(error))[:_UNEXPECTED_CHARS]}")
        if not verbose:
            _print(console, "Next", "run the command again with --verbose for the traceback.")
        return _UNEXPECTED_EXIT_CODE
    _print(console, "Error", f"{clean(known.what)} [{type(known).__name__}]")
    if known.data_lost:
        _print(console, "Data", clean(known.data_lost))
    if known.remedy:
        _print(console, "Next", clean(known.remedy))
    return known.exit_code


def _print(console: Console, head: str, text: str) -> None:
    style = "bold red" if head == "Error" else "bold"
    console.print(Text.assemble((f"{head}: ", style), text), soft_wrap=True)

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_VERBOSE = "twophase.verbose"


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta[_VERBOSE] = value
    return value


def verbose_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--verbose`, which the command gets as `verbose`, and the display of errors too."""
    option = click.option(
        "-v", "--verbose", is_flag=True, callback=_remember, help="Show log lines and tracebacks."
    )
    return option(command)


def is_verbose(ctx: click.Context) -> bool:
    """Return whether `--verbose` was given to the running command."""
    return bool(ctx.meta.get(_VERBOSE, False))

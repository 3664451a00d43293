"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Any], Any]
_VERBOSE = "twophase.verbose"


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Show log lines and tracebacks.",
)
"""Adds `--verbose`: see `is_verbose`."""
job_file_argument = click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
checkpoint_location_option = click.option(
    "--checkpoint-location", metavar="FOLDER", help="The job's folder; sets checkpointLocation."
)


def combined(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options to a command, the last one first."""
    return lambda command: reduce(lambda done, option: option(done), options, command)


def is_verbose() -> bool:
    """Return whether `--verbose` was given to the running command."""
    return bool(click.get_current_context().meta.get(_VERBOSE, False))

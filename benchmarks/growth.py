"""How the cost of a commit grows with those before it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import click

_LEAST = 5


def counts(what: str) -> Callable[[Any], Any]:
    """Return the option with the numbers after which the cost is told.

    Args:
        what: is counted.
    """
    return click.option(
        f"--{what}",
        default="10,100,1000",
        show_default=True,
        callback=_parsed,
        help="Numbers of commits after which the cost is told.",
    )


def median_at(values: Sequence[float], count: int) -> float:
    """Return the median of the last tenth of the first `count` values, of at least five."""
    return statistics.median(values[max(0, count - max(_LEAST, count // 10)) : count])


def _parsed(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted(int(one) for one in value.split(",")))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise click.BadParameter(f"give numbers of {parameter.name}, such as 10,100,1000")
    return found

"""The trigger of a job: when a micro-batch, and with it a checkpoint, begins.

It is checked as Spark's `DataStreamWriter.trigger` checks its arguments, but where it is given:
Spark itself would first see it after the recovery of the job.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from twophase.errors import ConfigError
from twophase.options.parsing import parse_duration_s

_KEYS = ("processingTime", "availableNow", "once")
_REFUSED = {
    "continuous": "Spark's continuous processing has no micro-batches",
    "realTime": "Spark's real-time mode does not call foreachBatch",
}
_EXAMPLES = {"processingTime": "10 seconds", "availableNow": True, "once": True}
_INTERVALS = ("10 seconds", "500 milliseconds", "1 minute 30 seconds")

Written = Callable[[str, Any], str]
"""Returns a trigger as its user writes it, given its name and value."""


def in_python(key: str, value: object) -> str:
    """Return a trigger as `StreamWriter` takes it."""
    return f".trigger({key}={value!r})"


def in_yaml(key: str, value: object) -> str:
    """Return a trigger as a job file has it."""
    return f"trigger: {{{key}: {str(value).lower()}}}"


_PREFIX = re.compile(r"\s*(?:interval\s+)?", re.IGNORECASE)
_PART = re.compile(r"([+-]?)\s*(\d+\.?\d*|\.\d+)\s+([a-z]+)(?:\s+|$)", re.IGNORECASE | re.ASCII)
_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


def check_trigger(
    given: Mapping[str, Any], where: str, written: Written = in_python
) -> dict[str, Any]:
    """Check the arguments of a trigger, and return the one that Spark is to get.

    Args:
        given: by Spark's names: `processingTime`, `availableNow` or `once`; None is as if left out.
        where: what the trigger belongs to, for the error.
        written: how the user writes one, for what to do next.

    Raises:
        ConfigError: it is not exactly one of them, its value is not allowed, or a job cannot run
            with it.
    """
    examples = [written(key, value) for key, value in _EXAMPLES.items()]
    remedy = f"write {', '.join(examples[:-1])} or {examples[-1]}"
    asked = {key: value for key, value in given.items() if value is not None}
    for key in asked:
        if key in _REFUSED:
            raise ConfigError(
                f"{where}: {key} is not possible: {_REFUSED[key]}, and a checkpoint is one "
                "micro-batch that foreachBatch is called for.",
                remedy=remedy,
            )
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{where}: there is no trigger {key!r}.{hint}", remedy=remedy)
    if len(asked) != 1:
        raise ConfigError(
            f"{where}: give exactly one trigger, not {' and '.join(asked) or 'none'}.",
            remedy=remedy,
        )
    [(key, value)] = asked.items()
    if key == "processingTime":
        interval_s = _interval_s(value)
        if interval_s is None:
            intervals = " or ".join(written(key, one) for one in _INTERVALS)
            raise ConfigError(
                f"{where}: {key} is {value!r}, not an interval.",
                remedy=f"write a number and a unit, such as {intervals}",
            )
        return {key: f"{int(round(interval_s * 1000, 6))} milliseconds"}
    if value is not True:
        raise ConfigError(
            f"{where}: {key} is {value!r}; only true is allowed.",
            remedy=f"write {written(key, True)} or {examples[0]}",
        )
    return {key: True}


def _interval_s(value: object) -> float | None:
    """Return the seconds of one of Spark's intervals or of our durations; None if neither."""
    try:
        interval_s = parse_duration_s(value)
    except ValueError:
        interval_s = _spark_interval_s(value) if isinstance(value, str) else None
    match interval_s:
        case int() | float() if 0 <= interval_s < math.inf:
            return interval_s
        case _:
            return None


def _spark_interval_s(text: str) -> float | None:
    """Return the seconds of an interval as `CalendarInterval` has it: '1 minute 30 seconds'.

    Months and years have no fixed length, and Spark refuses them here. Only seconds may have a
    fraction.
    """
    match = _PREFIX.match(text)
    at = match.end() if match else 0
    total_us, parts = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        sign, number, unit = part.groups()
        unit_us = _UNITS_US.get(unit.lower().removesuffix("s"))
        if unit_us is None or ("." in number and unit_us != _UNITS_US["second"]):
            return None
        total_us += float(sign + number) * unit_us
        at = part.end()
        parts += 1
    return total_us / 1_000_000 if parts else None

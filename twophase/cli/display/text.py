"""Formats values for people."""

from __future__ import annotations

import time
from collections.abc import Mapping

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_UNITS = ("B", "kB", "MB", "GB")


def clean(text: str) -> str:
    """Return `text` on one line, without control characters: data must not control a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def on_one_line(text: str) -> str:
    """Return `text` like `clean`, with each of its blanks: it may be a command to paste."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def duration(seconds: float) -> str:
    """Return a duration as text: '29 ms', '0.84 s', '2 min 05 s' or '3 h 07 min'."""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.2f} s"
    whole = int(seconds)
    if seconds < _HOUR_S:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def size(count: int) -> str:
    """Return a number of bytes as text: '812 B' or '1.2 kB'."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"


def count(number: int, thing: str) -> str:
    """Return a count with its noun: '1 row' or '1,200 rows'."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def rows_by_sink(total: int, by_sink: Mapping[str, int], done: str = "") -> str:
    """Return rows as text: '5 rows', '5 rows into each of 3 sinks', '5 rows into facts, 2 into b'.

    The sum over several sinks is not shown: it counts a record as often as it is written.

    Args:
        total: the rows of all sinks.
        by_sink: the rows by sink; empty if not known.
        done: what was done with them, such as 'committed'.
    """
    thing = f" {done}" if done else ""
    numbers = [*by_sink.values()]
    if len(numbers) < 2:
        return f"{count(total, 'row')}{thing}"
    if len(set(numbers)) == 1:
        return f"{count(numbers[0], 'row')}{thing} into each of {len(numbers)} sinks"
    (first, rows), *others = by_sink.items()
    parts = [
        f"{count(rows, 'row')}{thing} into {first}",
        *(f"{rows:,} into {sink}" for sink, rows in others),
    ]
    return clean(", ".join(parts))


def local_time(unix_ms: int) -> str:
    """Return the date and the local time of day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ms / 1000))


def time_now() -> str:
    """Return today's date and the local time of day."""
    return local_time(time.time_ns() // 1_000_000)

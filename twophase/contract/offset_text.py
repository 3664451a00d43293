"""Offsets as text, the same wherever a command shows them: `orders-0:34285 orders-1:12`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from twophase.contract.source_entry_points import owner_of

_CHARS = 40


def line_text(line: str | None) -> str:
    """Return where an offset line of a source stands."""
    return "the beginning" if line is None else offset_text(offset_entries(line)[1])


def offset_text(entries: Sequence[Any], most: int | None = None) -> str:
    """Return where a source stands.

    Args:
        entries: as `Source.entries` gives them, parsed.
        most: how many positions to show, each of them shortened; None shows all as they are.
    """
    shown = [text for entry in entries for text in _positions(entry)]
    if most is None:
        return " ".join(shown)
    texts = [text if len(text) <= _CHARS else f"{text[:_CHARS]}..." for text in shown[:most]]
    return " ".join(texts) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def offset_entries(line: str) -> tuple[str, list[Any]]:
    """Return the format and the entries of an offset line; "" and the line if nobody knows it."""
    name, source = owner_of(line)
    return name, [parsed_entry(entry) for entry in source.entries(line)]


def parsed_entry(entry: Any) -> Any:
    """Parse an offset: Spark keeps offsets as text, most often JSON."""
    if not isinstance(entry, str):
        return entry
    try:
        return json.loads(entry)
    except ValueError:
        return entry


def _positions(entry: Any) -> Iterator[str]:
    match entry:
        case {"topic": topic, "partition": partition, "offset": offset}:
            yield f"{topic}-{partition}:{offset}"
        case {"released": {"topic": topic, "partition": partition, "offset": offset}}:
            yield f"{topic}-{partition}:{offset} (released)"
        case dict() if entry and all(isinstance(one, dict) for one in entry.values()):
            for topic, partitions in entry.items():  # of Spark's Kafka source
                yield from (f"{topic}-{number}:{at}" for number, at in partitions.items())
        case _:
            yield entry if isinstance(entry, str) else json.dumps(entry)

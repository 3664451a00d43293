"""The offset of the source as list operator state: one entry for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from twophase.sources.kafka.offsets import VERSION, SourceOffset


def to_entries(line: str) -> list[dict[str, Any]]:
    """Return the list state in an offset line; empty before the start is resolved.

    Raises:
        CorruptRecordError: the line is not an offset of this source.
    """
    return [asdict(entry) for entry in SourceOffset.parse(line).partitions or ()]


def to_line(source: str, entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the offset line that a new lineage starts from.

    Args:
        source: the uid of the source.
        entries: the results of `to_entries`, of one or several subtasks, in any order.

    Raises:
        CorruptRecordError: an entry is damaged, or two name the same partition.
    """
    listed = [dict(entry) for entry in entries]
    return SourceOffset.parse(
        {"version": VERSION, "source": source, "partitions": listed}
    ).to_line()

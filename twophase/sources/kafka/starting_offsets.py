"""Where a fresh start begins: the option `startingOffsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from twophase.kafka_client.partitions import Partition

EARLIEST_SENTINEL = -2
LATEST_SENTINEL = -1
_TIMESTAMP = re.compile(r"timestamp:(\d{1,18})")
_ALLOWED = (
    "give earliest, latest, committed, timestamp:MILLISECONDS or a JSON object such as "
    '{"orders": {"0": 1234, "1": -2}} (-2 is earliest, -1 is latest)'
)


@dataclass(frozen=True)
class Earliest:
    """The first record that still exists."""


@dataclass(frozen=True)
class Latest:
    """The records written after the start."""


@dataclass(frozen=True)
class Committed:
    """The committed offsets of the consumer group."""


@dataclass(frozen=True)
class AtTimestamp:
    """The first record at or after a time; the end if there is none.

    Attributes:
        milliseconds: since 1970-01-01 UTC.
    """

    milliseconds: int


@dataclass(frozen=True)
class Specific:
    """One offset for each partition; -2 is earliest, -1 is latest."""

    offsets: tuple[tuple[Partition, int], ...]


class Fallback(StrEnum):
    """The start of a partition that `startingOffsets` does not mention."""

    EARLIEST = "earliest"
    LATEST = "latest"


Starting = Earliest | Latest | Committed | AtTimestamp | Specific
"""The position at which a fresh start begins."""


def parse_starting(value: object) -> object:
    """Parse the option; leave values that are not text to the type check.

    Raises:
        ValueError: the text has none of the allowed forms.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "committed":
            return Committed()
        case _:
            pass
    found = _TIMESTAMP.fullmatch(text.lower())
    if found is not None:
        return AtTimestamp(int(found[1]))
    return Specific(tuple(sorted(_offsets(text).items())))


def begins_at(begun: Mapping[Partition, int], starting: str) -> bool | None:
    """Return whether a source has begun where an option says.

    Args:
        begun: the offset in each partition.
        starting: the option, of this source or of Spark's own.

    Returns:
        None if it leaves a partition open.
    """
    try:
        found = parse_starting(starting)
    except ValueError:
        return None
    if not isinstance(found, Specific):
        return None
    wanted = {key: at for key, at in found.offsets if at >= 0}
    if any(begun.get(key) != at for key, at in wanted.items()):
        return False
    return True if wanted.keys() == begun.keys() else None


def _offsets(text: str) -> dict[Partition, int]:
    try:
        topics = json.loads(text)
        offsets = {
            Partition(topic, int(index)): offset
            for topic, listed in topics.items()
            for index, offset in listed.items()
        }
    except (ValueError, AttributeError):
        raise ValueError(_ALLOWED) from None
    if not offsets or any(
        type(offset) is not int or offset < EARLIEST_SENTINEL for offset in offsets.values()
    ):
        raise ValueError(_ALLOWED)
    return offsets

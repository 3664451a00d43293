"""Blocks: a few records of one partition as columns, passed from a fetch engine to a decoder.

Blocks are small and decoded at once, so that a block's memory is still in the processor's cache
when it is reused for the next one: this alone halves the time per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Header = tuple[str, bytes | None]
NO_TIMESTAMP = -1
"""What Kafka has as the timestamp of a record that has none."""


@dataclass(frozen=True)
class Wanted:
    """The parts of the records that a decoder needs, in addition to values and offsets."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False


@dataclass
class Block:
    """Records in the order of their offsets, at least one.

    Attributes:
        values: None is a tombstone.
        offsets: a range if there is no gap.
        keys, timestamps_ms, headers: empty unless wanted; no timestamp is `NO_TIMESTAMP`.
    """

    values: list[bytes | None]
    offsets: Sequence[int]
    keys: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: list[Sequence[Header] | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

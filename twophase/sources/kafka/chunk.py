"""What a fetch engine hands to a decoder: a bounded run of records of one partition, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_ROWS = 20_000
MAX_BYTES = 8 * 1024 * 1024
Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Wanted:
    """Which parts of the records are worth the work of collecting; values and offsets always are."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False


@dataclass
class Chunk:
    """Records in the order of their offsets.

    Attributes:
        values: None is a tombstone.
        runs: their offsets, in pieces: ranges where there is no gap.
        keys, timestamps_ms, headers: empty unless wanted; a timestamp below 0 means none.
        size_bytes: of all values.
    """

    values: list[bytes | None] = field(default_factory=list)
    runs: list[Sequence[int]] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: list[Sequence[Header] | None] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def full(self) -> bool:
        """Whether it is large enough to be handed on."""
        return len(self.values) >= MAX_ROWS or self.size_bytes >= MAX_BYTES

    def offsets(self) -> list[int]:
        """The offset of every record."""
        return [offset for run in self.runs for offset in run]

    def offset_at(self, index: int) -> int:
        """The offset of one record."""
        for run in self.runs:
            if index < len(run):
                return run[index]
            index -= len(run)
        raise IndexError(index)


def run_of(first: int, last: int, count: int) -> range | None:
    """The offsets of `count` records from `first` to `last` if there is no gap between them."""
    return range(first, last + 1) if last - first + 1 == count else None

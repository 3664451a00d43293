"""The digest of the records of one range: a replay of others fails (H35).

Where it is kept and when it is compared is the matter of the guard
(`twophase.state.checkpoints.replay_guard`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from twophase.errors import RangeChangedError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.offsets import OffsetRange
from twophase.state.checkpoints.replay_guard import ReplayGuard


@dataclass
class RangeDigest:
    """A digest of the records of one range, regardless of how they are split into blocks.

    Keys, timestamps and headers are not included: compaction removes whole records, and a rewritten
    log has another leader epoch.

    Attributes:
        records: the number of records.
        offsets: the sum of their offsets. Compaction only removes records, which changes
            their number already.
        values: CRC-32 of the values, one after the other.
    """

    records: int = 0
    offsets: int = 0
    values: int = 0

    def take(self, block: Block) -> None:
        """Add the next records."""
        count, offsets = len(block), block.offsets
        self.records += count
        self.offsets += (
            count * (offsets[0] + offsets[-1]) // 2 if isinstance(offsets, range) else sum(offsets)
        )
        self.values = zlib.crc32(_joined(block.values), self.values)


def settle(guard: ReplayGuard, item: OffsetRange, digest: RangeDigest) -> None:
    """Keep or compare the digest of a range that was read to its end.

    Raises:
        RangeChangedError: this is a replay, and the range had other records.
        CorruptRecordError: a kept digest is damaged.
        NewerFormatError: another version of twophase has kept it.
    """
    # without the leader epoch, which may have changed
    of = (item.source, item.topic_id, item.partition, item.start, item.end)
    first = guard.settle(of, digest, f"Source {item.source!r}: {item}")
    if first is not None:
        raise _changed(guard, item, first, digest)


def _changed(
    guard: ReplayGuard, item: OffsetRange, first: RangeDigest, digest: RangeDigest
) -> RangeChangedError:
    same = first.records == digest.records
    return RangeChangedError(
        f"Source {item.source!r}: {item} (topic {item.topic!r}, "
        f"partition {item.partition}) does not have the records that it had when the checkpoint "
        "was taken: "
        f"{first.records} then, {digest.records} now"
        f"{', with other offsets or values' if same else ' (compaction)'}.",
        remedy="to rebuild the state from the records that are there now, "
        f"delete {guard.path} and start again.",
    )


def _joined(values: list[bytes | None]) -> bytes:
    try:
        return b"".join(values)  # type: ignore[arg-type]
    except TypeError:  # a tombstone
        return b"".join([value or b"" for value in values])

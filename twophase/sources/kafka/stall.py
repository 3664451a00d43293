"""Detects partitions that an open transaction blocks (H34): nothing after it is committed."""

from __future__ import annotations

from collections.abc import Mapping

from twophase.sources.kafka.offsets import LogEnd, Partition

PATIENCE_S = 60.0


class StallAlarm:
    """Compares last stable offsets with high watermarks over time, for every partition."""

    def __init__(self) -> None:
        self._held: dict[Partition, tuple[int, float]] = {}

    def observe(
        self, now: float, ends: Mapping[Partition, LogEnd], highs: Mapping[Partition, LogEnd]
    ) -> list[str]:
        """Compare the offsets once.

        Args:
            now: seconds, monotonic.
            ends: last stable offsets.
            highs: high watermarks.

        Returns:
            A warning for each partition whose last stable offset has not moved for `PATIENCE_S`
            while records wait behind it; repeated only after the same time has passed again.
        """
        held = {
            key: end.offset
            for key, end in ends.items()
            if key in highs and highs[key].offset > end.offset
        }
        warnings = []
        kept: dict[Partition, tuple[int, float]] = {}
        for key, offset in held.items():
            since = self._held[key][1] if self._held.get(key, (None, 0.0))[0] == offset else now
            if now - since >= PATIENCE_S:
                warnings.append(_warning(key, offset, now - since, highs[key].offset - offset))
                since = now
            kept[key] = (offset, since)
        self._held = kept
        return warnings


def _warning(partition: Partition, offset: int, stood_s: float, waiting: int) -> str:
    return (
        f"{partition} has stood at its last stable offset {offset} for {stood_s:.0f} s while "
        f"{waiting} offsets wait behind it: a transaction is open. "
        "`kafka-transactions.sh find-hanging` names its producer."
    )

"""Resolves the option `startingOffsets` to the offsets at which a fresh start begins.

They are durable with the end of the first batch (H55).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from twophase.errors import ConfigError, PreflightError
from twophase.kafka_client.partitions import LogEnd, Partition, Topic
from twophase.sources.kafka.cluster import Cluster, covering_ends
from twophase.sources.kafka.loss import check_begin, check_end
from twophase.sources.kafka.offsets import WHERE, PartitionOffset, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.starting_offsets import (
    EARLIEST_SENTINEL,
    LATEST_SENTINEL,
    AtTimestamp,
    Committed,
    Earliest,
    Fallback,
    Latest,
    Specific,
)


class StartResolver:
    """Turns `startingOffsets` into an offset for each partition.

    Args:
        topics: the subscribed topics as they are now.
        ends: the end of each partition.
    """

    def __init__(
        self,
        options: KafkaOptions,
        cluster: Cluster,
        topics: Mapping[str, Topic],
        ends: Mapping[Partition, LogEnd],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._topics = topics
        self._ends = ends
        self._begins = cluster.begins(list(ends))

    def resolve(self) -> SourceOffset:
        """Return the offsets at which the source begins.

        Raises:
            PreflightError: a subscribed topic does not exist, or a partition has
                no committed offset.
            ConfigError: the option names partitions that do not exist, or leaves some out.
            OffsetOutOfRangeError: a committed or named offset is not available.
        """
        missing = sorted(set(self._options.subscribe) - self._topics.keys())
        if missing:
            raise PreflightError(
                f"{WHERE}: topic {missing[0]!r} does not exist.",
                remedy="create it, or correct `subscribe`.",
            )
        return SourceOffset.of(
            self._options.uid, (self._entry(key, offset) for key, offset in self._offsets().items())
        )

    def _offsets(self) -> dict[Partition, int]:
        starting = self._options.starting
        match starting:
            case Earliest():
                return dict(self._begins)
            case Latest():
                return self._latest()
            case AtTimestamp(milliseconds):
                return self._at_timestamp(milliseconds)
            case Committed():
                return self._committed(self._options.group_id or "")
            case Specific(offsets):
                return self._specific(dict(offsets))
            case _:
                assert_never(starting)

    def _at_timestamp(self, milliseconds: int) -> dict[Partition, int]:
        # first: what comes after this look is newer than the records that no time is found for
        highs = self._cluster.high_watermarks(list(self._ends))
        found = self._cluster.at_timestamp(list(self._ends), milliseconds)
        # where no record has that time yet, those of open transactions are older too
        return {
            key: highs.get(key, self._ends[key]).offset if at is None else at
            for key, at in found.items()
        }

    def _committed(self, group: str) -> dict[Partition, int]:
        found = self._cluster.committed(group, list(self._ends))
        left = [key for key in self._ends if key not in found]
        if left and self._options.fallback is None:
            raise PreflightError(
                f"{WHERE}: startingOffsets=committed, but group {group!r} has no committed offset "
                f"for {left[0]}"
                f"{f' and {len(left) - 1} more partitions' if len(left) > 1 else ''}.",
                remedy="set `startingOffsets.fallback=earliest` or "
                "`startingOffsets.fallback=latest`, or correct group.id.",
            )
        self._check(found)
        return found | self._fall_back(left)

    def _specific(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        unknown = [key for key in wanted if key not in self._ends]
        if unknown:
            raise ConfigError(
                f"{WHERE}: startingOffsets names {unknown[0]}, which does not exist or is not "
                "subscribed.",
                remedy=f"the partitions are {', '.join(map(str, sorted(self._ends)))}.",
            )
        left = [key for key in self._ends if key not in wanted]
        if left and self._options.fallback is None:
            raise ConfigError(
                f"{WHERE}: startingOffsets names no offset for {left[0]}.",
                remedy="name every partition, or set `startingOffsets.fallback=earliest` or "
                "`startingOffsets.fallback=latest`.",
            )
        named = {EARLIEST_SENTINEL: self._begins, LATEST_SENTINEL: self._latest()}
        self._check({key: offset for key, offset in wanted.items() if offset not in named})
        return {
            key: named[offset][key] if offset in named else offset for key, offset in wanted.items()
        } | self._fall_back(left)

    def _fall_back(self, keys: Iterable[Partition]) -> dict[Partition, int]:
        latest = self._options.fallback is Fallback.LATEST
        return {key: self._ends[key].offset if latest else self._begins[key] for key in keys}

    def _latest(self) -> dict[Partition, int]:
        return {key: end.offset for key, end in self._ends.items()}

    def _check(self, offsets: Mapping[Partition, int]) -> None:
        ends = covering_ends(self._cluster, offsets, self._ends)
        for key, offset in offsets.items():
            entry = self._entry(key, offset)
            check_begin(self._options.uid, entry, self._begins[key], ends[key].offset)
            check_end(self._options.uid, entry, self._begins[key], ends[key].offset)

    def _entry(self, key: Partition, offset: int) -> PartitionOffset:
        topic_id = self._topics[key.topic].topic_id
        return PartitionOffset(
            key.topic, topic_id, key.number, offset, self._ends[key].leader_epoch
        )

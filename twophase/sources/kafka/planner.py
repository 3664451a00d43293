"""Plans how far the next batch reads, in the process that Spark keeps for a query's reader.

    1. freeze     once, for available-now: the ends beyond which this query never reads
    2. resolve    once in the life of a lineage: "nothing yet" becomes the start, noted in the
                  first batch's end (H55)
    3. look       each time Spark asks: where do the partitions end?
    4. check      before anything advances: is it the same topic, are the records there? (H31, H32)
    5. discover   with 4, and every `partition.discovery.interval`: new partitions enter at their
                  first offset (H33), released ones that are there again where they were left
    6. admit      as much as the limits allow, and less in the first batches

With trigger 0 Spark asks 80 times a second, so an answer that nothing is new is
reused for a moment.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from twophase.errors import (
    ConfigError,
    OffsetMismatchError,
    RestoreRefusedError,
    SourceLossError,
)
from twophase.kafka_client.options import IsolationLevel
from twophase.kafka_client.partitions import LogEnd, Partition, Topic
from twophase.sources.kafka.cluster import Cluster, covering_ends
from twophase.sources.kafka.loss import (
    check_begin,
    check_end,
    check_epoch,
    check_subscription,
    check_topic,
    needed_again,
    unread,
)
from twophase.sources.kafka.offsets import (
    KEEP_UIDS,
    WHERE,
    Limits,
    PartitionOffset,
    SourceOffset,
    advance,
)
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.start_resolver import StartResolver

PATIENCE_S = 60.0
"""How long a partition may stand at its last stable offset before a warning."""
_FIRST_RECORDS = 20_000
_GROWTH = 3
_SLOW_START_S = 60.0
"""Afterwards every micro-batch may have its full size: with a trigger of an hour, small ones
would be late by hours.
"""
_IDLE_S = 0.05

_log = logging.getLogger(__name__)


class OffsetPlanner:
    """The driver side of the source, without Spark.

    Args:
        clock: seconds, monotonic.

    Attributes:
        seen: the ends found by the last look, for progress reports; None before the first.
    """

    def __init__(
        self, options: KafkaOptions, cluster: Cluster, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._frozen: dict[Partition, LogEnd] | None = None
        self._discover_at = clock()
        self._idle: tuple[float, SourceOffset] | None = None
        self._stall = StallAlarm()
        self._slow_start = SlowStart(clock)
        self.seen: SourceOffset | None = None

    def freeze(self) -> None:
        """Step 1: from now on, read nothing beyond the current ends of the partitions."""
        self._frozen = self._cluster.ends(_keys(self._topics()))

    def latest(self, start: SourceOffset, limits: Limits) -> SourceOffset:
        """Return the end of the next batch; `start` itself if there is none.

        Raises:
            SourceLossError: records that were not read are gone.
            SourceUnavailableError: the brokers do not answer.
            OffsetMismatchError: `start` belongs to another source.
        """
        if start.source != self._options.uid:
            raise OffsetMismatchError(
                f"{WHERE}: the offsets are of source {start.source!r}, this source has the uid "
                f"{self._options.uid!r}.",
                remedy=KEEP_UIDS,
            )
        if start.partitions is None:
            begin = self._resolve()
            return replace(self._admit(begin, limits), begin=begin.partitions)
        if self._idle is not None and self._clock() < self._idle[0] and start == self._idle[1]:
            return start
        end = self._admit(start, limits)
        self._idle = (self._clock() + _IDLE_S, start) if end == start else None
        return end

    def check(self, offset: SourceOffset, *, grows: bool = True) -> bool:
        """Check that everything from an offset on is there to be read again. Plans no read.

        Args:
            offset: where the read would begin.
            grows: whether the source also reads partitions that are added later.

        Returns:
            False if it is not known whether the source has read records that are gone: those at
            the beginning of a topic that a pattern has found since.

        Raises:
            SourceLossError: records are gone.
            RestoreRefusedError: a topic is compacted, or may be: then records may be gone anywhere.
            SourceUnavailableError: the brokers do not answer.
            ConfigError: the offset has a topic that is no longer subscribed.
        """
        topics = self._topics()
        if grows:
            back = self._back(offset, topics).values()
            offset = offset.with_partitions([*(offset.partitions or ()), *back])
        entries = offset.partitions or ()
        known = {entry.topic for entry in entries}
        try:
            check_subscription(offset, self._subscribed(entries))
            self._check(entries, self._covering(offset, self._look(entries)), topics)
            added = self._discovered(offset, topics) if grows else []
        except (ConfigError, SourceLossError) as error:
            raise needed_again(error) from error
        self._check_policies(sorted(known | {entry.topic for entry in added}))
        return all(entry.offset == 0 or entry.topic in known for entry in added)

    def beginning(self, offset: SourceOffset, *, grows: bool = True) -> list[PartitionOffset]:
        """Return where each partition is read from after an offset, those found since included.

        Args:
            offset: where the read begins; nothing is returned for one that is not resolved.
            grows: as for `check`.
        """
        entries = offset.partitions
        if entries is None or not grows:
            return [*(entries or ())]
        return [*entries, *self._discovered(offset, self._topics())]

    def missing(self, offset: SourceOffset) -> dict[PartitionOffset, str]:
        """Return the partitions that the source cannot go on with, each with what is given up by
        going on without it.

        Their topic was deleted, or created again, or is no longer subscribed.

        Raises:
            SourceUnavailableError: the brokers do not answer.
        """
        entries, uid = offset.partitions or (), self._options.uid
        names, found = {entry.topic for entry in entries}, dict[PartitionOffset, str]()
        topics = self._cluster.topics(names)
        if gone := [entry for entry in entries if not _is_there(entry, topics)]:
            with suppress(SourceLossError):  # waits: it may be unknown for a moment only
                self._cluster.confirm_topic(uid, gone[0])
            topics = self._cluster.topics(names)
        for entry in entries:
            try:
                check_topic(uid, entry, topics.get(entry.topic))
            except SourceLossError as error:
                found[entry] = error.what
        subscribed = self._subscribed(entries)
        left = [one for one in entries if one not in found and one.topic not in subscribed]
        highs = self._cluster.high_watermarks([entry.key for entry in left])
        return found | {entry: unread(uid, entry, highs[entry.key].offset) for entry in left}

    def compaction(self, topics: Sequence[str]) -> dict[str, str]:
        """Return for each topic of some that is compacted, or may be, what is known of that.

        Compaction moves neither end of a log: only the topic's settings tell of it.
        """
        policies, found = self._cluster.cleanup_policies(topics), dict[str, str]()
        for topic in topics:
            if (policy := policies.get(topic)) is None:
                found[topic] = (
                    "may be compacted: the brokers do not tell its cleanup.policy, for which the "
                    "job's account has to have DESCRIBE_CONFIGS on the topic"
                )
            elif "compact" in policy:
                found[topic] = f"is compacted (cleanup.policy={policy})"
        return found

    def _check_policies(self, topics: Sequence[str]) -> None:
        for topic, problem in self.compaction(topics).items():
            raise RestoreRefusedError(
                f"Source {self._options.uid!r}: the topic {topic!r} {problem}, and compaction "
                "leaves no mark in the offsets: records may be gone."
            )

    def _resolve(self) -> SourceOffset:
        """Step 2."""
        topics = self._topics()
        return StartResolver(
            self._options, self._cluster, topics, self._cluster.ends(_keys(topics))
        ).resolve()

    def _admit(self, start: SourceOffset, limits: Limits) -> SourceOffset:
        """Steps 3 to 6."""
        end = self._next(start, self._slow_start.limit(limits), self._clock())
        if end != start:
            self._slow_start.admitted()
        return end

    def _next(self, start: SourceOffset, limits: Limits, now: float) -> SourceOffset:
        entries = start.partitions or ()
        stable = self._look(entries)
        ends = self._covering(start, stable)
        moving = [entry for entry in entries if ends[entry.key].offset != entry.offset]
        due = now >= self._discover_at
        if not moving and not due:
            return start
        topics = self._topics()
        self._discover_at = now + self._options.discovery_interval_s
        check_subscription(start, self._subscribed(entries))
        self._check(entries if due else moving, ends, topics, {entry.key for entry in moving})
        if due:
            self._watch_for_stall(stable, now)
        found = self._discovered(start, topics)
        grown = start.with_partitions([*entries, *found]) if found else start
        return advance(grown, self._admissible(entries, ends), limits)

    def _look(self, entries: Iterable[PartitionOffset]) -> dict[Partition, LogEnd]:
        """Step 3: return the ends for all entries."""
        listed = list(entries)
        ends = self._cluster.ends([entry.key for entry in listed])
        if listed and not ends:  # the broker does not know one of them
            for entry in listed:
                self._cluster.confirm_topic(self._options.uid, entry)
            ends = {entry.key: LogEnd(entry.offset, entry.leader_epoch) for entry in listed}
        self.seen = SourceOffset.of(
            self._options.uid,
            [
                PartitionOffset(
                    e.topic, e.topic_id, e.partition, ends[e.key].offset, ends[e.key].leader_epoch
                )
                for e in listed
            ],
        )
        return ends

    def _covering(
        self, offset: SourceOffset, ends: Mapping[Partition, LogEnd]
    ) -> dict[Partition, LogEnd]:
        return covering_ends(self._cluster, offset.positions(), ends)

    def _check(
        self,
        entries: Iterable[PartitionOffset],
        ends: Mapping[Partition, LogEnd],
        topics: Mapping[str, Topic],
        moving: set[Partition] | None = None,
    ) -> None:
        """Step 4."""
        listed = list(entries)
        for entry in listed:
            if not _is_there(entry, topics):
                self._cluster.confirm_topic(self._options.uid, entry)
        wanted = [entry for entry in listed if moving is None or entry.key in moving]
        begins = self._cluster.begins([entry.key for entry in wanted])
        for entry in wanted:
            begin, end = begins.get(entry.key, entry.offset), ends[entry.key].offset
            check_end(self._options.uid, entry, begin, end)
            check_begin(self._options.uid, entry, begin, end)
        newly_led = [
            entry for entry in wanted if 0 <= entry.leader_epoch != ends[entry.key].leader_epoch
        ]
        if newly_led:
            epoch_ends = self._cluster.epoch_ends(newly_led)
            for entry in newly_led:
                check_epoch(self._options.uid, entry, epoch_ends.get(entry.key, -1))

    def _discovered(
        self, offset: SourceOffset, topics: Mapping[str, Topic]
    ) -> list[PartitionOffset]:
        """Step 5: partitions without an entry, each at its first offset, or where it was left."""
        back = self._back(offset, topics)
        known = offset.by_partition().keys() | back.keys()
        new = [
            key
            for key in _keys(topics)
            if key not in known and (self._frozen is None or key in self._frozen)
        ]
        begins = self._cluster.begins(new)
        for key in new:
            _log.info("Source %r discovered %s", self._options.uid, key)
        found = [
            PartitionOffset(
                key.topic,
                topics[key.topic].topic_id,
                key.number,
                begin,
                topics[key.topic].epochs[key.number],
            )
            for key, begin in begins.items()
        ]
        old_topics = {key.topic for key in known}
        self._check_new([entry for entry in found if entry.topic in old_topics])
        return [*back.values(), *found]

    def _back(
        self, offset: SourceOffset, topics: Mapping[str, Topic]
    ) -> dict[Partition, PartitionOffset]:
        """Return the released partitions that are there again, where they were left."""
        return {
            entry.key: entry
            for entry in offset.released
            if _is_there(entry, topics) and (self._frozen is None or entry.key in self._frozen)
        }

    def _check_new(self, found: Iterable[PartitionOffset]) -> None:
        """Check partitions added to a known topic, from offset 0: nothing before may be gone."""
        late = [entry for entry in found if entry.offset > 0]
        ends = self._cluster.ends([entry.key for entry in late])
        for entry in late:
            check_begin(
                self._options.uid,
                replace(entry, offset=0),
                entry.offset,
                ends.get(entry.key, LogEnd(entry.offset)).offset,
            )

    def _admissible(
        self, entries: Iterable[PartitionOffset], ends: Mapping[Partition, LogEnd]
    ) -> Mapping[Partition, LogEnd]:
        """Return the ends up to which step 6 admits; available-now stops at the frozen ones."""
        frozen = self._frozen
        if frozen is None:
            return ends
        return {
            entry.key: LogEnd(
                max(entry.offset, min(ends[entry.key].offset, frozen[entry.key].offset)),
                ends[entry.key].leader_epoch,
            )
            for entry in entries
            if entry.key in frozen
        }

    def _watch_for_stall(self, ends: Mapping[Partition, LogEnd], now: float) -> None:
        if self._options.isolation_level is IsolationLevel.READ_COMMITTED:
            for warning in self._stall.observe(
                now, ends, self._cluster.high_watermarks(list(ends))
            ):
                _log.warning("Source %r: %s", self._options.uid, warning)

    def _topics(self) -> dict[str, Topic]:
        if self._options.subscribe_pattern is not None:
            return self._cluster.matching(self._options.subscribe_pattern)
        return self._cluster.topics(self._options.subscribe)

    def _subscribed(self, entries: Iterable[PartitionOffset]) -> frozenset[str]:
        pattern = self._options.subscribe_pattern
        if pattern is None:
            return frozenset(self._options.subscribe)
        return frozenset(entry.topic for entry in entries if re.fullmatch(pattern, entry.topic))


def _is_there(entry: PartitionOffset, topics: Mapping[str, Topic]) -> bool:
    """Return whether a partition exists, and is one of the same creation of its topic."""
    topic = topics.get(entry.topic)
    return (
        topic is not None and topic.topic_id == entry.topic_id and entry.partition in topic.epochs
    )


def _keys(topics: Mapping[str, Topic]) -> list[Partition]:
    return [
        Partition(name, number)
        for name, topic in sorted(topics.items())
        for number in sorted(topic.epochs)
    ]


class SlowStart:
    """Caps the limit of the first micro-batches; each may admit three times the last one's.

    A micro-batch without a limit stays unlimited: some triggers read everything in one.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._cap = _FIRST_RECORDS
        self._clock = clock
        self._ends_at = clock() + _SLOW_START_S

    def limit(self, limits: Limits) -> Limits:
        """Return the limits of the next micro-batch."""
        if limits.per_trigger is None or self._clock() >= self._ends_at:
            return limits
        return replace(limits, per_trigger=min(limits.per_trigger, self._cap))

    def admitted(self) -> None:
        """Note that a micro-batch was planned."""
        if self._clock() < self._ends_at:
            self._cap *= _GROWTH


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
                warnings.append(
                    _stall_warning(key, offset, now - since, highs[key].offset - offset)
                )
                since = now
            kept[key] = (offset, since)
        self._held = kept
        return warnings


def _stall_warning(partition: Partition, offset: int, stood_s: float, waiting: int) -> str:
    return (
        f"{partition} has stood at its last stable offset {offset} for {stood_s:.0f} s while "
        f"{waiting} offsets wait behind it: a transaction is open. "
        "`kafka-transactions.sh find-hanging` names its producer."
    )

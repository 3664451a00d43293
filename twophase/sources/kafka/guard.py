"""Watches over one read on an executor: it either reaches its end, or says by name why it cannot (H31 to H34).

Complete is what has reached the position, not what has counted so many records: transactions and compaction leave gaps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from twophase.errors import SourceUnavailableError
from twophase.sources.kafka.cluster import Cluster
from twophase.sources.kafka.loss import check_begin, check_end, check_epoch
from twophase.sources.kafka.offsets import OffsetRange, PartitionOffset
from twophase.sources.kafka.options import KafkaOptions

_FIRST_LOOK_S = 1.0
_NEXT_LOOK_S = 5.0


class ReadGuard:
    """Says whether a read can begin, why it stands still, and after it whether it read the right topic.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(
        self, options: KafkaOptions, cluster: Cluster, item: OffsetRange, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._item = item
        self._clock = clock
        self._trouble = "none"
        self.moved()

    def moved(self) -> None:
        """The read has made progress."""
        self._since = self._clock()
        self._look_at = self._since + _FIRST_LOOK_S

    def waited(self, position: int) -> None:
        """The read stands at `position`, and nothing came.

        Raises:
            SourceLossError: what it waits for is gone.
            SourceUnavailableError: it stood still for longer than `read.timeout`.
        """
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _NEXT_LOOK_S
            available = self.look(position)
            if now - self._since >= self._options.read_timeout_s:
                raise SourceUnavailableError(
                    f"Source {self._item.source!r}: reading {self._item} has stood still at offset {position} for "
                    f"{now - self._since:.0f} s; it waits for offset {self._item.end - 1}. The broker says that "
                    f"{available} are available. Last trouble: {self._trouble}.",
                    remedy="check the partition's leader and the network; read.timeout says how long a read waits.",
                )

    def troubled(self, position: int, trouble: str) -> None:
        """The client reported a failure; it may still go on by itself.

        Raises:
            SourceLossError: what it waits for is gone.
        """
        self._trouble = trouble
        self.look(position)

    def failed(self, position: int, trouble: str) -> NoReturn:
        """The client gave the read up.

        Raises:
            SourceLossError: what it wanted is gone.
            SourceUnavailableError: anything else.
        """
        available = self.look(position)
        raise SourceUnavailableError(
            f"Source {self._item.source!r}: reading {self._item} failed at offset {position}: {trouble}. The broker says "
            f"that {available} are available.",
            remedy="a damaged or unsupported record fails again: check the brokers' logs and the installed codecs.",
        )

    def look(self, position: int) -> str:
        """Ask the brokers whether the rest of the range is there; return what is available."""
        entry = self._entry(position)
        self._cluster.confirm_topic(self._item.source, entry)
        begin = self._cluster.begins([entry.key]).get(entry.key)
        end = self._cluster.ends([entry.key]).get(entry.key)
        if begin is None or end is None:  # deleted since: the next look will say so
            return "no offsets"
        check_begin(self._item.source, entry, begin, end.offset)
        check_end(self._item.source, self._entry(self._item.end), begin, end.offset)
        return f"offsets {begin} to {end.offset}"

    def check(self) -> None:
        """Before a read: check that all of the range is there, and of the log that the batch means.

        Raises:
            SourceLossError: it is not.
        """
        self.look(self._item.start)
        self.finished()

    def finished(self) -> None:
        """The read has reached its end: check that it was of the topic, and of the log, that the batch means.

        Raises:
            SourceLossError: the topic was recreated, or the log truncated, at some time before this call.
        """
        entry = self._entry(self._item.end)
        topic = self._cluster.topics([entry.topic]).get(entry.topic)
        epoch = None if topic is None or topic.topic_id != entry.topic_id else topic.epochs.get(entry.partition)
        if epoch is None:
            self._cluster.confirm_topic(self._item.source, entry)
        elif epoch != entry.leader_epoch and entry.leader_epoch >= 0:
            for epoch_end in self._cluster.epoch_ends([entry]).values():
                check_epoch(self._item.source, entry, epoch_end)

    def _entry(self, offset: int) -> PartitionOffset:
        item = self._item
        return PartitionOffset(item.topic, item.topic_id, item.partition, offset, item.leader_epoch)

"""Guards one read on an executor: it reaches its end, or fails with a specific error (H31 to H34).

A read is complete when its position reaches the end. Records are not counted: transactions and
compaction leave gaps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from twophase.errors import BadRecordError, SourceUnavailableError
from twophase.kafka_client.access import AccessError, tls_remedy
from twophase.kafka_client.partitions import LogEnd
from twophase.sources.kafka.cluster import Cluster, covering_ends
from twophase.sources.kafka.loss import check_begin, check_end, check_epoch
from twophase.sources.kafka.offsets import OffsetRange, PartitionOffset
from twophase.sources.kafka.options import KafkaOptions

_FIRST_LOOK_S = 1.0
_NEXT_LOOK_S = 5.0


class ReadGuard:
    """Checks whether a read can begin, why it makes no progress, and whether it read the topic.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        options: KafkaOptions,
        cluster: Cluster,
        item: OffsetRange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._item = item
        self._clock = clock
        self._trouble = "none"
        self._stable: int | None = None
        self.moved()

    def moved(self) -> None:
        """Note that the read has made progress."""
        self._since = self._clock()
        self._look_at = self._since + _FIRST_LOOK_S

    def waited(self, position: int) -> None:
        """Note that the read is at `position`, and nothing has arrived.

        Raises:
            SourceLossError: the records that it waits for are gone.
            SourceUnavailableError: it has made no progress for longer than `read.timeout`.
        """
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _NEXT_LOOK_S
            available = self.look(position)
            if now - self._since >= self._options.read_timeout_s:
                raise self._stalled(position, now - self._since, available)

    def _stalled(self, position: int, waited_s: float, available: str) -> SourceUnavailableError:
        """Return why a read has waited in vain, as far as the last look tells."""
        what = f"{self._reading} has made no progress at offset {position} for {waited_s:.0f} s"
        if self._stable is not None and position >= self._stable:
            return SourceUnavailableError(
                f"{what}: a transaction is open at offset {self._stable}, and "
                "isolation.level=read_committed reads nothing behind it before it has ended. "
                "Nothing is lost.",
                remedy="let its producer end it: start that again if it is down. "
                "`kafka-transactions.sh find-hanging` names a transaction that nobody ends; "
                "read.timeout says how long a read waits.",
            )
        return SourceUnavailableError(
            f"{what}; it waits for offset {self._item.end - 1}. The broker says that {available} "
            f"are available. Last error: {self._trouble}.",
            remedy=tls_remedy(self._trouble)
            or "check the partition's leader and the network; "
            "read.timeout says how long a read waits.",
        )

    def troubled(self, position: int, trouble: str) -> None:
        """Note that the client has reported a failure, from which it may recover by itself.

        Raises:
            SourceLossError: the records that it waits for are gone.
            AccessError: the failure is one of TLS, and nothing else is known.
        """
        self._trouble = trouble
        try:
            self.look(position)
        except SourceUnavailableError as error:
            if remedy := tls_remedy(trouble):
                raise AccessError(f"{self._reading} fails: {trouble}.", remedy=remedy) from error
            raise

    def failed(self, position: int, trouble: str) -> NoReturn:
        """Fail the read, because the client has given it up.

        Raises:
            SourceLossError: the records that it wanted are gone.
            SourceUnavailableError: in all other cases.
        """
        raise SourceUnavailableError(
            f"{self._reading} failed at offset {position}: {trouble}. "
            f"The broker says that {self.look(position)} are available.",
            remedy="a corrupt or unsupported record fails each time: "
            "check the brokers' logs and the installed codecs.",
        )

    def no_utf8(self, position: int) -> NoReturn:
        """Fail the read, because a record has a header whose name is no text.

        Raises:
            BadRecordError: always.
        """
        raise BadRecordError(
            f"{self._reading}: a record from offset {position} of {self._item.key} on has a header "
            "whose name is not UTF-8.",
            remedy="correct the producer; to read what is there, read it with "
            "`fetch.engine=librdkafka` and without headers in `columns`.",
        )

    def refused(self, trouble: str) -> NoReturn:
        """Fail the read before it begins, because the client cannot be made.

        Raises:
            SourceLossError: the records that it wanted are gone.
            AccessError: the brokers refuse the driver's kind of client too.
            SourceUnavailableError: in all other cases.
        """
        self.look(self._item.start)
        raise SourceUnavailableError(
            f"{self._reading} cannot begin: {trouble}.",
            remedy="check the kafka.* options of the source, and that the brokers can be reached "
            "from the executors.",
        )

    def look(self, position: int) -> str:
        """Check that the rest of the range is in the log; return what is available, as text."""
        entry = self._entry(position)
        self._cluster.confirm_topic(self._item.source, entry)
        begin = self._cluster.begins([entry.key]).get(entry.key)
        end = self._cluster.ends([entry.key]).get(entry.key)
        if begin is None or end is None:  # deleted just now: the next look reports it
            return "no offsets"
        check_begin(self._item.source, entry, begin, end.offset)
        self._check_end(begin, end)
        return f"offsets {begin} to {end.offset}"

    def _check_end(self, begin: int, end: LogEnd) -> None:
        key, last = self._item.key, self._entry(self._item.end)
        ends = covering_ends(self._cluster, {key: last.offset}, {key: end})
        check_end(self._item.source, last, begin, ends[key].offset)
        self._stable = end.offset if last.offset > end.offset else None

    def check(self) -> None:
        """Check before a read that the whole range is there, in the log that the batch means.

        Raises:
            SourceLossError: it is not.
        """
        self.look(self._item.start)
        self.finished()

    def finished(self) -> None:
        """Check, when the read is at its end, that it read the topic and log of the batch.

        Raises:
            SourceLossError: the topic was recreated, or the log truncated, at some
                time before this call.
        """
        entry = self._entry(self._item.end)
        topic = self._cluster.topics([entry.topic]).get(entry.topic)
        epoch = (
            None
            if topic is None or topic.topic_id != entry.topic_id
            else topic.epochs.get(entry.partition)
        )
        if epoch is None:
            self._cluster.confirm_topic(self._item.source, entry)
        elif epoch != entry.leader_epoch and entry.leader_epoch >= 0:
            for epoch_end in self._cluster.epoch_ends([entry]).values():
                check_epoch(self._item.source, entry, epoch_end)

    @property
    def _reading(self) -> str:
        return f"Source {self._item.source!r}: reading {self._item}"

    def _entry(self, offset: int) -> PartitionOffset:
        item = self._item
        return PartitionOffset(item.topic, item.topic_id, item.partition, offset, item.leader_epoch)

"""A Kafka cluster that lives in memory, and a clock that stands until it is moved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from twophase.kafka_client.partitions import LogEnd, Partition, Topic
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.loss import check_topic
from twophase.sources.kafka.offsets import OffsetRange, PartitionOffset


@dataclass
class Log:
    """One partition. Its end is the last stable offset: where an open transaction holds it back,
    `high` is the high watermark.
    """

    begin: int = 0
    end: int = 0
    epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    high: int | None = None

    @property
    def high_watermark(self) -> int:
        return self.end if self.high is None else self.high

    def end_transaction(self) -> None:
        self.end, self.high = self.high_watermark, None


@dataclass
class MemoryCluster:
    """Answers as `Cluster` does. `logs` is topic id and partitions by topic.

    A topic has the cleanup policy "delete" unless `policies` has another; None may not be read.
    """

    logs: dict[str, tuple[str, list[Log]]]
    group: dict[Partition, int] = field(default_factory=dict)
    times: dict[Partition, int | None] = field(default_factory=dict)
    policies: dict[str, str | None] = field(default_factory=dict)
    asked: int = 0
    opened_ahead: int = 0

    def open_ahead(self) -> None:
        self.opened_ahead += 1

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {
            name: Topic(
                self.logs[name][0], {i: log.epoch for i, log in enumerate(self.logs[name][1])}
            )
            for name in names
            if name in self.logs
        }

    def matching(self, pattern: str) -> dict[str, Topic]:
        return self.topics([name for name in self.logs if re.fullmatch(pattern, name)])

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        self.asked += 1
        found = {key: self._log(key) for key in partitions}
        if None in found.values():
            return {}
        return {key: LogEnd(log.end, log.epoch) for key, log in found.items() if log is not None}

    def high_watermarks(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        if not partitions:
            return {}
        ends = self.ends(partitions)
        logs = {key: self._log(key) for key in ends}
        return {
            key: replace(ends[key], offset=log.high_watermark)
            for key, log in logs.items()
            if log is not None
        }

    def begins(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return {key: log.begin for key in partitions if (log := self._log(key)) is not None}

    def at_timestamp(
        self, partitions: Collection[Partition], milliseconds: int
    ) -> dict[Partition, int | None]:
        return {key: self.times.get(key) for key in partitions}

    def cleanup_policies(self, names: Collection[str]) -> dict[str, str]:
        found = {name: self.policies.get(name, "delete") for name in names}
        return {name: policy for name, policy in found.items() if policy is not None}

    def commit(self, group: str, entries: Collection[PartitionOffset]) -> None:
        self.group |= {entry.key: entry.offset for entry in entries}

    def close(self) -> None:
        """Do nothing: it is no connection."""

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        return {key: self.group[key] for key in partitions if key in self.group}

    def epoch_ends(self, entries: Collection[PartitionOffset]) -> dict[Partition, int]:
        logs = {entry: self._log(entry.key) for entry in entries}
        return {
            e.key: log.epoch_ends.get(e.leader_epoch, -1)
            for e, log in logs.items()
            if log is not None
        }

    def confirm_topic(self, source: str, entry: PartitionOffset) -> None:
        check_topic(source, entry, self.topics([entry.topic]).get(entry.topic))

    def _log(self, key: Partition) -> Log | None:
        logs = self.logs.get(key.topic, ("", []))[1]
        return logs[key.number] if key.number < len(logs) else None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


_BLOCK = 4


def fetch(_: object, item: OffsetRange, wanted: Wanted, guard: ReadGuard) -> Iterator[Block]:
    """Yield the records of a range of a `MemoryCluster`: the value is the offset as text."""
    assert wanted == Wanted()
    for start in range(item.start, item.end, _BLOCK):
        guard.look(start)
        offsets = range(start, min(start + _BLOCK, item.end))
        yield Block([b"%d" % offset for offset in offsets], offsets)

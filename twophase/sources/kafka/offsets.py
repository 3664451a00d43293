"""Offsets of the source as values: parsing, formatting, admission. No I/O, no clock.

The offset of the source, as Spark keeps it in its offset log, and the checkpoint
store as list state:

    {"version": 1, "source": UID, "partitions": null, "begin": null, "released": []}
        nothing yet: the start of batch 0
    {"version": 1, "source": UID, "partitions": [{"topic", "topic_id", "partition", "offset",
        "leader_epoch"}, ...], "begin": null, "released": [...]}
    {"version": 1, "source": UID, "partitions": [...], "begin": [...], "released": []}
        the end of the source's first batch

`offset` is the next one to read. The beginning of the source is resolved with its first batch and
recorded in `begin`, in the line that Spark writes before the batch runs, so every run of it reads
the same records (H55). A partition found later enters the list at its first offset, with no records
in that batch, so that its start is durable too (H33). One that an operator has released moves to
`released`, where nothing reads it or misses it; if the same topic is there again, it moves back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from twophase.errors import (
    CorruptRecordError,
    OffsetMismatchError,
    TopicRecreatedError,
)
from twophase.internals.json_values import read, to_json
from twophase.internals.record import newer_format
from twophase.kafka_client.partitions import UNKNOWN_EPOCH, LogEnd, Partition

VERSION = 1
FORMAT = "twophase-kafka"
WHERE = f"source {FORMAT}"
"""How errors of options begin."""
KEEP_UIDS = "keep the uids and the order of the sources as they were when the offsets were written."
"""The remedy if offsets belong to another source."""

_OLD_COPY = (
    "Spark's offset log was changed, or is an old copy: restore Spark's folder as it was after the "
    "newest checkpoint, or restore that checkpoint: `restore.path=PATH`."
)


@dataclass(frozen=True)
class PartitionOffset:
    """The source's position in one partition: one entry of its list state.

    Attributes:
        topic_id: the id the broker gave this creation of the topic (KIP-516); it identifies a
            recreated topic (H32).
        offset: the next offset to read.
        leader_epoch: the newest leader epoch known when `offset` was taken
            (KIP-320); -1 if unknown.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH

    @property
    def key(self) -> Partition:
        """The partition of the entry."""
        return Partition(self.topic, self.partition)


@dataclass(frozen=True)
class SourceOffset:
    """The offset of the whole source.

    Attributes:
        version: of the format of the line.
        source: the uid of the source.
        partitions: sorted by topic and partition; None before the start is resolved.
        begin: where the source began, likewise sorted; None except at the end of its first batch. A
            partition that was found while that batch was planned is not included.
        released: the partitions that the job goes on without, likewise sorted, each at the offset
            at which it was left.
    """

    version: Literal[1] = field(default=1, kw_only=True)
    source: str
    partitions: tuple[PartitionOffset, ...] | None
    begin: tuple[PartitionOffset, ...] | None = None
    released: tuple[PartitionOffset, ...] = ()

    @classmethod
    def initial(cls, source: str) -> Self:
        """Return the constant for "nothing yet"."""
        return cls(source, None)

    @classmethod
    def of(cls, source: str, entries: Iterable[PartitionOffset]) -> Self:
        """Return an offset with its entries sorted."""
        return cls(source, _sorted(entries))

    @classmethod
    def parse(cls, value: str | Mapping[str, Any]) -> Self:
        """Parse an offset line, or the value that `json.loads` made of it.

        Raises:
            CorruptRecordError: it is not an offset of this source.
            NewerFormatError: a newer version of twophase has written it.
        """
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise _corrupt(f"not JSON: {error}") from None
        if isinstance(value, Mapping) and _is_newer(value):
            raise newer_format(
                f"The offset of Kafka source {value['source']!r}", value["version"], VERSION
            )
        try:
            found = read(cls, value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _corrupt(str(error)) from None
        offset = replace(
            found,
            partitions=_listed(found.partitions),
            begin=_listed(found.begin),
            released=_listed(found.released) or (),
        )
        if offset.begin is not None and (
            offset.partitions is None
            or not offset.start.by_partition().keys() <= offset.by_partition().keys()
        ):
            raise _corrupt("it began with partitions that it has not ended with")
        return offset

    @property
    def has_begun(self) -> bool:
        """Whether the start is resolved: the source has planned a batch before."""
        return self.partitions is not None

    @property
    def start(self) -> Self:
        """The unrecorded start of the batch that ended here: its beginning, or "nothing yet"."""
        return type(self)(self.source, self.begin)

    def to_values(self) -> dict[str, Any]:
        """Return the offset as the JSON values that Spark's runner takes."""
        values: dict[str, Any] = to_json(self)
        return values

    def to_line(self) -> str:
        """Return the offset as the line that Spark writes into its offset log.

        Equal offsets give equal text, which Spark compares.
        """
        return json.dumps(self.to_values())

    def with_partitions(self, entries: Iterable[PartitionOffset]) -> Self:
        """Return a later offset with other entries; what they have again is not released any more.

        Only the end of the first batch has `begin`.
        """
        listed = _sorted(entries)
        back = {entry.key for entry in listed}
        left = tuple(entry for entry in self.released if entry.key not in back)
        return type(self)(self.source, listed, released=left)

    def releasing(self, start: Self, parts: Self) -> Self:
        """Return the end of a batch that leaves partitions behind, where it starts.

        Args:
            start: of the batch.
            parts: the partitions. Those that do not stand there at the start stay as they are.
        """
        begins = start.by_partition()
        wanted = parts.partitions or () if parts.source == self.source else ()
        left = {entry.key: begins[entry.key] for entry in wanted if _is_at(begins, entry)}
        if self.partitions is None or not left.keys() & self.by_partition().keys():
            return self
        begin = None if self == start else self.begin  # of the first batch alone
        return type(self)(
            self.source,
            tuple(entry for entry in self.partitions if entry.key not in left),
            begin and tuple(entry for entry in begin if entry.key not in left),
            _sorted([*(one for one in self.released if one.key not in left), *left.values()]),
        )

    def by_partition(self) -> dict[Partition, PartitionOffset]:
        """Return the entries by partition."""
        return {entry.key: entry for entry in self.partitions or ()}

    def positions(self) -> dict[Partition, int]:
        """Return the next offset of each partition."""
        return {entry.key: entry.offset for entry in self.partitions or ()}


@dataclass(frozen=True)
class Limits:
    """Limits on what one batch may admit, counted in offsets; None is no limit."""

    per_trigger: int | None = None
    per_partition: int | None = None


@dataclass(frozen=True)
class OffsetRange:
    """A piece of one partition that one task reads.

    Attributes:
        source: the uid of the source.
        start: first offset of the piece.
        end: offset after its last one.
        leader_epoch: the leader epoch of the entry that the range ends at.
    """

    source: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader_epoch: int = UNKNOWN_EPOCH

    @property
    def key(self) -> Partition:
        """The partition of the range."""
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.key}:{self.start} to {self.end}"


def advance(start: SourceOffset, ends: Mapping[Partition, LogEnd], limits: Limits) -> SourceOffset:
    """Return the end of the next batch.

    Args:
        start: resolved, with no entry beyond its end.
        ends: an end for each partition that may advance; others stay.
        limits: what the batch may admit.

    Returns:
        `start` itself if nothing advances.
    """
    entries = start.partitions or ()
    wanted = [
        ends[entry.key].offset - entry.offset if entry.key in ends else 0 for entry in entries
    ]
    if limits.per_partition is not None:
        wanted = [min(lag, limits.per_partition) for lag in wanted]
    taken = wanted if limits.per_trigger is None else share(wanted, limits.per_trigger)
    if not any(taken):
        return start
    moved = (
        replace(entry, offset=entry.offset + step, leader_epoch=ends[entry.key].leader_epoch)
        if step
        else entry
        for entry, step in zip(entries, taken, strict=True)
    )
    return start.with_partitions(moved)


def share(wanted: list[int], budget: int) -> list[int]:
    """Divide a budget in proportion to what each wants; each gets at least 1 while it lasts.

    Returns:
        Shares that add up to `min(budget, sum(wanted))`, none above what was wanted.
    """
    if sum(wanted) <= budget:
        return wanted
    lagging = sorted(
        (i for i, want in enumerate(wanted) if want), key=lambda i: wanted[i], reverse=True
    )
    shares = [0] * len(wanted)
    for i in lagging[:budget]:
        shares[i] = 1
    rest, total = budget - len(lagging), sum(wanted) - len(lagging)
    if rest <= 0:
        return shares
    for i in lagging:
        shares[i] += (wanted[i] - 1) * rest // total
    # the remainder of rounding, less than the number of partitions
    for i in lagging[: budget - sum(shares)]:
        shares[i] += 1
    return shares


def waiting(ends: Mapping[Partition, int], latest: Mapping[Partition, int]) -> int | None:
    """Return how many records wait between two positions; None if either has no partition."""
    if not ends or not latest:
        return None
    return sum(max(0, offset - ends.get(key, 0)) for key, offset in latest.items())


def ranges(start: SourceOffset, end: SourceOffset, min_tasks: int = 1) -> list[OffsetRange]:
    """Return what the tasks of a batch read: a range for each partition, or more of them.

    Raises:
        OffsetMismatchError: `end` is not a later offset of the same source.
        TopicRecreatedError: the two name different creations of a topic.
    """
    if start.source != end.source:
        raise OffsetMismatchError(
            f"A batch begins at an offset of source {start.source!r} and ends "
            f"at one of {end.source!r}.",
            remedy=KEEP_UIDS,
        )
    if start.partitions is None:
        start = end.start
    if start.partitions is None:
        return []
    before, after = start.by_partition(), end.by_partition()
    if not before.keys() <= after.keys() | {entry.key for entry in end.released}:
        raise OffsetMismatchError(
            f"A batch of source {start.source!r} ends without partitions of its start.",
            remedy=_OLD_COPY,
        )
    whole = [
        _range(end.source, before[key], entry) for key, entry in after.items() if key in before
    ]
    whole = [item for item in whole if item.end > item.start]
    total = sum(item.end - item.start for item in whole)
    return [piece for item in whole for piece in _split(item, max(1, total // min_tasks))]


def _range(source: str, before: PartitionOffset, after: PartitionOffset) -> OffsetRange:
    if before.topic_id != after.topic_id:
        raise TopicRecreatedError(
            f"Source {source!r}: topic {before.topic!r} had the id "
            f"{before.topic_id} when the batch began and {after.topic_id} when it ended: it was "
            "deleted and created again."
        )
    if after.offset < before.offset:
        raise OffsetMismatchError(
            f"Source {source!r}: the batch would read {after.key} backwards, "
            f"from {before.offset} to {after.offset}.",
            remedy=_OLD_COPY,
        )
    return OffsetRange(
        source,
        after.topic,
        after.topic_id,
        after.partition,
        before.offset,
        after.offset,
        after.leader_epoch,
    )


def _split(item: OffsetRange, target: int) -> list[OffsetRange]:
    length = item.end - item.start
    count = min(length, -(-length // target))
    cuts = [item.start + length * i // count for i in range(count + 1)]
    return [replace(item, start=low, end=high) for low, high in itertools.pairwise(cuts)]


def _is_at(begins: Mapping[Partition, PartitionOffset], entry: PartitionOffset) -> bool:
    found = begins.get(entry.key)
    return found is not None and (found.topic_id, found.offset) == (entry.topic_id, entry.offset)


def _is_newer(document: Mapping[str, Any]) -> bool:
    """Return whether a newer version of this source has written a document, by its uid."""
    version = document.get("version")
    return type(version) is int and version > VERSION and isinstance(document.get("source"), str)


def _listed(entries: tuple[PartitionOffset, ...] | None) -> tuple[PartitionOffset, ...] | None:
    """Return the entries of a line, checked and sorted."""
    if entries is None:
        return None
    if len({entry.key for entry in entries}) != len(entries):
        raise _corrupt("a partition is listed twice")
    for entry in entries:
        if entry.offset < 0 or entry.partition < 0:
            raise _corrupt(f"{entry.key} stands at {entry.offset}")
    return _sorted(entries)


def _sorted(entries: Iterable[PartitionOffset]) -> tuple[PartitionOffset, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.key))


def _corrupt(what: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"Cannot read an offset of the Kafka source: {what}.",
        remedy="check that the offset log and the checkpoint belong to this job and "
        "this release of twophase.",
    )

"""The Kafka source in checkpoints: reads offset lines, asks the brokers what they still have."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.contract.source import ReadsInTasks, ReleasesTopics, SourceLeg, option
from twophase.errors import (
    CorruptRecordError,
    NewerFormatError,
    PreflightError,
    SourceUnavailableError,
)
from twophase.functions.operator_state import Redistribution
from twophase.internals.json_values import to_json
from twophase.kafka_client.credentials import SecretError, check_secrets
from twophase.kafka_client.other_names import with_our_names
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.data_source import KafkaDataSource
from twophase.sources.kafka.engines import check_range, close_cluster, planner_of
from twophase.sources.kafka.group import GroupOffsets
from twophase.sources.kafka.offsets import (
    VERSION,
    WHERE,
    OffsetRange,
    PartitionOffset,
    SourceOffset,
    ranges,
    waiting,
)
from twophase.sources.kafka.options import KafkaOptions, ValueFormat
from twophase.sources.kafka.range_reader import KafkaRangeReader
from twophase.sources.kafka.starting_offsets import (
    LATEST_SENTINEL,
    Latest,
    Specific,
    begins_at,
    parse_starting,
)
from twophase.spark_versions import LIMITED_READS

if TYPE_CHECKING:
    import pyarrow as pa

_RELEASED = "released"


class KafkaSource(ReadsInTasks[OffsetRange], ReleasesTopics):
    """`twophase-kafka`: list state, one entry for each partition."""

    redistribution = Redistribution.SPLIT

    def data_source(self) -> type[KafkaDataSource]:
        """Return the data source that Spark reads through."""
        return KafkaDataSource

    def check_options(self, leg: SourceLeg) -> None:
        """See `Source.check_options`.

        Raises:
            PreflightError: this Spark cannot read through it.
        """
        LIMITED_READS.require()
        KafkaOptions.parse(leg.options)

    def check_secrets(self, leg: SourceLeg) -> None:
        """See `Source.check_secrets`."""
        check_secrets(KafkaOptions.parse(leg.options))

    def needs_schema(self, options: Mapping[str, str]) -> bool:
        """See `Source.needs_schema`."""
        return KafkaOptions.parse(options).value_format is ValueFormat.JSON

    def owns(self, line: str) -> bool:
        """See `Source.owns`."""
        try:
            SourceOffset.parse(line)
        except (CorruptRecordError, NewerFormatError):
            return False
        return True

    def uid(self, leg: SourceLeg) -> str:
        """Return the option `uid`, without a check of the others."""
        return option(leg.options, "uid") or str(KafkaOptions.model_fields["uid"].default)

    def uid_in(self, line: str) -> str:
        """See `Source.uid_in`."""
        return SourceOffset.parse(line).source

    def entries(self, line: str) -> list[Any]:
        """Return one entry for each partition; none before the start is resolved."""
        offset = SourceOffset.parse(line)
        left = [{_RELEASED: to_json(entry)} for entry in offset.released]
        return [*map(to_json, offset.partitions or ()), *left]

    def start_line(self, uid: str, entries: Sequence[Any]) -> str:
        """See `Source.start_line`.

        Raises:
            CorruptRecordError: an entry is damaged, or two name the same partition.
        """
        left = [entry[_RELEASED] for entry in entries if _RELEASED in entry]
        document = {
            "version": VERSION,
            "source": uid,
            "partitions": [dict(entry) for entry in entries if _RELEASED not in entry],
            "begin": None,
            "released": left,
        }
        return SourceOffset.parse(document).to_line()

    def first_line(self, end: str) -> str | None:
        """Return the beginning that the end of a source's first micro-batch records."""
        start = SourceOffset.parse(end).start
        return None if start.partitions is None else start.to_line()

    def begin_after(self, line: str) -> str:
        """See `Source.begin_after`."""
        offset = SourceOffset.parse(line)
        topics: dict[str, dict[str, int]] = {}
        for entry in offset.partitions or ():
            topics.setdefault(entry.topic, {})[str(entry.partition)] = entry.offset
        return f"`startingOffsets={json.dumps(topics)}` of source {offset.source!r}"

    def lag(self, end: str, latest: str) -> int | None:
        """See `Source.lag`."""
        begin, stop = (SourceOffset.parse(line).positions() for line in (end, latest))
        return waiting(begin, stop)

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        """Ask the brokers for each partition: is it the same topic, are the records there?

        Returns:
            False if a topic that the pattern has found since has lost its first records, which the
            job may have read.

        Raises:
            RestoreRefusedError: a topic is compacted, or may be.
        """
        return planner_of(KafkaOptions.parse(leg.options)).check(SourceOffset.parse(line))

    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        """Commit the group offsets, if there is a `group.id`."""
        options = KafkaOptions.parse(leg.options)
        if options.group_id is not None:
            GroupOffsets(options).commit(line)

    def notify_rewound(self, leg: SourceLeg, line: str) -> None:
        """Lower the group offsets, if there is a `group.id`."""
        options = KafkaOptions.parse(leg.options)
        if options.group_id is not None:
            GroupOffsets(options).lower(line)

    def close(self, leg: SourceLeg) -> None:
        """Close the connection to the brokers, if there is one."""
        close_cluster(KafkaOptions.parse(leg.options))

    def starting_offsets(self, options: Mapping[str, str]) -> str | None:
        """See `Source.starting_offsets`."""
        return with_our_names(options, KafkaOptions.keys(), WHERE).get("startingOffsets")

    def skips_existing(self, options: Mapping[str, str]) -> bool:
        """Return whether a fresh start begins, in some partition, after existing records."""
        if (option(options, "startingOffsets.fallback") or "").strip().lower() == "latest":
            return True
        try:
            starting = parse_starting(option(options, "startingOffsets"))
        except ValueError:
            return False  # the job's start reports it
        match starting:
            case Latest():
                return True
            case Specific(listed):
                return any(offset == LATEST_SENTINEL for _, offset in listed)
            case _:
                return False

    def begins_at(self, line: str, starting: str) -> bool | None:
        """See `Source.begins_at`."""
        return begins_at(SourceOffset.parse(line).positions(), starting)

    # -- going on without what is gone -------------------------------------------------------------

    def missing(
        self, leg: SourceLeg, line: str, topics: Collection[str]
    ) -> tuple[str, Sequence[str]]:
        """See `ReleasesTopics.missing`."""
        offset = SourceOffset.parse(line)
        missing = planner_of(KafkaOptions.parse(leg.options)).missing(offset)
        found = {entry: what for entry, what in missing.items() if entry.topic in topics}
        return SourceOffset.of(offset.source, found).to_line(), [*found.values()]

    def released(self, start: str, end: str, parts: str) -> str:
        """See `ReleasesTopics.released`."""
        begin, stop, left = map(SourceOffset.parse, (start, end, parts))
        return stop.releasing(begin, left).to_line()

    # -- reading a range again ---------------------------------------------------------------------

    def ranges(self, leg: SourceLeg, start: str | None, end: str | None) -> Sequence[OffsetRange]:
        """See `RereadsRanges.ranges`."""
        options = KafkaOptions.parse(leg.options)
        begin, stop = (_parsed(options.uid, line) for line in (start, end))
        return ranges(begin, stop, options.min_read_tasks)

    def check_range(self, leg: SourceLeg, item: OffsetRange) -> None:
        """See `RereadsRanges.check_range`."""
        check_range(KafkaOptions.parse(leg.options), item)

    def range_reader(self, leg: SourceLeg, schema: pa.Schema) -> KafkaRangeReader:
        """See `ReadsInTasks.range_reader`."""
        return KafkaRangeReader(KafkaOptions.parse(leg.options), schema)

    def has_begun(self, leg: SourceLeg, start: str | None) -> bool:
        """See `ReadsInTasks.has_begun`."""
        return _parsed(self.uid(leg), start).has_begun

    def may_change(self, leg: SourceLeg, ranges: Sequence[OffsetRange]) -> str:
        """See `ReadsInTasks.may_change`: the topic is compacted, or may be."""
        topics = sorted({item.topic for item in ranges})
        try:
            found = planner_of(KafkaOptions.parse(leg.options)).compaction(topics)
        except (SourceUnavailableError, PreflightError, SecretError) as error:
            return f"nobody knows whether a topic is compacted: {error.what}"
        return next((f"the topic {topic!r} {what}" for topic, what in found.items()), "")

    def narrowed(
        self, leg: SourceLeg, start: str | None, end: str | None, items: Iterable[OffsetRange]
    ) -> tuple[str, str]:
        """See `RereadsRanges.narrowed`. Every other partition stays at its end."""
        chosen = {item.key: item for item in items}
        begin, stop = (_parsed(self.uid(leg), line) for line in (start, end))
        stay = stop.positions()
        begins = {key: item.start for key, item in chosen.items()}
        ends = {key: item.end for key, item in chosen.items()}
        return _moved(begin, stay | begins), _moved(stop, stay | ends)


def _parsed(uid: str, line: str | None) -> SourceOffset:
    return SourceOffset.parse(line) if line else SourceOffset.initial(uid)


def _moved(offset: SourceOffset, to: Mapping[Partition, int]) -> str:
    def move(entry: PartitionOffset) -> PartitionOffset:
        return replace(entry, offset=to.get(entry.key, entry.offset))

    if offset.partitions is None:
        return offset.to_line()
    return offset.with_partitions(map(move, offset.partitions)).to_line()

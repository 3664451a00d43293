"""Spark's own Kafka source (`kafka`), as far as its offset lines tell.

A line is `{"topic": {"partition": next offset}}`, without topic ids and leader epochs: a topic that
was deleted and created again, and a log that was truncated and has grown again, cannot be detected.
Where the first micro-batch began is not in its line either.

The brokers are asked by the client of `twophase-kafka`, which understands `kafka.bootstrap.servers`
and the security options of that source (docs/kafka.md). They can be given beside those of Spark's
client, which ignores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from twophase.contract.source import RereadsRanges, SourceLeg, option
from twophase.errors import ConfigError, CorruptRecordError, SourceLossError, StopJobError
from twophase.kafka_client.other_names import ALIASES
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.engines import (
    check_range,
    close_cluster,
    cluster_of,
    planner_of,
)
from twophase.sources.kafka.group import GroupOffsets
from twophase.sources.kafka.offsets import OffsetRange, PartitionOffset, SourceOffset, waiting
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.starting_offsets import LATEST_SENTINEL, begins_at

FORMAT = "kafka"
_WHERE = f"source {FORMAT}"
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_BY_TIME = _STARTS[:2]
_CLIENT = frozenset(key.lower() for key in KafkaOptions.keys() if key.startswith("kafka."))  # noqa: SIM118
_SHARED = ("subscribe", "subscribePattern", "startingOffsets", "group.id", "uid")
_IGNORED = {key.lower() for key in KafkaOptions.keys() if key not in _SHARED} - _CLIENT  # noqa: SIM118
_TOPICS = ("subscribe", "subscribePattern", "assign")
_LOSS = "KAFKA_DATA_LOSS"
"""The condition of Spark's errors; its SQLSTATE is that of a data exception."""
_SPARK_S = {ours.lower(): theirs for theirs, ours in ALIASES.items()}


class SparkKafkaSource(RereadsRanges[OffsetRange]):
    """`kafka`: group offsets with the option `group.id`, loss checks, whole checkpoints again."""

    def check_options(self, leg: SourceLeg) -> None:
        """Check that group offsets can be committed, if they are asked for.

        Raises:
            ConfigError: an option is one of `twophase-kafka`, which Spark would pass over without a
                word; or `group.id` is given, and the client of `twophase-kafka` cannot connect with
                the other options.
        """
        for name in leg.options:
            if name.lower() in _IGNORED:
                theirs = _SPARK_S.get(name.lower())
                raise ConfigError(
                    f"{_WHERE}: {name!r} is an option of twophase-kafka, and Spark's own source "
                    "would ignore it.",
                    remedy=f"set {theirs} instead." if theirs else "leave it out.",
                )
        if _group(leg) is not None:
            _options(leg)

    def owns(self, line: str) -> bool:
        """See `Source.owns`."""
        try:
            _parsed(line)
        except CorruptRecordError:
            return False
        return True

    def may_be_at(self, leg: SourceLeg, line: str) -> bool:
        """See `Source.may_be_at`: if it reads one of the topics."""
        return any(_reads(leg, key.topic) for key in _parsed(line))

    def named(self, leg: SourceLeg) -> str:
        """See `Source.named`: with its topics."""
        given = (option(leg.options, name) for name in _TOPICS)
        return f"{leg.name} ({next(filter(None, given), '')})"

    def may_have_noted(self, leg: SourceLeg, log: Path) -> bool:
        """See `Source.may_have_noted`: Spark notes where each partition began."""
        try:
            line = (log / "0").read_bytes().decode(errors="replace").rpartition("\n")[2]
        except FileNotFoundError:
            return True
        return not self.owns(line) or self.may_be_at(leg, line)

    def begin_after(self, line: str) -> str:
        """See `Source.begin_after`: Spark's option takes the offsets as the line has them."""
        return f"`startingOffsets={line}`"

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        """Ask the brokers for each partition whether the records from its offset on are there.

        Returns:
            False if the client cannot connect with the options of Spark's client, or as for
            `twophase-kafka`.
        """
        offsets = _parsed(line)
        try:
            options = _options(leg)
        except ConfigError:
            return False
        if _needs_files_of_its_own(leg, options):
            return False
        return planner_of(options).check(_with_ids(options, offsets), grows=_grows(leg))

    def lag(self, end: str, latest: str) -> int | None:
        """See `Source.lag`."""
        return waiting(_parsed(end), _parsed(latest))

    def loss(self, condition: str, said: str) -> SourceLossError | None:
        """See `Source.loss`."""
        if not condition.startswith(_LOSS):
            return None
        return SourceLossError(
            said,
            remedy="look which records are gone. If two Kafka sources of the program have "
            "exchanged topics, give them their old ones. Otherwise, to go on without these "
            "records, and without a topic or partition that is not read any more, start the job "
            "once with the option failOnDataLoss=false of its Kafka source.",
        )

    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        """Commit the group offsets, if there is a `group.id`, which Spark's client ignores."""
        if _group(leg) is not None:
            options = _options(leg)
            GroupOffsets(options).commit(_with_ids(options, _parsed(line)).to_line())

    def notify_rewound(self, leg: SourceLeg, line: str) -> None:
        """Lower the group offsets, if there is a `group.id`."""
        if _group(leg) is not None:
            options = _options(leg)
            offset = _with_ids(options, _parsed(line))
            GroupOffsets(options).lower(offset.to_line(), grows=_grows(leg))

    def close(self, leg: SourceLeg) -> None:
        """Close the connection to the brokers, if there is one."""
        try:
            options = _options(leg)
        except ConfigError:
            return  # nothing can have been opened
        close_cluster(options)

    def starting_offsets(self, options: Mapping[str, str]) -> str | None:
        """See `Source.starting_offsets`."""
        given = ((name, option(options, name)) for name in _STARTS)
        name, value = next((one for one in given if one[1] is not None), ("", None))
        return f"{name}={value}" if name in _BY_TIME else value

    def skips_existing(self, options: Mapping[str, str]) -> bool:
        """See `Source.skips_existing`. Spark's default is `latest`."""
        if any(option(options, name) is not None for name in _BY_TIME):
            return False
        text = (option(options, "startingOffsets") or "latest").strip()
        try:
            return LATEST_SENTINEL in _parsed(text, lowest=-2).values()
        except CorruptRecordError:
            return text.lower() == "latest"

    def begins_at(self, line: str, starting: str) -> bool | None:
        """See `Source.begins_at`."""
        return begins_at(_parsed(line), starting)

    # -- reading a range again ---------------------------------------------------------------------

    def ranges(self, leg: SourceLeg, start: str | None, end: str | None) -> Sequence[OffsetRange]:
        """Return a range for each partition, whatever Spark makes its tasks of.

        Raises:
            StopJobError: a partition has begun in this micro-batch.
        """
        begins, ends = (_parsed(line) if line else {} for line in (start, end))
        if new := sorted(ends.keys() - begins.keys()):
            raise StopJobError(
                f"{_WHERE}: {new[0]} was first read in this micro-batch, and Spark's offsets do "
                "not name its first record. Nothing was written.",
                remedy="give up these rows: twophase repair accept-loss.",
            )
        return [
            OffsetRange(FORMAT, key.topic, "", key.number, begins[key], at)
            for key, at in sorted(ends.items())
            if at > begins[key]
        ]

    def numbers_tasks(self) -> bool:
        """Return False: Spark orders its tasks as its JVM orders the partitions."""
        return False

    def check_range(self, leg: SourceLeg, item: OffsetRange) -> None:
        """See `RereadsRanges.check_range`."""
        options = _options(leg)
        [entry] = _with_ids(options, {item.key: item.start}).partitions or ()
        known = OffsetRange(
            FORMAT, item.topic, entry.topic_id, item.partition, item.start, item.end
        )
        check_range(options, known)

    def narrowed(
        self, leg: SourceLeg, start: str | None, end: str | None, items: Iterable[OffsetRange]
    ) -> tuple[str, str]:
        """See `RereadsRanges.narrowed`. Every other partition stays at its end."""
        chosen = {item.key: item for item in items}
        stay = _parsed(end) if end else {}
        begins = stay | {key: item.start for key, item in chosen.items()}
        ends = stay | {key: item.end for key, item in chosen.items()}
        return _line(begins), _line(ends)


def _group(leg: SourceLeg) -> str | None:
    return option(leg.options, "group.id")


def _reads(leg: SourceLeg, topic: str) -> bool:
    """Return whether a source reads a topic; True if its options do not tell."""
    subscribe, pattern, assigned = (option(leg.options, name) for name in _TOPICS)
    try:
        if subscribe is not None:
            return topic in {name.strip() for name in subscribe.split(",")}
        if pattern is not None:
            return re.fullmatch(pattern, topic) is not None
        return assigned is None or topic in json.loads(assigned)
    except (ValueError, TypeError, re.error):
        return True


def _grows(leg: SourceLeg) -> bool:
    """Return whether the source also reads partitions that are added later."""
    return option(leg.options, "assign") is None


def _parsed(line: str, lowest: int = 0) -> dict[Partition, int]:
    """Return the offsets in a line, by partition.

    Raises:
        CorruptRecordError: the line is not one of Spark's Kafka source.
    """
    try:
        offsets = {
            Partition(topic, int(number)): at
            for topic, listed in json.loads(line).items()
            for number, at in listed.items()
            if number.isdecimal()
        }
        if offsets and all(type(at) is int and at >= lowest for at in offsets.values()):
            return offsets
        cause = None
    except (ValueError, AttributeError) as error:
        cause = error
    raise CorruptRecordError(
        f"Cannot read this offset of Spark's Kafka source: {line[:200]!r}.",
        remedy="check that the offset log and the checkpoint belong to this job.",
    ) from cause


def _line(offsets: Mapping[Partition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for key, at in sorted(offsets.items()):
        topics.setdefault(key.topic, {})[str(key.number)] = at
    return json.dumps(topics, separators=(",", ":"))


def _options(leg: SourceLeg) -> KafkaOptions:
    """Return the options by which the client of `twophase-kafka` reaches the same brokers.

    Raises:
        ConfigError: it cannot, with these.
    """
    shared = _CLIENT | {"group.id", "subscribe", "subscribepattern"}
    given = {key: value for key, value in leg.options.items() if key.lower() in shared}
    if (assigned := option(leg.options, "assign")) is not None:
        given["subscribe"] = ",".join(json.loads(assigned))
    level = option(leg.options, "kafka.isolation.level") or "read_uncommitted"
    return KafkaOptions.parse(given | {"isolation.level": level}, _WHERE)


def _needs_files_of_its_own(leg: SourceLeg, options: KafkaOptions) -> bool:
    """Return whether only Spark's client has certificates: it is given them in a truststore."""
    given = {key.lower() for key in leg.options if key.lower().startswith("kafka.ssl.")}
    return options.tls and bool(given) and not given & _CLIENT


def _with_ids(options: KafkaOptions, offsets: Mapping[Partition, int]) -> SourceOffset:
    """Return offsets with the ids that their topics have now; empty if one does not exist."""
    topics = cluster_of(options).topics({key.topic for key in offsets})
    return SourceOffset.of(
        FORMAT,
        (
            PartitionOffset(
                key.topic, topics[key.topic].topic_id if key.topic in topics else "", key.number, at
            )
            for key, at in offsets.items()
        ),
    )

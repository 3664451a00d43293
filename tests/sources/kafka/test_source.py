"""The Kafka source keeps the contract of sources, over a cluster in memory."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from harness.spark_features import needs
from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from twophase.contract.source import SourceLeg
from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    PreflightError,
    RestoreRefusedError,
    SourceUnavailableError,
    TopicRecreatedError,
)
from twophase.kafka_client.credentials import SecretError
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka import KafkaSource
from twophase.sources.kafka.engines import planner_of
from twophase.sources.kafka.offsets import Limits, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.spark_versions import LIMITED_READS
from twophase.testing.contract import (
    NotifyingSourceContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
    RereadsRangesContract,
    SourceContract,
    SourceHarness,
)

OPTIONS = {"kafka.bootstrap.servers": "memory:1", "subscribe": "orders", "uid": "a"}


def starting_of(line: str) -> str:
    """The option that begins where a line of `twophase-kafka` stands."""
    topics: dict[str, dict[str, int]] = {}
    for entry in SourceOffset.parse(line).partitions or ():
        topics.setdefault(entry.topic, {})[str(entry.partition)] = entry.offset
    return json.dumps(topics)


class KafkaHarness(SourceHarness):
    source: KafkaSource
    columns = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
    topic_names = ("orders",)

    def __init__(self, memory: MemoryCluster, **options: str) -> None:
        self.memory = memory
        self.source = KafkaSource()
        self.leg = SourceLeg("twophase-kafka", OPTIONS | {"group.id": "etl"} | options)
        self._at = SourceOffset.initial("a")

    def append(self) -> str:
        for log in self.memory.logs["orders"][1]:
            log.end += 10
        planner = planner_of(KafkaOptions.parse(self.leg.options))
        self._at = planner.latest(self._at, Limits())
        return self._at.to_line()

    def lose(self, line: str) -> None:
        for entry in SourceOffset.parse(line).partitions or ():
            self.memory.logs["orders"][1][entry.partition].begin = entry.offset

    def starting(self, line: str) -> str:
        return starting_of(line)

    def loosen(self) -> bool:
        self.memory.policies["orders"] = "compact"
        return True

    def drop(self) -> None:
        del self.memory.logs["orders"]

    def written(self) -> list[dict[str, Any]]:
        return [
            {"partition": partition, "offset": offset, "value": b"%d" % offset}
            for partition, log in enumerate(self.memory.logs["orders"][1])
            for offset in range(log.end)
        ]

    def progress(self) -> object:
        return dict(self.memory.group) or None


@pytest.fixture
def harness(memory: MemoryCluster) -> KafkaHarness:
    return KafkaHarness(memory)


@needs(LIMITED_READS)
class TestKafkaSource(
    SourceContract,
    NotifyingSourceContract,
    RereadsRangesContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
):
    @pytest.fixture
    def harness(self, memory: MemoryCluster) -> KafkaHarness:
        return KafkaHarness(memory)


class TestKafkaSourceWithManyReadTasks(RereadsRangesContract, ReadsInTasksContract):
    @pytest.fixture
    def harness(self, memory: MemoryCluster) -> KafkaHarness:
        return KafkaHarness(memory, minReadTasks="6")


def test_a_range_that_was_split_is_read_from_its_start_to_its_end(memory: MemoryCluster) -> None:
    harness = KafkaHarness(memory, minReadTasks="6")
    first, second = harness.append(), harness.append()
    for item in harness.source.ranges(harness.leg, first, second):
        low, high = harness.source.narrowed(harness.leg, first, second, [item])
        found = harness.source.ranges(harness.leg, low, high)
        assert (found[0].start, found[-1].end) == (item.start, item.end)


def test_a_topic_that_was_recreated_or_deleted_is_named(harness: KafkaHarness) -> None:
    line = harness.append()
    backup = harness.memory.logs["orders"]
    harness.memory.logs["orders"] = ("id-2", [Log(0, 90), Log(0, 90)])
    with pytest.raises(TopicRecreatedError, match="its id was id-1 and is id-2") as caught:
        harness.source.check_readable(harness.leg, line, None)
    way_on = "restore the topic as it was, with its id and its offsets, from a backup"
    assert way_on in caught.value.remedy
    del harness.memory.logs["orders"]
    with pytest.raises(PartitionVanishedError, match="no longer exists") as gone:
        harness.source.check_readable(harness.leg, line, None)
    assert way_on in gone.value.remedy
    harness.memory.logs["orders"] = backup
    assert harness.source.check_readable(harness.leg, line, None)


def test_a_topic_that_is_no_longer_subscribed_is_named(harness: KafkaHarness) -> None:
    line = harness.append()
    leg = SourceLeg(harness.leg.name, {**harness.leg.options, "subscribe": "payments"})
    with pytest.raises(ConfigError, match="which is no longer subscribed") as caught:
        harness.source.check_readable(leg, line, None)
    assert caught.value.remedy == "subscribe the topic again."
    harness.memory.logs["payments"] = ("id-2", [Log()])
    both = SourceLeg(leg.name, {**leg.options, "subscribe": "payments,orders"})
    assert harness.source.check_readable(both, line, None)


def test_the_offset_of_another_source_is_refused_and_its_own_is_not(harness: KafkaHarness) -> None:
    line = harness.append()
    with pytest.raises(CorruptRecordError, match="Cannot read an offset") as caught:
        harness.source.check_readable(harness.leg, '{"orders":{"0":5}}', None)
    assert "belong to this job" in caught.value.remedy
    assert harness.source.check_readable(harness.leg, line, None)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("compact", r"'orders' is compacted \(cleanup.policy=compact\).*no mark in the offsets"),
        ("compact,delete", r"is compacted \(cleanup.policy=compact,delete\)"),
        (None, "'orders' may be compacted: .* DESCRIBE_CONFIGS"),
    ],
)
def test_of_a_topic_that_is_compacted_or_may_be_nothing_is_proven(
    harness: KafkaHarness, policy: str | None, message: str
) -> None:
    line = harness.append()
    harness.memory.policies["orders"] = policy
    with pytest.raises(RestoreRefusedError, match=message):
        harness.source.check_readable(harness.leg, line, None)


def test_without_a_group_nobody_is_told(harness: KafkaHarness) -> None:
    leg, line = SourceLeg(harness.leg.name, OPTIONS), harness.append()
    harness.source.notify_committed(leg, line)
    assert harness.progress() is None
    harness.source.notify_committed(harness.leg, harness.append())
    before = harness.progress()
    harness.source.notify_rewound(leg, line)
    assert harness.progress() == before


def test_a_partition_found_after_the_line_goes_back_to_its_first_record(
    harness: KafkaHarness,
) -> None:
    """So does its group: a later start from there reads that partition again."""
    line = harness.append()
    harness.memory.logs["orders"][1].append(Log(0, 8))
    harness.memory.group[Partition("orders", 2)] = 8
    harness.source.notify_rewound(harness.leg, line)
    assert harness.memory.group == {Partition("orders", 2): 0}


def test_without_a_group_what_the_check_has_opened_is_closed_too(
    harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(MemoryCluster, "close", lambda _: closed.append(True))
    leg, line = SourceLeg(harness.leg.name, OPTIONS), harness.append()
    harness.source.close(leg)
    assert closed == []
    harness.source.check_readable(leg, line, None)
    harness.source.close(leg)
    assert closed == [True]


@pytest.mark.parametrize(
    ("options", "skips"),
    [
        ({}, False),
        ({"startingOffsets": "earliest"}, False),
        ({"startingoffsets": "latest"}, True),
        ({"startingOffsets": "committed", "startingOffsets.fallback": "Latest"}, True),
        ({"startingOffsets": '{"orders": {"0": 7, "1": -1}}'}, True),
        ({"startingOffsets": '{"orders": {"0": 7, "1": -2}}'}, False),
        ({"startingOffsets": "nonsense"}, False),
    ],
)
def test_a_fresh_start_may_skip_records_only_where_its_options_say_so(
    options: dict[str, str], skips: bool
) -> None:
    assert KafkaSource().skips_existing(options) is skips


# -- partitions that the savepoint does not know ---------------------------------------------------


def test_records_of_a_partition_found_after_the_savepoint_have_to_be_there_too(
    harness: KafkaHarness,
) -> None:
    line = harness.append()
    logs = harness.memory.logs["orders"][1]
    logs.append(Log(0, 8))
    assert harness.source.check_readable(harness.leg, line, None)
    logs[2].begin = 3
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-2.*3 records are gone"):
        harness.source.check_readable(harness.leg, line, None)


def test_where_the_job_has_begun_in_a_new_topic_of_a_pattern_is_not_guessed(
    memory: MemoryCluster,
) -> None:
    line = KafkaHarness(memory).append()
    options = {"kafka.bootstrap.servers": "memory:1", "subscribePattern": "ord.*", "uid": "a"}
    leg = SourceLeg("twophase-kafka", options)
    memory.logs["ordinary"] = ("id-2", [Log(0, 8)])
    assert KafkaSource().check_readable(leg, line, None)
    memory.logs["ordinary"][1][0].begin = 3
    assert not KafkaSource().check_readable(leg, line, None)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("delete", ""),
        ("compact", "the topic 'orders' is compacted (cleanup.policy=compact)"),
        ("compact,delete", "the topic 'orders' is compacted (cleanup.policy=compact,delete)"),
        (None, "the topic 'orders' may be compacted: the brokers do not tell its cleanup.policy"),
    ],
)
def test_a_second_read_may_miss_records_of_a_compacted_topic(
    harness: KafkaHarness, policy: str | None, why: str
) -> None:
    first, second = harness.append(), harness.append()
    harness.memory.policies["orders"] = policy
    ranges = harness.source.ranges(harness.leg, first, second)
    found = harness.source.may_change(harness.leg, ranges)
    assert found.startswith(why)
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    "error",
    [SourceUnavailableError("down."), PreflightError("denied."), SecretError("being replaced.")],
    ids=lambda error: type(error).__name__,
)
def test_what_the_brokers_do_not_tell_may_change(
    harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ranges = harness.source.ranges(harness.leg, harness.append(), harness.append())

    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(harness.memory, "cleanup_policies", refuse)
    assert "nobody knows" in harness.source.may_change(harness.leg, ranges)

"""Spark's Kafka source keeps the contract of sources, over a cluster in memory."""

from __future__ import annotations

import json
import re

import pytest

from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import loss_of
from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    SourceLossError,
    StopJobError,
)
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.source import KafkaSource
from twophase.sources.spark_kafka import SparkKafkaSource
from twophase.testing.contract import (
    NotifyingSourceContract,
    RereadsRangesContract,
    SourceContract,
    SourceHarness,
)

OPTIONS = {"kafka.bootstrap.servers": "memory:1", "subscribe": "orders"}


class SparkKafkaHarness(SourceHarness):
    source: SparkKafkaSource

    def __init__(self, memory: MemoryCluster) -> None:
        self.memory = memory
        self.source = SparkKafkaSource()
        self.leg = SourceLeg("kafka", OPTIONS | {"group.id": "etl"})

    def append(self) -> str:
        for log in self.memory.logs["orders"][1]:
            log.end += 10
        ends = {str(number): log.end for number, log in enumerate(self.memory.logs["orders"][1])}
        return json.dumps({"orders": ends}, separators=(",", ":"))

    def lose(self, line: str) -> None:
        for number, offset in json.loads(line)["orders"].items():
            self.memory.logs["orders"][1][int(number)].begin = offset

    def starting(self, line: str) -> str:
        return line

    def progress(self) -> object:
        return dict(self.memory.group) or None


@pytest.fixture
def harness(memory: MemoryCluster) -> SparkKafkaHarness:
    return SparkKafkaHarness(memory)


class TestSparkKafkaSource(SourceContract, NotifyingSourceContract, RereadsRangesContract):
    @pytest.fixture
    def harness(self, memory: MemoryCluster) -> SparkKafkaHarness:
        return SparkKafkaHarness(memory)


def with_options(harness: SparkKafkaHarness, **options: str) -> SourceLeg:
    return SourceLeg("kafka", {**harness.leg.options, **options})


@pytest.mark.parametrize(
    "line",
    [
        '{"orders":{"0":-1}}',
        '{"orders":{"a":1}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":1.5}}',
        '{"orders":{"0":"1"}}',
        '{"orders":{}}',
        '{"orders":7}',
    ],
)
def test_what_is_almost_an_offset_is_none(line: str) -> None:
    assert not SparkKafkaSource().owns(line)


def test_an_offset_that_cannot_be_read_says_why(harness: SparkKafkaHarness) -> None:
    with pytest.raises(CorruptRecordError, match="Cannot read this offset") as caught:
        harness.source.check_readable(harness.leg, '{"orders":', None)
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)
    assert "belong to this job" in caught.value.remedy
    assert harness.source.check_readable(harness.leg, harness.append(), None)


def test_a_topic_or_partition_that_is_gone_is_named(harness: SparkKafkaHarness) -> None:
    line = harness.append()
    harness.memory.logs["orders"][1].pop()
    with pytest.raises(PartitionVanishedError, match=r"orders-1.*the partition no longer exists"):
        harness.source.check_readable(harness.leg, line, None)
    del harness.memory.logs["orders"]
    with pytest.raises(PartitionVanishedError, match="the topic no longer exists"):
        harness.source.check_readable(harness.leg, line, None)


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "", "subscribePattern": "ord.*"},
        {"subscribe": "", "assign": '{"orders":[0,1]}'},
    ],
    ids=["pattern", "assign"],
)
def test_each_way_to_subscribe_is_understood(
    harness: SparkKafkaHarness, options: dict[str, str]
) -> None:
    given = {key: value for key, value in {**harness.leg.options, **options}.items() if value}
    leg, line = SourceLeg("kafka", given), harness.append()
    assert harness.source.check_readable(leg, line, None)
    harness.source.notify_committed(leg, line)
    assert harness.progress() is not None


JAAS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "..."}


def test_with_security_that_only_spark_s_client_understands_it_cannot_tell(
    harness: SparkKafkaHarness,
) -> None:
    assert not harness.source.check_readable(with_options(harness, **JAAS), harness.append(), None)


TRUSTSTORE = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/etc/trust.jks"}


def test_a_truststore_says_nothing_to_the_other_client_unless_it_is_given_its_own_files(
    harness: SparkKafkaHarness,
) -> None:
    line = harness.append()
    assert not harness.source.check_readable(with_options(harness, **TRUSTSTORE), line, None)
    account = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "etl",
        "kafka.sasl.password.env": "PASSWORD",
    }
    leg = with_options(harness, **{**TRUSTSTORE, **account})
    assert not harness.source.check_readable(leg, line, None)
    for own in (TRUSTSTORE, {**TRUSTSTORE, **account}):
        leg = with_options(harness, **own, **{"kafka.SSL.ca.location": "/etc/ca.pem"})
        assert harness.source.check_readable(leg, line, None)


READ_BY_SPARK = {"subscribe", "subscribePattern", "startingOffsets", "group.id", "uid"}


@pytest.mark.parametrize("name", [key for key in KafkaOptions.keys() if key not in READ_BY_SPARK])  # noqa: SIM118
def test_what_spark_s_source_would_pass_over_is_refused(name: str) -> None:
    leg = SourceLeg("kafka", {**OPTIONS, name.lower(): "1"})
    if name.startswith("kafka."):
        SparkKafkaSource().check_options(leg)
        return
    with pytest.raises(ConfigError, match="is an option of twophase-kafka") as caught:
        SparkKafkaSource().check_options(leg)
    theirs = {
        "maxRecordsPerTrigger": "maxOffsetsPerTrigger",
        "minReadTasks": "minPartitions",
        "isolation.level": "kafka.isolation.level",
    }
    way = re.fullmatch(r"set (\S+) instead\.|leave it out\.", caught.value.remedy)
    assert way is not None
    assert way[1] == theirs.get(name)
    instead = {way[1]: "1"} if way[1] else {}
    SparkKafkaSource().check_options(SourceLeg("kafka", OPTIONS | instead))


def test_partitions_that_are_not_assigned_are_not_asked_for(harness: SparkKafkaHarness) -> None:
    line = harness.append()
    harness.memory.logs["orders"][1].append(Log(3, 8))
    given = {"kafka.bootstrap.servers": "memory:1", "assign": '{"orders":[0,1]}'}
    assert harness.source.check_readable(SourceLeg("kafka", given), line, None)
    with pytest.raises(OffsetOutOfRangeError, match="orders-2"):
        harness.source.check_readable(harness.leg, line, None)


@pytest.mark.parametrize("options", [{}, JAAS], ids=["reachable", "security of Spark's client"])
def test_without_a_group_what_the_check_has_opened_is_closed_too(
    harness: SparkKafkaHarness, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(MemoryCluster, "close", lambda _: closed.append(True))
    leg, line = SourceLeg("kafka", OPTIONS | options), harness.append()
    harness.source.close(leg)
    assert closed == []
    assert harness.source.check_readable(leg, line, None) is (not options)
    harness.source.close(leg)
    assert closed == ([] if options else [True])


def test_a_group_that_could_never_be_committed_is_refused_at_the_start(
    harness: SparkKafkaHarness,
) -> None:
    with pytest.raises(ConfigError, match=r"source kafka: .*needs mechanism, user name"):
        harness.source.check_options(with_options(harness, **JAAS))
    harness.source.check_options(SourceLeg("kafka", OPTIONS | JAAS))


def test_without_a_group_nobody_is_told(harness: SparkKafkaHarness) -> None:
    harness.source.notify_committed(SourceLeg("kafka", OPTIONS), harness.append())
    assert harness.progress() is None


def test_where_a_partition_began_is_not_guessed(harness: SparkKafkaHarness) -> None:
    line = harness.append()
    for start in (None, '{"orders":{"0":0}}'):
        with pytest.raises(StopJobError, match=r"orders-\d was first read in this micro-batch"):
            harness.source.ranges(harness.leg, start, line)


@pytest.mark.parametrize(
    ("starting", "stands"),
    [
        ('{"orders": {"0": 7, "1": 0}}', True),
        ('{"orders": {"0": 7, "1": 1}}', False),
        ('{"orders": {"0": 7}}', None),
        ('{"orders": {"0": 8}}', False),
        ('{"orders": {"0": 7, "1": -2}}', None),
        ('{"orders": {"0": 8, "1": -2}}', False),
        ('{"orders": {"0": 7, "1": 0}, "bills": {"0": 0}}', False),
        ("earliest", None),
        ("timestamp:17", None),
        ("startingTimestamp=17", None),
        ("nonsense", None),
    ],
)
def test_both_sources_of_kafka_tell_whether_an_offset_is_where_a_fresh_start_begins(
    starting: str, stands: bool | None
) -> None:
    entries = [PartitionOffset("orders", "id", 0, 7), PartitionOffset("orders", "id", 1, 0)]
    ours = SourceOffset.of("kafka", entries).to_line()
    assert KafkaSource().begins_at(ours, starting) is stands
    assert SparkKafkaSource().begins_at('{"orders":{"0":7,"1":0}}', starting) is stands


@pytest.mark.parametrize(
    ("options", "starts", "skips"),
    [
        ({}, None, True),
        ({"startingOffsets": "latest"}, "latest", True),
        ({"startingoffsets": "earliest"}, "earliest", False),
        ({"startingOffsets": '{"a":{"0":-1}}'}, '{"a":{"0":-1}}', True),
        ({"startingOffsets": '{"a":{"0":-2}}'}, '{"a":{"0":-2}}', False),
        ({"startingOffsets": "latest", "startingTimestamp": "17"}, "startingTimestamp=17", False),
    ],
)
def test_a_fresh_start_begins_at_the_end_unless_its_options_say_otherwise(
    options: dict[str, str], starts: str | None, skips: bool
) -> None:
    assert SparkKafkaSource().starting_offsets(options) == starts
    assert SparkKafkaSource().skips_existing(options) is skips


@pytest.mark.parametrize(
    ("condition", "is_a_loss"),
    [
        ("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", True),
        ("KAFKA_DATA_LOSS.TOPIC_PARTITIONS_MISSING", True),
        ("KAFKA_NULL_TOPIC_IN_DATA", False),
        ("DIVIDE_BY_ZERO", False),
    ],
)
def test_an_error_of_spark_s_reader_is_a_loss_by_its_condition(
    condition: str, is_a_loss: bool
) -> None:
    found = loss_of(condition, "The commit failed: it said so.")
    assert isinstance(found, SourceLossError) is is_a_loss
    if found is not None:
        assert found.what == "The commit failed: it said so."
        assert "failOnDataLoss=false" in found.remedy

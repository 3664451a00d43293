"""The source on a cluster of three brokers, one of which is killed while it reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest

from harness.kafka_cluster import KafkaCluster
from harness.spark_features import needs
from integration.kafka.cluster_topics import ClusterTopics, closed_port
from integration.kafka.test_source import ENGINES, Stream
from integration.kafka.topics import numbers
from twophase.errors import SourceUnavailableError
from twophase.sources.kafka import GroupOffsets
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.data_source import KafkaPartition
from twophase.sources.kafka.engines import read_range
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.range_digest import RangeDigest
from twophase.spark_versions import LIMITED_READS
from twophase.testing.harness import fresh_name

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.server,
    pytest.mark.proof,
    pytest.mark.timeout(3600),
    needs(LIMITED_READS),
]

RECORDS = 40_000
_GROUPS = "__consumer_offsets"
_FLUSH_TIMEOUT_S = 600
_TRIES = 60


@pytest.fixture
def topics(cluster: KafkaCluster) -> Iterator[ClusterTopics]:
    with ClusterTopics(cluster) as made:
        yield made


def fill(topics: ClusterTopics, topic: str) -> None:
    """Write more than a client fetches before it is asked for the next records."""
    producer = topics.producer()
    for number in range(RECORDS):
        producer.produce(topic, b"%0500d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(_FLUSH_TIMEOUT_S) == 0


def digest_of(blocks: Iterable[Block]) -> RangeDigest:
    digest = RangeDigest()
    for block in blocks:
        digest.take(block)
    return digest


def steps(stream: Stream, count: int) -> list[int]:
    """Micro-batches until so many values are read, however often no broker answers."""
    values: list[int] = []
    for _ in range(_TRIES):
        try:
            values += stream.step()
        except SourceUnavailableError:
            continue
        if len(values) >= count:
            return values
    raise AssertionError(f"{len(values)} of {count} values after {_TRIES} tries")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_range_whose_leader_is_killed_in_the_middle_has_the_same_records(
    cluster: KafkaCluster, topics: ClusterTopics, engine: str
) -> None:
    """Before, meanwhile and afterwards; and the source goes on from its end."""
    topic = topics.create(1)
    fill(topics, topic)
    stream = Stream(topics, topic, fetch__engine=engine, read__timeout="10 min")
    start, end = stream.first()
    [task] = stream.reader.partitions(start, end)
    assert isinstance(task, KafkaPartition)
    options = KafkaOptions.parse(stream.options)
    whole = digest_of(read_range(options, task.item, Wanted(), again=False))
    assert whole.records == RECORDS

    def killed_behind_the_first(blocks: Iterator[Block]) -> Iterator[Block]:
        yield next(blocks)
        cluster.kill_broker(cluster.leader_of(topic))
        yield from blocks

    blocks = read_range(options, task.item, Wanted(), again=False)
    assert digest_of(killed_behind_the_first(blocks)) == whole
    assert digest_of(read_range(options, task.item, Wanted(), again=True)) == whole
    cluster.wait_until_led(topic)
    stream.offset = end
    with ClusterTopics(cluster) as again:
        again.send(topic, numbers(RECORDS, RECORDS + 5))
    assert steps(stream, 5) == [*range(RECORDS, RECORDS + 5)]
    cluster.restart_all_killed()
    assert stream.read(start, end, again=True) == [*range(RECORDS)]


@pytest.mark.parametrize("down", [1, 2, 3])
def test_a_start_does_not_need_every_broker(
    cluster: KafkaCluster, topics: ClusterTopics, down: int
) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.send(topic, numbers(10 * partition, 10 * partition + 10), partition)
    cluster.kill_broker(down)
    cluster.wait_until_led(topic)
    assert sorted(steps(Stream(topics, topic), 30)) == [*range(30)]


def test_a_start_goes_by_the_live_ones_of_the_bootstrap_servers(
    cluster: KafkaCluster, topics: ClusterTopics
) -> None:
    topic = topics.create(1)
    topics.send(topic, numbers(0, 5))
    dead = closed_port()
    servers = {"kafka__bootstrap__servers": f"{dead},{cluster.address(2)}"}
    assert steps(Stream(topics, topic, **servers), 5) == [*range(5)]
    servers = {"kafka__bootstrap__servers": f"{dead},{closed_port()}", "request__timeout": "2 s"}
    unreachable = Stream(topics, topic, **servers)
    with pytest.raises(SourceUnavailableError, match=f"Kafka at {dead},.* did not answer") as found:
        unreachable.step()
    assert found.value.remedy.startswith("check that the brokers run and can be reached")


def test_group_offsets_are_committed_by_the_broker_that_takes_the_group_over(
    cluster: KafkaCluster, topics: ClusterTopics
) -> None:
    """The client knows the one before, which is gone."""
    topic, group = topics.create(1), fresh_name("group")
    topics.send(topic, numbers(0, 5))
    stream = Stream(topics, topic, group__id=group, request__timeout="2 min")
    offsets = GroupOffsets(stream.options)
    steps(stream, 5)
    offsets.commit(json.dumps(stream.offset))
    cluster.kill_broker(cluster.leader_of(_GROUPS))
    cluster.wait_until_led(topic)
    with ClusterTopics(cluster) as again:
        again.send(topic, numbers(5, 10))
    steps(stream, 5)
    offsets.commit(json.dumps(stream.offset))
    with ClusterTopics(cluster) as again:
        assert again.committed(group) == {0: 10}

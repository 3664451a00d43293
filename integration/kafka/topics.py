"""Topics for the tests of the Kafka source: made, filled, cut, deleted and made again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import KafkaError as KafkaClientError
from confluent_kafka import TopicPartition as ConsumedPartition
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import (
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    KafkaError,
    NodeNotReadyError,
    NoError,
)
from kafka.protocol.admin import AlterClientQuotasRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.record import MemoryRecords
from kafka.structs import OffsetAndMetadata

EARLIEST, LATEST = -2, -1
"""Offsets that stand for the ends of a partition."""
_names = itertools.count()
_TIMEOUT_S = 30
_COMPACTION_TIMEOUT_S = 300


class Topics:
    """An admin client and a producer on one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = KafkaAdminClient(bootstrap_servers=servers)
        self._producer = self.producer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        del self._producer  # it would go on calling the stopped broker

    def producer(self, **settings: Any) -> Producer:
        """A producer on the broker; a batch that it sends again keeps its place."""
        kept = {
            "bootstrap.servers": self.servers,
            "linger.ms": 5,
            "log_level": 2,
            "enable.idempotence": True,
        }
        return Producer(kept | settings)

    def create(
        self, partitions: int = 1, name: str | None = None, settings: dict[str, str] | None = None
    ) -> str:
        """A new topic, ready for use."""
        topic = name or f"source-{next(_names)}"
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=1, topic_configs=settings
        )
        self._when_connected(lambda: self.admin.create_topics([new]))
        self._when_connected(lambda: self.admin.wait_for_topics([topic]))
        return topic

    def _when_connected(self, request: Callable[[], object]) -> None:
        """A test before may have restarted the broker, and the client waits before it connects
        again; and a broker that gets no processor is fenced by its own controller, which then has
        none for a replica.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                request()
                return
            except (NodeNotReadyError, InvalidReplicationFactorError):
                assert time.monotonic() < deadline, "the broker took no connection"
            time.sleep(0.05)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker does not know it any more."""
        self.admin.delete_topics([topic])
        deadline = time.monotonic() + _TIMEOUT_S
        while self.admin.describe_topics([topic])[0]["error_code"] == 0:
            assert time.monotonic() < deadline, f"{topic} is still there"
            time.sleep(0.05)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and make another of the same name."""
        self.delete(topic)
        self.create(partitions, topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        self.admin.create_partitions({topic: partitions})
        self.admin.wait_for_topics([topic])
        self._producer = self.producer()  # the old one believes that there are as many as before

    def offsets(self, topic: str, at: int) -> dict[int, int]:
        """The first offset of each partition of a topic, or the one behind its last record.

        Args:
            topic: the topic.
            at: `EARLIEST` or `LATEST`.
        """
        [found] = self.admin.describe_topics([topic])
        wanted = {TopicPartition(topic, one["partition_index"]): at for one in found["partitions"]}
        listed = self.admin.list_partition_offsets(wanted)
        return {key.partition: one.offset for key, one in listed.items()}

    def cut(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset, as retention would."""
        self.admin.delete_records({TopicPartition(topic, partition): before})

    def throttle(self, client: str, bytes_per_s: int) -> None:
        """Let the broker answer fetches of a client no faster; 0 for as fast as it can."""
        entry = AlterClientQuotasRequest.EntryData
        whose = entry.EntityData(entity_type="client-id", entity_name=client)
        rate = entry.OpData(
            key="consumer_byte_rate", value=float(bytes_per_s), remove=not bytes_per_s
        )
        wanted = entry(entity=[whose], ops=[rate])
        request = AlterClientQuotasRequest(entries=[wanted], validate_only=False)
        [answer] = self.admin._manager.run(self.admin._manager.send, request).entries
        assert answer.error_code == 0, answer.error_message

    def replace_on_disk(self, topic: str, old: bytes, new: bytes, partition: int = 0) -> None:
        """Replace bytes of a record in the log on the broker's disk, as a damaged disk would."""
        assert len(old) == len(new)
        [broker] = self.admin.describe_log_dirs([topic])
        [found] = [one["log_dir"] for one in broker["log_dirs"] if one["topics"]]
        with (Path(found) / f"{topic}-{partition}" / f"{0:020}.log").open("r+b") as segment:
            segment.seek(segment.read().index(old))
            segment.write(new)

    def alter(self, topic: str, settings: Mapping[str, str | tuple[str, str]]) -> None:
        """Set settings of a topic, or delete them: ("DELETE", "")."""
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])

    def compact(self, topic: str, before: int, filler: Sequence[bytes], partition: int = 0) -> int:
        """Let the broker compact away records without a key, and wait until it has;
        how many are left.

        Args:
            topic: the topic; it is a compacted one from now on.
            before: the offset up to which all records may go.
            filler: values written behind them, each under a key of its own; together they fill a
                segment, as the newest one is not compacted.
            partition: of the topic.
        """
        settings = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(1 << 20),
        }
        self.alter(topic, settings)
        for number, value in enumerate(filler):
            self.send(topic, [value], partition, key=b"%d" % number)
        deadline, all_of_them = (
            time.monotonic() + _COMPACTION_TIMEOUT_S,
            self.count(topic, before, partition),
        )
        while (left := self.count(topic, before, partition)) == all_of_them:
            assert time.monotonic() < deadline, f"{topic} was not compacted"
            time.sleep(0.2)
        return left

    def count(self, topic: str, before: int, partition: int = 0) -> int:
        """How many records there are below an offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "count",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([ConsumedPartition(topic, partition, 0)])
            found = 0
            while True:
                for message in consumer.consume(1_000, 1.0):
                    offset = message.offset()
                    if message.error() is not None or offset is None or offset >= before:
                        return found
                    found += 1
        finally:
            consumer.close()

    def records(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """The records of a topic, of each partition to its end; none if there is no such topic."""
        [described] = self.admin.describe_topics([topic])
        if described["error_code"]:
            return []
        numbers = sorted(one["partition_index"] for one in described["partitions"])
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": "look",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 5,
            "log_level": 2,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([ConsumedPartition(topic, number, 0) for number in numbers])
            return [*_to_the_end(consumer, len(numbers))]

    def marked(self, topic: str) -> list[bytes]:
        """The values that have been committed, by the markers in the log: readers of committed
        records do not get those behind the first record of an open transaction yet.
        """
        [described] = self.admin.describe_topics([topic])
        found: list[bytes] = []
        for one in [] if described["error_code"] else described["partitions"]:
            waiting: dict[int, list[bytes]] = {}
            for batch in self._batches(topic, one["partition_index"], one["leader_id"]):
                records = list(batch)
                if batch.is_control_batch:
                    ended = waiting.pop(batch.producer_id, [])
                    found += ended if records[0].commit else []
                else:
                    values = [record.value for record in records]
                    waiting.setdefault(batch.producer_id, []).extend(values)
        return found

    def _batches(self, topic: str, partition: int, leader: int) -> Iterator[Any]:
        """The batches of a partition to its end, control batches too."""
        wanted = FetchRequest.FetchTopic
        offset, high = 0, 1
        while offset < high:
            part = wanted.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24
            )
            request = FetchRequest(
                max_wait_ms=10,
                min_bytes=0,
                max_bytes=1 << 24,
                topics=[wanted(topic=topic, partitions=[part])],
                max_version=11,
            )
            response = self.admin._manager.run(self.admin._manager.send, request, leader)
            [[answer]] = [one.partitions for one in response.responses]
            high = answer.high_watermark
            records = MemoryRecords(answer.records)
            while (batch := records.next_batch()) is not None:
                yield batch
                offset = batch.next_offset

    def send(
        self, topic: str, values: Iterable[bytes | None], partition: int = 0, **more: Any
    ) -> None:
        """Write values, and wait until the broker has them."""
        for value in values:
            self._producer.produce(topic, value, partition=partition, **more)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def transaction(
        self, topic: str, values: Sequence[bytes], how: str, partition: int = 0
    ) -> Producer:
        """Write values in a transaction of their own that is then committed,
        aborted or left open.
        """
        producer = self.producer(**{"transactional.id": f"t-{next(_names)}"})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(_TIMEOUT_S)
        if how == "commit":
            producer.commit_transaction(_TIMEOUT_S)
        elif how == "abort":
            producer.abort_transaction(_TIMEOUT_S)
        return producer

    def group(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets for a group, as another tool would."""
        wanted = {
            TopicPartition(topic, number): OffsetAndMetadata(at) for number, at in offsets.items()
        }
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                errors = set(self.admin.alter_group_offsets(group, wanted).values())
            except CoordinatorNotAvailableError:
                # the first use of a group makes the topic of all groups
                errors = {CoordinatorNotAvailableError}
            if errors == {NoError}:
                return
            assert time.monotonic() < deadline, errors
            time.sleep(0.1)

    def committed(self, group: str) -> dict[int, int]:
        """What a group has committed, by partition."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                found = self.admin.list_group_offsets({group: None})[group]
                return {key.partition: at.offset for key, at in found.items()}
            except KafkaError as error:  # as in `group`
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            time.sleep(0.1)


def _to_the_end(consumer: Any, partitions: int) -> Iterator[Message]:
    """The records of so many partitions, up to the end of each."""
    ended: set[int] = set()
    deadline = time.monotonic() + 2 * _TIMEOUT_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"the ends of {ended} alone"
        for message in consumer.consume(1_000, 0.02):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaClientError._PARTITION_EOF:
                ended.add(message.partition())


def numbers(low: int, high: int) -> list[bytes]:
    """The values low to high - 1 as text."""
    return [b"%d" % i for i in range(low, high)]

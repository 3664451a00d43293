"""A reader of committed records that reads all the time, while the driver and its workers are
killed again and again: no record twice, none too early, all of them, in order.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.selection import representatives
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.points import in_checkpoint, in_recovery, in_workers
from integration.without_spark.scenario import BATCH, TARGETS, Scenario
from integration.without_spark.targets import KafkaTarget
from twophase.testing.services import KafkaService

pytestmark = [pytest.mark.part("without_spark")]


class Reader:
    """Reads a topic from its beginning on, in a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "log_level": 2,
        }
        self._topic = topic
        self._over = threading.Event()
        self.records: list[tuple[int, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with closing(Consumer(self._settings)) as consumer:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in range(3)])
            while not self._over.is_set():
                for message in consumer.consume(1_000, 0.05):
                    assert message.error() is None, message.error()
                    number = message.partition()
                    assert number is not None
                    self.records.append((number, json.loads(message.value() or b"")))

    def seen(self) -> int:
        """How many records it has read."""
        return len(self.records)

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    made: list[Reader] = []
    yield made
    for one in made:
        one.close()


Table = Callable[[tuple[str, ...]], Iterable[str]]
Die = Callable[[Scenario, str, int], None]
TABLES: dict[str, tuple[Table, Die]] = {
    "workers": (in_workers, steps.die_in_workers_of),
    "checkpoint": (in_checkpoint, steps.die_in_checkpoint_of),
    "recovery": (in_recovery, steps.die_in_recovery_of),
}


@pytest.mark.parametrize("target", representatives(["staged_kafka", "kafka"], set()))
@pytest.mark.parametrize("table", TABLES)
def test_a_reader_gets_each_record_once_and_in_order_during_the_kills(
    make_scenario: MakeScenario,
    kafka: KafkaService,
    readers: list[Reader],
    target: str,
    table: str,
) -> None:
    kinds = TARGETS[target]
    scenario = make_scenario(kinds)
    [topic] = scenario.targets.values()
    assert isinstance(topic, KafkaTarget)
    reader = Reader(kafka.bootstrap_servers, topic.topic)
    readers.append(reader)
    points, die = TABLES[table]
    scenario.produce(1)
    scenario.finish()  # C17 has something to delete
    for number, point in enumerate(points(kinds), 1):
        scenario.produce(1)
        die(scenario, point, number)
        goes_on(scenario, reader, number)
    verify(reader, scenario)


def goes_on(scenario: Scenario, reader: Reader, number: int) -> None:
    """What is not decided is not read; the next driver commits it, and then it is."""
    is_decided = scenario.state().decided > number
    most = (number + is_decided) * BATCH
    assert reader.seen() <= most, f"{reader.seen()} records are read, {most} are decided"
    scenario.finish()
    while reader.seen() < (number + 1) * BATCH:
        assert reader._thread.is_alive()
        reader._over.wait(0.01)


def verify(reader: Reader, scenario: Scenario) -> None:
    """Each record once; those of an input partition in its order in each partition."""
    scenario.verify()
    ids = sorted(record["id"] for _, record in reader.records)
    assert ids == [*range(scenario.produced)]
    offsets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for partition, record in reader.records:
        offsets[partition, record["kafka_partition"]].append(record["kafka_offset"])
    assert len(offsets) > 1
    for found in offsets.values():
        assert found == sorted(found)

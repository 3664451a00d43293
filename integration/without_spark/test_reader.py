"""A reader of committed records that reads all the time, while the driver and its workers are
killed again and again, or the broker is: no record twice, none too early, all of them, in order.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.selection import first_of, representatives
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.points import in_checkpoint, in_recovery, in_workers
from integration.without_spark.scenario import BATCH, TARGETS, TIMEOUT_S, Scenario
from integration.without_spark.targets import KafkaTarget, RoutedKafkaTarget
from twophase.testing.services import KafkaService

pytestmark = [pytest.mark.part("without_spark")]


class Reader:
    """Reads the topics of a job from their beginning on, in a thread, which ends with an error as
    soon as it reads a record of a checkpoint that is not decided.

    Args:
        servers: the broker.
        scenario: the job.
    """

    def __init__(self, servers: str, scenario: Scenario) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
        self._scenario = scenario
        self._over = threading.Event()
        self.records: list[tuple[tuple[str, int], dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        [target] = self._scenario.targets.values()
        assert isinstance(target, KafkaTarget)
        places = [
            (name, number) for name, count in target.written.items() for number in range(count)
        ]
        with closing(Consumer(self._settings)) as consumer:
            consumer.assign([TopicPartition(*place, 0) for place in places])
            while not self._over.is_set():
                found = []
                for message in consumer.consume(1_000, 0.05):
                    assert message.error() is None, message.error()
                    place = str(message.topic()), int(message.partition() or 0)
                    found.append((place, json.loads(message.value() or b"")))
                if found:
                    decided = max(one.checkpoint for one in self._scenario.history().decisions)
                    assert max(record["id"] for _, record in found) < (decided + 1) * BATCH
                self.records += found

    def wait_for_all(self) -> None:
        """Wait until it has read as many records as there are."""
        waits = 0.0
        while len(self.records) < self._scenario.produced:
            assert self._thread.is_alive()
            assert waits < TIMEOUT_S, f"{len(self.records)} records of {self._scenario.produced}"
            self._over.wait(0.01)
            waits += 0.01

    def verify(self) -> None:
        """Each record once; those of an input partition in its order in each partition."""
        self._scenario.verify()
        self.wait_for_all()
        assert self._thread.is_alive()
        ids = sorted(record["id"] for _, record in self.records)
        assert ids == [*range(self._scenario.produced)]
        offsets: dict[tuple[object, int], list[int]] = defaultdict(list)
        for place, record in self.records:
            offsets[place, record["kafka_partition"]].append(record["kafka_offset"])
        [target] = self._scenario.targets.values()
        assert isinstance(target, KafkaTarget)
        assert {name for (name, _), _ in self.records} == {*target.written}
        assert len(offsets) > len(target.written)
        for found in offsets.values():
            assert found == sorted(found)

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()


@pytest.fixture
def read() -> Iterator[Callable[[KafkaService, Scenario], Reader]]:
    """Starts a reader."""
    made: list[Reader] = []

    def start(broker: KafkaService, scenario: Scenario) -> Reader:
        made.append(Reader(broker.bootstrap_servers, scenario))
        return made[-1]

    yield start
    for one in made:
        one.close()


Read = Callable[[KafkaService, Scenario], Reader]
Kill = tuple[Callable[[Scenario, str, int], None], str]
FEW: Sequence[Kill] = [
    (steps.die_in_checkpoint_of, "C13"),
    (steps.die_in_workers_of, "C03"),
    (steps.die_in_recovery_of, "C20"),
]


def kills(kinds: tuple[str, ...], where: str) -> Sequence[Kill]:
    """The crash points of a job with such targets."""
    if where == "workers":
        return [(steps.die_in_workers_of, point) for point in in_workers(kinds)]
    if where == "checkpoint":
        return [(steps.die_in_checkpoint_of, point) for point in in_checkpoint(kinds)]
    if where == "recovery":
        return [(steps.die_in_recovery_of, point) for point in in_recovery(kinds)]
    return FEW


def is_read_during(scenario: Scenario, reader: Reader, all_kills: Sequence[Kill]) -> None:
    """A job is killed in one checkpoint after the other, and the next driver commits it."""
    scenario.produce(1)
    scenario.finish()  # C17 has something to delete
    for number, (die, point) in enumerate(all_kills, 1):
        scenario.produce(1)
        die(scenario, point, number)
        scenario.finish()
        reader.wait_for_all()
    reader.verify()


CASES = {
    f"{target} in {where}": (target, where)
    for target, where in product(
        ("staged_kafka", "kafka"), ("few", "workers", "checkpoint", "recovery")
    )
}


@pytest.mark.parametrize("case", representatives(CASES, {"kafka in few"}))
def test_a_reader_gets_each_record_once_and_in_order_during_the_kills(
    make_scenario: MakeScenario, kafka: KafkaService, read: Read, case: str
) -> None:
    target, where = CASES[case]
    scenario = make_scenario(TARGETS[target])
    is_read_during(scenario, read(kafka, scenario), kills(TARGETS[target], where))


@pytest.mark.parametrize(
    ("kind", "kill"), first_of(1, product(("routed_kafka", "routed_staged_kafka"), FEW))
)
def test_a_reader_of_all_topics_that_rows_are_routed_to_gets_each_record_once_and_in_order(
    make_scenario: MakeScenario, kafka: KafkaService, read: Read, kind: str, kill: Kill
) -> None:
    scenario = make_scenario((kind,))
    [target] = scenario.targets.values()
    assert isinstance(target, RoutedKafkaTarget)
    scenario.settings["places"] = target.places
    is_read_during(scenario, read(kafka, scenario), [kill])


AT = ("C13", "C04", "C06", "C11", "C15", "C20")


@pytest.mark.parametrize(("point", "kind"), first_of(1, product(AT, ("kafka", "staged_kafka"))))
def test_a_reader_outlives_a_broker_that_is_killed_with_the_driver_at(
    make_scenario: MakeScenario, own_kafka: KafkaService, read: Read, point: str, kind: str
) -> None:
    scenario = make_scenario((kind,), brokers=own_kafka.bootstrap_servers)
    reader = read(own_kafka, scenario)
    steps.lose_a_server(scenario, own_kafka, point)
    scenario.goes_on()
    reader.verify()

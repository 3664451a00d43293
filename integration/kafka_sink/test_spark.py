"""A job of Spark from a topic to a topic, killed in a commit: a reader of committed records has
every order once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import workload
from harness.nemesis import DriverProcess, Ended, held_at
from harness.selection import representatives
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.plugin.scenario import finished
from twophase.testing.harness import fresh_name

pytestmark = [pytest.mark.part("kafka"), pytest.mark.spark]

_CHECKPOINTS, _BATCH, _PARTITIONS = 3, 200, 2
_TIMEOUT_S = 600


class Driver(DriverProcess):
    module = "integration.kafka_sink.driver"


class Given:
    """A topic with orders, and another one to write them to."""

    def __init__(self, topics: Topics, folder: Path, protocol: str, **more: object) -> None:
        source = topics.create(_PARTITIONS, fresh_name("orders"))
        self.orders = [*workload.orders(0, _CHECKPOINTS * _BATCH)]
        for partition in range(_PARTITIONS):
            values = [json.dumps(one).encode() for one in self.orders[partition::_PARTITIONS]]
            topics.send(source, values, partition)
        self.topics, self.harness, self.runs = topics, KafkaHarness(topics), folder / "runs"
        sink = {
            "kafka.bootstrap.servers": topics.servers,
            "topic": self.harness.topic,
            "ledger": self.harness.ledger,
            "key": "customer",
            "protocol": protocol,
        }
        self.settings = {
            "servers": topics.servers,
            "topic": source,
            "records_per_batch": _BATCH,
            "location": str(folder / "job"),
            "sink": sink,
            **more,
        }

    def run(self) -> Ended:
        return Driver(self.settings, self.runs).wait(_TIMEOUT_S)

    def killed_at(self, point: str, hit: int) -> Ended:
        driver = Driver(self.settings, self.runs, held_at([point], hit))
        return driver.kill_when_at([point], _TIMEOUT_S)

    def verify(self) -> None:
        """A reader of committed records gets each order once, and no transaction is open."""
        values = [one.value() or b"" for one in self.topics.records(self.harness.topic)]
        found = sorted((row["id"], row["amount"]) for row in map(json.loads, values))
        assert found == [(one["id"], one["amount"]) for one in self.orders]
        listed = self.topics.admin.list_transactions(state_filters=["Ongoing"]).values()
        ids = [one.transactional_id for broker in listed for one in broker]
        assert not [one for one in ids if f"/{self.harness.topic}/" in one]


@pytest.mark.parametrize("protocol", representatives(["transaction", "staged"], {"transaction"}))
@pytest.mark.parametrize("form", ["write_stream", "plugin"])
def test_a_job_that_is_killed_in_its_second_commit_has_every_order_once(
    tmp_path: Path, topics: Topics, form: str, protocol: str
) -> None:
    """In the plugin form the same format reads and writes, where it can read."""
    given = Given(topics, tmp_path, protocol, plugin=form == "plugin")
    killed = given.killed_at("C14", 3)
    assert killed.killed, killed.output
    finished(given.run)
    given.verify()

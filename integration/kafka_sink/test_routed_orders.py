"""The example from a topic to topics: each order is in the topic of its region once, with its key
and its headers, also when the job is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.example import run_example
from integration.kafka.topics import Topics
from twophase.testing.services import KafkaService


@pytest.fixture
def topics() -> Iterator[Topics]:
    """On a broker of its own: the example's topics have fixed names."""
    with KafkaService(own=True) as broker, Topics(broker.bootstrap_servers) as made:
        yield made


def add_orders(topics: Topics, orders: dict[int, str | None]) -> None:
    values = [
        json.dumps({"id": number, "customer": f"c{number}", "amount": 0.5, "region": region})
        for number, region in orders.items()
    ]
    topics.send("orders", map(str.encode, values))


def routed(topics: Topics, folder: Path) -> str:
    done = run_example("routed_orders", topics.servers, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.part("kafka")
def test_each_order_goes_to_the_topic_of_its_region_with_key_and_headers(
    tmp_path: Path, topics: Topics
) -> None:
    for name in ("orders", "orders-eu", "orders-us", "orders-elsewhere"):
        topics.create(1, name)
    add_orders(topics, {1: "eu", 2: "us", 3: "eu"})
    assert "Routed: 3 orders." in routed(topics, tmp_path / "job")
    add_orders(topics, {4: "us", 5: None})
    assert "Routed: 2 orders." in routed(topics, tmp_path / "job")
    for region, wanted in {"eu": [1, 3], "us": [2, 4], "elsewhere": [5]}.items():
        found = topics.records(f"orders-{region}")
        assert [json.loads(one.value() or b"") for one in found] == [
            {"id": number, "customer": f"c{number}", "amount": 0.5} for number in wanted
        ]
        assert [one.key() for one in found] == [b"c%d" % number for number in wanted]
        assert [one.headers() for one in found] == [
            [
                ("region", None if region == "elsewhere" else region.encode()),
                ("source-offset", b"%d" % (number - 1)),
            ]
            for number in wanted
        ]

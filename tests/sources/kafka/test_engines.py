"""The connections of a process: few, and each closed in the end."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from importlib.metadata import requires

import pytest

from tests.sources.kafka.memory_cluster import MemoryCluster
from twophase.errors import PreflightError
from twophase.sources.kafka import engines
from twophase.sources.kafka.block import Wanted
from twophase.sources.kafka.cluster import Cluster
from twophase.sources.kafka.engines import close_clusters, cluster_of, read_range
from twophase.sources.kafka.fetch_librdkafka import settings
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import FetchEngine, KafkaOptions


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cluster]]:
    found: list[Cluster] = []
    monkeypatch.setattr(Cluster, "close", lambda cluster: found.append(cluster))
    close_clusters()
    found.clear()
    yield found
    close_clusters()


def options(number: int) -> KafkaOptions:
    return KafkaOptions.parse(
        {"kafka.bootstrap.servers": f"broker:{number}", "subscribe": "t"}, "test"
    )


@pytest.mark.usefixtures("closed")
def test_the_same_options_have_one_connection() -> None:
    assert cluster_of(options(1)) is cluster_of(options(1))
    assert cluster_of(options(1)) is not cluster_of(options(2))


def test_the_one_not_used_for_longest_is_closed(closed: list[Cluster]) -> None:
    first, second = cluster_of(options(1)), cluster_of(options(2))
    for number in range(3, engines._MOST_CLUSTERS + 1):
        cluster_of(options(number))
    assert closed == []
    assert cluster_of(options(1)) is first
    cluster_of(options(100))
    assert closed == [second]
    assert cluster_of(options(1)) is first


@pytest.mark.parametrize(
    ("engine", "package", "distribution"),
    [
        (FetchEngine.LIBRDKAFKA, "confluent_kafka", "confluent-kafka"),
        (FetchEngine.KAFKA_PYTHON, "kafka", "kafka-python"),
    ],
)
def test_a_client_that_is_not_installed_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, engine: FetchEngine, package: str, distribution: str
) -> None:
    find = importlib.util.find_spec
    with monkeypatch.context() as without:
        without.setattr(
            importlib.util, "find_spec", lambda name: None if name == package else find(name)
        )
        with pytest.raises(PreflightError, match=f"needs {distribution}, which is not") as caught:
            engines._engine(engine)
    extra = re.search(r"^pip install 'twophase\[(\w+)\]'", caught.value.remedy)
    assert extra is not None
    named = f'extra == "{extra[1]}"'
    brought = [one for one in requires("twophase") or [] if named in one or "extra" not in one]
    assert any(one.startswith(distribution) for one in brought), "the command installs it"
    assert callable(engines._engine(engine))


def test_all_are_closed_at_once(closed: list[Cluster]) -> None:
    found = {cluster_of(options(number)) for number in range(3)}
    close_clusters()
    assert set(closed) == found


@pytest.mark.parametrize(
    ("records", "queued"), [(0, 1), (1, 1), (500, 500), (20_000, 20_000), (10**9, 20_000)]
)
def test_a_read_of_a_short_range_fetches_no_queue_of_later_records(
    records: int, queued: int
) -> None:
    assert settings(options(1), [], records)["queued.min.messages"] == queued


@pytest.mark.parametrize("again", [True, False])
def test_the_look_at_the_end_of_a_read_does_not_wait_for_a_connection(
    memory: MemoryCluster, *, again: bool
) -> None:
    memory.logs["orders"][1][0].end = 20
    item = OffsetRange("kafka", "orders", "id-1", 0, 10, 20, 0)
    reading = read_range(options(1), item, Wanted(), again=again)
    first = next(reading)
    assert memory.opened_ahead == (0 if again else 1)  # the look before it has opened one
    assert [*first.values, *(value for block in reading for value in block.values)] == [
        b"%d" % offset for offset in range(10, 20)
    ]

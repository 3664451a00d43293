"""The connections of a process: few, and each closed in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twophase.sources.kafka import engines
from twophase.sources.kafka.cluster import Cluster
from twophase.sources.kafka.engines import close_clusters, cluster_of
from twophase.sources.kafka.options import KafkaOptions


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


def test_all_are_closed_at_once(closed: list[Cluster]) -> None:
    found = {cluster_of(options(number)) for number in range(3)}
    close_clusters()
    assert set(closed) == found

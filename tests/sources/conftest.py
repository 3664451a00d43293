"""What the tests of the two Kafka sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.kafka.memory_cluster import Log, MemoryCluster, fetch
from twophase.sources.kafka import cluster, engines
from twophase.sources.kafka.engines import close_clusters


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    """What every connection of this process leads to."""
    made = MemoryCluster({"orders": ("id-1", [Log(), Log()])})
    monkeypatch.setattr(cluster, "Cluster", lambda *_: made)
    monkeypatch.setattr(engines, "_engine", lambda _: fetch)
    yield made
    close_clusters()

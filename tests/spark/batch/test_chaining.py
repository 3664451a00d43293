"""When a micro-batch chains, as far as no plan of Spark decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from tests.sources.kafka.test_source import KafkaHarness
from twophase.contract.source import RangeReader
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.ids import Attempt
from twophase.sources.kafka import cluster
from twophase.sources.kafka.engines import close_clusters
from twophase.spark.batch.chain import Chain, Link
from twophase.spark.batch.chaining import ChainedSource
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.testing.harness import transaction_id


class Unread(RangeReader[Any]):
    def read(self, item: Any, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class World:
    """A job of three sinks over a topic of two partitions."""

    def __init__(self, memory: MemoryCluster) -> None:
        self.memory = memory
        harness = KafkaHarness(memory)
        self.offsets = FrozenOffsets((harness.append(),), (harness.append(),))
        self.source = ChainedSource(harness.leg, harness.source, Unread(), (0,))

    def chain(self, *names: str, tasks: int = 2, ahead: Sequence[str] = ()) -> Chain | None:
        """The chain of those that take columns of the source."""
        pending = PendingCheckpoint(
            job="job",
            lineage="7",
            checkpoint=1,
            attempt=Attempt(1, 1),
            offsets=self.offsets,
            sinks=["a", "b", "c"],
            trigger_time_ms=0,
            decided={name: [] for name in ahead},
        )
        unused: Any = None
        links = [Link(name, (0,), pa.schema([]), unused, transaction_id()) for name in names]
        return self.source.chain(pending, tasks, links, again=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    memory = MemoryCluster({"orders": ("id-1", [Log(), Log()])})
    monkeypatch.setattr(cluster, "Cluster", lambda *_: memory)
    yield World(memory)
    close_clusters()


@pytest.mark.parametrize("begun", [True, False])
def test_a_chain_knows_whether_the_source_has_read_before(world: World, *, begun: bool) -> None:
    if not begun:
        world.offsets = FrozenOffsets((None,), world.offsets.start)
    chain = world.chain("a", "b", "c", tasks=2)
    assert chain is not None
    assert chain.begun is begun


def test_a_task_reads_each_range_of_the_micro_batch(world: World) -> None:
    chain = world.chain("a", "b", "c")
    assert chain is not None
    assert [str(item) for item in chain.ranges] == ["orders-0:10 to 20", "orders-1:10 to 20"]
    assert chain.again


def test_nothing_chains_without_a_sink_or_with_other_tasks(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.chain() is None
    assert caplog.text == ""
    for tasks in (1, 3):
        assert world.chain("a", "b", "c", tasks=tasks) is None
    assert caplog.text.count("Spark has planned other tasks") == 1


@pytest.mark.parametrize("policy", ["compact", None])
def test_all_sinks_have_the_rows_of_one_read_if_records_may_vanish(
    world: World, caplog: pytest.LogCaptureFixture, policy: str | None
) -> None:
    assert world.chain("a", "b") is not None
    world.memory.policies["orders"] = policy
    for _ in range(2):
        assert world.chain("a", "b") is None
    assert caplog.text.count("compacted") == 1
    assert world.chain("a", "b", "c") is not None
    assert world.chain("a", "b", ahead=["c"]) is not None

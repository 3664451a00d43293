"""A sink on a cluster of three brokers, and its calls as the coordinator makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from harness.kafka_cluster import KafkaCluster
from integration.kafka.cluster_topics import ClusterTopics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.contract.writer import SinkWriter
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.kafka.names import copy_of, name_of, unfinished_piece
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.staging import is_staged
from twophase.sinks.kafka.writer import TaskWriter
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, transaction_id
from twophase.testing.services.deadline import Deadline

T = TypeVar("T")
SECOND, NEXT_DRIVER = Attempt(1, 2), Attempt(2, 1)
PATIENCE = {"request.timeout": "10 s"}
IDS = [*range(30)]
_PATIENCE_S = 300.0
"""A killed broker is missed after its session, and another elected after that: longer on a busy
machine.
"""


class ClusterHarness(KafkaHarness):
    """A topic of the cluster; each look at it asks the brokers that are there then."""

    def __init__(self, cluster: KafkaCluster, **options: Any) -> None:
        self._cluster = cluster
        super().__init__(ClusterTopics(cluster), **PATIENCE | options)

    def look_again(self) -> None:
        """Open new clients for the test: old ones may still ask a dead broker."""
        self.topics.admin.close()
        self.topics = ClusterTopics(self._cluster)

    def ids_read(self) -> list[int]:
        """The ids of the rows that a reader of committed records gets, in order of the ids."""
        records = self.topics.records(self.topic)
        return sorted(json.loads(one.value() or b"")["id"] for one in records)

    def open_transactions(self) -> list[str]:
        """The ids of transactions of the topic that may still be committed."""
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        listed = self.topics.admin.list_transactions(state_filters=states).values()
        ids = [one.transactional_id for broker in listed for one in broker]
        return [one for one in ids if f"/{self.topic}/" in one]


def coordinator(cluster: KafkaCluster, harness: ClusterHarness, piece: Committable) -> int:
    name = name_of(harness.topic, piece)
    return cluster.coordinator_of(copy_of(name) if is_staged(piece) else name)


class Base(ContractBase):
    """Calls as the coordinator makes them."""

    @pytest.fixture(params=["transaction", "staged"])
    def harness(
        self, cluster: KafkaCluster, request: pytest.FixtureRequest
    ) -> Iterator[ClusterHarness]:
        made = ClusterHarness(cluster, protocol=request.param)
        yield made
        made.topics.admin.close()

    @pytest.fixture
    def opened_sink(self, harness: ClusterHarness) -> Iterator[OpenKafkaSink]:
        with closing(harness.opened()) as sink:
            yield sink

    def piece(self, sink: OpenKafkaSink, attempt: Attempt = FIRST, number: int = 0) -> Committable:
        """A piece that waits for its commit."""
        transaction = transaction_id(number, attempt)
        [made] = self.prepare(sink, IDS, transaction, Subtask(0, 0))
        return made


def committed(sink: OpenKafkaSink, piece: Committable) -> tuple[CommitOutcome, list[str]]:
    """Commit until it is done, as the coordinator does.

    Returns:
        The outcome, and why it was tried again.
    """
    reasons: list[str] = []
    deadline = Deadline(_PATIENCE_S)
    while not deadline.over:
        try:
            [found] = sink.commit([CommitRequest(piece, len(reasons))])
        except TargetUnreachableError as error:
            reasons.append(str(error))
            continue
        if not isinstance(found, RetryLater):
            return found, reasons
        reasons.append(found.reason)
    raise AssertionError(f"not committed after {len(reasons)} tries: {reasons[-3:]}")


def asked(call: Callable[[], T]) -> T:
    """What a call returns that is made again until a broker answers, as by restarts."""
    deadline = Deadline(_PATIENCE_S)
    while not deadline.over:
        with suppress(TargetUnreachableError):
            return call()
    raise AssertionError(f"no answer in {_PATIENCE_S:.0f} s")


def is_done(found: CommitOutcome) -> bool:
    """Whether a piece is committed: a try whose answer was lost may have done it."""
    return isinstance(found, Committed | AlreadyCommitted)


def check_each_row_is_read_once(harness: ClusterHarness, sink: OpenKafkaSink) -> None:
    """By a reader of committed records, and nothing is open or in doubt."""
    harness.look_again()
    assert harness.ids_read() == IDS
    assert harness.open_transactions() == []
    assert [*asked(sink.in_doubt)] == []


class TransactionBase(Base):
    """Of what is the same for both protocols, or of one of them only."""

    @pytest.fixture
    @override
    def harness(self, cluster: KafkaCluster) -> Iterator[ClusterHarness]:
        made = ClusterHarness(cluster, protocol="transaction")
        yield made
        made.topics.admin.close()


def unfinished(writer: SinkWriter, sink: OpenKafkaSink) -> Committable:
    """The piece of a writer that has not pre-committed, as a list of transactions has it."""
    assert isinstance(writer, TaskWriter)
    found = unfinished_piece(writer._name, sink.target())
    assert found is not None
    return found


def abort_all(sink: OpenKafkaSink) -> None:
    """Abort what is in doubt."""
    asked(lambda: sink.abort(sink.in_doubt()))

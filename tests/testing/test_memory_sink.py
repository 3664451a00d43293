"""The in-memory sink keeps the contract that it is the reference for."""

from __future__ import annotations

import pytest

from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.ids import Subtask
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
)
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, transaction_id
from twophase.testing.memory import MemorySink, MemoryTarget


class MemoryHarness(SinkHarness):
    def __init__(self) -> None:
        self.target = MemoryTarget()

    def new_sink(self) -> MemorySink:
        return MemorySink(self.target)

    def elsewhere(self) -> MemoryHarness:
        return MemoryHarness()

    def rows_visible(self) -> list[Row]:
        return list(self.target.visible)


class TestMemorySink(
    ArrowSinkContract, KnowsOtherNamesContract, NamesPiecesContract, RewindContract
):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


def test_rows_can_be_pre_committed_directly_without_batches():
    harness = MemoryHarness()
    sink = harness.new_sink().open(SinkContext(JOB, SINK, harness.schema, parallelism=1))
    sink.fence(FIRST)
    piece = sink.write_direct(transaction_id(), Subtask(0, 0), [{"id": 1}])
    assert piece is not None
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert harness.rows_visible() == [{"id": 1}]

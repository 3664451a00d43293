"""The in-memory sink keeps the contract that it is the reference for."""

from __future__ import annotations

import pyarrow as pa
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
from twophase.testing.contract.sink import RowContract
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, transaction_id
from twophase.testing.memory import MemorySink, MemoryTarget, OpenMemorySink


class MemoryHarness(SinkHarness):
    """A target in memory.

    Args:
        kind: the class of the open sink.
    """

    def __init__(self, kind: type[OpenMemorySink] = OpenMemorySink) -> None:
        self.target = MemoryTarget()
        self.kind = kind

    def new_sink(self) -> MemorySink:
        return SinkOfAKind(self.target, self.kind)

    def elsewhere(self) -> MemoryHarness:
        return type(self)(self.kind)

    def contents(self) -> str:
        return repr(vars(self.target) | {"lock": None})

    def rows_visible(self) -> list[Row]:
        return list(self.target.visible)


class SinkOfAKind(MemorySink):
    def __init__(self, target: MemoryTarget, kind: type[OpenMemorySink]) -> None:
        super().__init__(target)
        self.kind = kind

    def open(self, context: SinkContext) -> OpenMemorySink:
        return self.kind(self._target, context.job, context.sink)


class TimedMemoryHarness(MemoryHarness):
    schema = MemoryHarness.schema.append(pa.field("at", pa.timestamp("us", "UTC"))).append(
        pa.field("clock", pa.timestamp("us"))
    )


class TestMemorySink(
    ArrowSinkContract, KnowsOtherNamesContract, NamesPiecesContract, RewindContract
):
    killed_by = "No suite: its target dies with the driver."

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemorySinkWithTimes(RowContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return TimedMemoryHarness()


def test_rows_can_be_pre_committed_directly_without_batches():
    harness = MemoryHarness()
    sink = harness.new_sink().open(SinkContext(JOB, SINK, harness.schema, parallelism=1))
    sink.fence(FIRST)
    piece = sink.write_direct(transaction_id(), Subtask(0, 0), [{"id": 1}])
    assert piece is not None
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert harness.rows_visible() == [{"id": 1}]

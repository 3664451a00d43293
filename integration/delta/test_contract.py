"""The contract of every sink, on a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import OpenSink, TellsUnfinished
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError
from twophase.testing.contract import (
    KnowsOtherNamesContract,
    PhasesContract,
    RewindContract,
    RewindStepsContract,
    SinkContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.sink import DeclaredContract, LookContract
from twophase.testing.harness import Row, transaction_id

IN_PHASE_1 = {"C04": False, "C05": False, "F01": False, "F02": True}
"""Crash points, and whether a piece can be committed from there on."""

pytestmark = pytest.mark.part("delta")


class PlainlyRead(DeltaHarness):
    """What is visible is looked at often, and Spark takes its time."""

    def rows_visible(self) -> list[Row]:
        return self.rows_of_plain_reader()


class OnDelta:
    @pytest.fixture
    def harness(self, delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
        return PlainlyRead(delta_spark, tmp_path / "orders")


class Unfinished(TellsUnfinishedContract):
    """Phase 1 runs on the driver, so that dies instead of a writer."""

    def test_a_piece_of_a_killed_writer_has_a_handle_or_is_unfinished(self, sink: OpenSink) -> None:
        assert isinstance(sink, TellsUnfinished)
        for number, point in enumerate(IN_PHASE_1):
            failpoints.arm(f"{point}=raise")
            try:
                with pytest.raises(FailpointError):
                    self.prepare(sink, [number], transaction_id(number))
            finally:
                failpoints.arm("")
        found = sorted(sink.in_doubt(), key=lambda piece: piece.transaction.checkpoint)
        assert [bool(piece.handle) for piece in found] == [*IN_PHASE_1.values()]
        assert list(sink.unfinished(found)) == [piece for piece in found if not piece.handle]
        finished = [piece for piece in found if piece.handle]
        assert self.commit(sink, finished) == [Committed()] * len(finished)


class TestDeltaSinkInShort(OnDelta, PhasesContract, DeclaredContract, LookContract):
    """What stands for the contract in `make test`."""


@pytest.mark.proof
class TestDeltaSink(
    OnDelta,
    SinkContract,
    KnowsOtherNamesContract,
    RewindContract,
    RewindStepsContract,
    Unfinished,
):
    """All of it."""

    killed_by = "No suite: its driver needs Spark. test_rewind.py kills one at each step."

"""A sink goes on with another number of tasks while a checkpoint waits for its commit."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.selection import representatives
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.ids import Attempt
from twophase.sinks.delta.sink import OpenDeltaSink
from twophase.testing.harness import transaction_id

pytestmark = pytest.mark.part("delta")

PAIRS = [f"{before} to {after}" for before, after in permutations((1, 2, 3, 7), 2)]


@pytest.mark.parametrize("pair", representatives(PAIRS, {"7 to 2"}))
def test_what_waits_is_committed_and_the_next_checkpoint_has_other_files(
    delta_spark: SparkSession, tmp_path: Path, pair: str
) -> None:
    before, after = map(int, pair.split(" to "))
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    old = table.opened(Attempt(1, 0))
    waiting = write(table, old, range(20), 0, Attempt(1, 1), before)
    old.close()
    assert len(table.data_files()) == before
    assert table.ids() == []

    new = table.new_sink().open(table.context(parallelism=after))
    [found] = new.in_doubt()
    assert (found.transaction, found.rows) == (waiting.transaction, 20)
    assert commit(new, waiting) == [Committed()]
    new.fence(Attempt(2, 0))
    following = write(table, new, range(20, 40), 1, Attempt(2, 1), after)
    assert len(table.data_files()) == before + after
    assert commit(new, following) == [Committed()]
    assert table.ids() == [*range(40)]
    assert list(new.in_doubt()) == []
    new.close()


def write(
    table: DeltaHarness,
    sink: OpenDeltaSink,
    ids: range,
    checkpoint: int,
    attempt: Attempt,
    tasks: int,
) -> Committable:
    """Pre-commit rows with so many tasks, each with rows."""
    frame = table.frame(table.rows(ids)).repartitionByRange(tasks, "id")
    [piece] = sink.pre_commit(frame, transaction_id(checkpoint, attempt))
    return piece

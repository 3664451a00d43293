"""Which batches of a benchmark count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import pytest

from benchmarks.contest import Pipeline, check_batches, full_batches
from benchmarks.driver import Batch
from benchmarks.launch import Run

FULL = 500_000
SLOW_START = 20_000, 60_000, 180_000
UNUSED: Any = None


def run(rows: Sequence[int]) -> Run:
    batches = [Batch(number, count, "", number + 1.0, {}) for number, count in enumerate(rows)]
    return Run(batches, [], UNUSED)


@pytest.mark.parametrize("first", [(), SLOW_START[:1], SLOW_START], ids=len)
def test_every_pipeline_has_the_same_full_batches_of_warm_up(first: Sequence[int]) -> None:
    done = run([*first, *[FULL] * 5, FULL // 2])
    assert [batch.number - len(first) for batch in done.steady(3, FULL)] == [3, 4]
    rates = Pipeline("", "", "", [done]).rates(3, FULL)
    assert rates == [FULL / (len(first) + number) for number in (4, 5)]


def test_the_records_of_a_slow_start_are_no_full_batch() -> None:
    assert full_batches(sum(SLOW_START) + 4 * FULL - 1, FULL) == 3
    assert full_batches(sum(SLOW_START) + 4 * FULL, FULL) == 4
    assert full_batches(4 * SLOW_START[0], SLOW_START[0]) == 4
    assert full_batches(SLOW_START[0], FULL) == 0


def test_a_benchmark_without_a_batch_that_counts_is_refused() -> None:
    check_batches(sum(SLOW_START) + 4 * FULL, FULL, 3)
    with pytest.raises(click.UsageError, match="2240000 records are 3 full batches, 3 of them"):
        check_batches(4 * FULL + 240_000, FULL, 3)

"""Where the time of a micro-batch goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.driver import Batch
from benchmarks.kafka_to_mysql import CHAINED, UNCHAINED
from benchmarks.latency import phases
from benchmarks.launch import Run

UNUSED: Any = None


def run(batches: Sequence[tuple[int, int]]) -> Run:
    """A run of micro-batches with so many rows, and so many milliseconds of planning each.

    Its first checkpoint has no rows, and is no batch.
    """
    made = [
        Batch(number, rows, "", (100 + ms) / 1000, {"queryPlanning": ms, "addBatch": 100})
        for number, (rows, ms) in enumerate(batches, 1)
    ]
    steps = [
        {"acknowledged_s": ms / 1000, "decided_s": ms / 500, "committed_s": ms / 250}
        for _, ms in ((0, 9000), *batches)
    ]
    return Run(made, steps, UNUSED)


def test_the_phases_are_those_of_the_micro_batches_after_the_warm_up() -> None:
    slow = [(600, 900), (400, 800)]
    runs = {
        CHAINED: [
            run([*slow, (200, 10), (300, 20), (400, 30)]),
            run([*slow, (500, 40), (300, 50)]),
        ],
        UNCHAINED: [run([*slow, (100, 60)])],
    }
    shown = phases(runs, 1000)
    columns = [[*column.cells] for column in shown.columns]
    assert [*zip(*columns, strict=True)] == [
        ("rows, not ms", "300", "100"),
        ("latestOffset", "0", "0"),
        ("walCommit", "0", "0"),
        ("getBatch", "0", "0"),
        ("queryPlanning", "30", "60"),
        ("addBatch", "100", "100"),
        ("until the sinks have acknowledged", "30", "60"),
        ("until the decision", "60", "120"),
        ("until the commit", "120", "240"),
        ("commitOffsets", "0", "0"),
        ("triggerExecution, all of it", "130", "160"),
    ]

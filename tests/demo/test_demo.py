"""What `make demo` says at its end: when it fails, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.figures import Life, add_up, what_is_wrong
from demo.kills import PLAN
from harness.checker import Verdict
from harness.figures import percentile
from twophase.events import CheckpointSubsumed
from twophase.testing.journal import Entry, Journal, JournalReader

EXACT = Verdict(1000, 1000, 0, 0, 0, "")
NOTHING = {"facts": 0, "lake": 0, "hive": 0}


def test_a_demo_without_a_fault_passes() -> None:
    assert (
        what_is_wrong(
            dict.fromkeys(NOTHING, EXACT), records=1000, waiting=NOTHING, kills=4, planned=4
        )
        == ""
    )


@pytest.mark.parametrize("sink", NOTHING)
@pytest.mark.parametrize(
    ("verdict", "records", "waiting", "kills"),
    [
        (Verdict(1000, 999, 1, 0, 0, "lost: [(0, 1)]"), 1000, 0, 4),
        (Verdict(1000, 1001, 0, 1, 0, "duplicated: [(0, 1)]"), 1000, 0, 4),
        (Verdict(1000, 1001, 0, 0, 1, "foreign: [(9, 9)]"), 1000, 0, 4),
        (EXACT, 1001, 0, 4),
        (EXACT, 1000, 1, 4),
        (EXACT, 1000, 0, 2),
    ],
)
def test_a_demo_with_a_fault_in_any_sink_fails(
    sink: str, verdict: Verdict, records: int, waiting: int, kills: int
) -> None:
    assert what_is_wrong(
        dict.fromkeys(NOTHING, EXACT) | {sink: verdict},
        records,
        NOTHING | {sink: waiting},
        kills,
        len(PLAN),
    )


def test_at_least_three_kills_are_planned_at_three_points_and_one_at_random() -> None:
    assert [kill.point for kill in PLAN] == ["C06", "C11", "D01", ""]


def test_figures_add_up_over_all_drivers() -> None:
    first = [
        Entry("RecoveryFinished", 12.0, {}),
        Entry("CheckpointDecided", 13.0, {"rows": 5, "checkpoint": 0}),
    ]
    committed = {"rows": 5, "checkpoint": 1, "duration_s": 2.0, "protocol_s": 0.5}
    second = [Entry("RecoveryFinished", 21.0, {}), Entry("CheckpointCommitted", 23.0, committed)]
    figures = add_up([Life(10.0, 14.0, first, PLAN[0]), Life(14.0, 24.0, second, None)])
    assert (figures.kills, figures.decided, figures.overall_s, figures.running_s) == (
        1,
        1,
        14.0,
        5.0,
    )
    assert (figures.durations_s, figures.protocol_s, figures.rates) == ([2.0], [0.5], [2.5])


def test_percentiles() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 1.0)] == [50.0, 95.0, 100.0]
    assert percentile([], 0.5) == 0.0


def test_a_half_written_line_of_a_killed_driver_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "events"
    reader = JournalReader(path)
    assert list(reader.new()) == []
    journal = Journal(str(path))
    journal(CheckpointSubsumed("orders", 7))
    with path.open("a") as file:
        file.write('["CheckpointSubs')
    assert [entry.fields["checkpoint"] for entry in reader.new()] == [7]
    assert list(reader.new()) == []

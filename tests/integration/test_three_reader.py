"""The reader of the tables of a job with three sinks has to see what it is there for."""

from __future__ import annotations

import pytest

from integration.three_sinks.reader import Look, Part


@pytest.mark.parametrize(
    ("before", "seen", "committed", "decided", "found"),
    [
        ([], [], 0, 0, []),
        ([], [], 0, 2, []),
        ([0], [1, 0], 0, 2, []),
        ([0, 1], [0, 1, 2], 2, 4, []),
        ([], [0, 0], 0, 2, ["visible twice: 1, such as [0]"]),
        ([0, 1], [0], 0, 2, ["visible no more: 1, such as [1]"]),
        ([], [0], 2, 2, ["committed and not visible: 1, such as [1]"]),
        ([], [0, 1, 2], 2, 2, ["visible and not decided: 1, such as [2]"]),
        # As many rows as are decided, and not those.
        ([], [0, 2], 0, 2, ["visible and not decided: 1, such as [2]"]),
    ],
)
def test_what_a_reader_must_not_see(
    before: list[int], seen: list[int], committed: int, decided: int, found: list[str]
) -> None:
    assert Look(seen, committed, decided).wrong({*before}) == found


@pytest.mark.parametrize(("start_s", "after_s"), [(9.0, None), (11.0, 3.0), (15.0, None)])
def test_a_part_is_left_by_a_kill_if_the_next_driver_starts_while_it_is_visible(
    start_s: float, after_s: float | None
) -> None:
    part = Part("orders", "hive", 10.0, 14.0)
    assert part.lasted_s() == 4.0
    assert part.after_s([1.0, start_s, 20.0]) == after_s

"""The checker of the integration tests and of the demo has to see what it is there for."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checker import RECORD, Records, compare

Record = tuple[int, int, int]


def records(*listed: Record) -> Records:
    return np.array(list(listed), RECORD)


FIRST, SECOND, THIRD = (0, 0, 111), (0, 1, 222), (1, 0, 333)
ALL = records(FIRST, SECOND, THIRD)


@pytest.mark.parametrize(
    ("stored", "lost", "duplicated", "foreign"),
    [
        (records(THIRD, FIRST, SECOND), 0, 0, 0),
        (records(FIRST, SECOND), 1, 0, 0),
        (records(FIRST, SECOND, SECOND, SECOND, THIRD), 0, 2, 0),
        (records(FIRST, FIRST, SECOND), 1, 1, 0),
        (records(FIRST, SECOND, THIRD, (2, 0, 111)), 0, 0, 1),
        (records(FIRST, SECOND, (1, 0, 334)), 1, 0, 1),
        (records(FIRST, SECOND, THIRD, (9, 9, 9), (9, 9, 9)), 0, 0, 2),
        (records(), 3, 0, 0),
    ],
)
def test_multiplicities_are_compared(
    stored: Records, lost: int, duplicated: int, foreign: int
) -> None:
    verdict = compare(ALL, stored)
    assert (verdict.lost, verdict.duplicated, verdict.foreign) == (lost, duplicated, foreign)
    assert (verdict.produced, verdict.stored) == (3, len(stored))
    assert verdict.exact == (lost == duplicated == foreign == 0)


def test_two_empty_multisets_are_equal() -> None:
    assert compare(records(), records()).exact


def test_examples_name_partition_and_offset() -> None:
    assert compare(ALL, records(FIRST, THIRD)).examples == "lost: [(0, 1)]"

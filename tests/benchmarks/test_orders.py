"""Which keys a task of a benchmark gets."""

from __future__ import annotations

import pytest

from benchmarks.kafka_to_mysql import variant
from benchmarks.orders import partition_of


@pytest.mark.parametrize(
    ("in_a_row", "partitions"),
    [(1, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]), (3, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1])],
)
def test_partitions_have_every_other_order_or_a_slice_of_each_micro_batch(
    in_a_row: int, partitions: list[int]
) -> None:
    assert [partition_of(number, 2, in_a_row) for number in range(12)] == partitions


def test_a_run_with_slices_is_recorded_on_its_own() -> None:
    assert [*variant("mysql", "ascending", slices=False)] == []
    assert [*variant("mariadb", "random", slices=True)] == ["mariadb", "random", "slices"]

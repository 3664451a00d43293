"""Offsets look the same in every command."""

from __future__ import annotations

import json

import pytest

from twophase.contract.offset_text import line_text, offset_text
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset

ENTRIES = [PartitionOffset("orders", "id-of-it", 0, 34285), PartitionOffset("orders", "x", 1, 12)]
OURS = SourceOffset.of("kafka", ENTRIES).to_line()
SPARK_S = json.dumps({"orders": {"0": 34285, "1": 12}})


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (OURS, "orders-0:34285 orders-1:12"),
        (SPARK_S, "orders-0:34285 orders-1:12"),
        ('{"logOffset":3}', '{"logOffset": 3}'),
        ("17", "17"),
        ("of nobody", "of nobody"),
        (None, "the beginning"),
    ],
)
def test_a_line_is_its_positions(line: str | None, text: str) -> None:
    assert line_text(line) == text


def test_a_table_shows_a_few_positions_shortened() -> None:
    entries = [{"topic": "t", "partition": number, "offset": 5} for number in range(4)]
    assert offset_text(entries, 2) == "t-0:5 t-1:5 and 2 more"
    assert offset_text(entries[:2], 2) == "t-0:5 t-1:5"
    assert offset_text(["x" * 50], 2) == "x" * 40 + "..."
    assert offset_text(["x" * 50]) == "x" * 50

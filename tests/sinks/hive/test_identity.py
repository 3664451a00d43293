"""Which Hive table the proofs are of, by the time at which the metastore made it:
without a metastore.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from twophase.sinks.common.staging.formats import Format
from twophase.sinks.hive.catalog import HiveTable
from twophase.sinks.hive.identity import record, why_replaced

MADE = "1700000000000"


@pytest.mark.parametrize(
    ("made_again", "is_noticed"),
    [("1700000001000", True), (MADE, False)],
    ids=["a second later", "within the same second"],
)
def test_a_table_that_is_recreated_within_the_same_second_is_not_noticed(
    tmp_path: Path, made_again: str, is_noticed: bool
) -> None:
    """The metastore counts seconds."""
    record(MADE, tmp_path)
    again = HiveTable(
        "shop.orders",
        str(tmp_path),
        Format.PARQUET,
        pa.schema([]),
        ("dt",),
        (pa.string(),),
        created=made_again,
    )
    assert bool(why_replaced(again, made_again, lambda: False, tmp_path)) is is_noticed

"""A rewind of a Delta table is refused, and what the refusal names leads on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.selection import representatives
from integration.delta.sink_harness import DeltaHarness, commit
from integration.delta.test_rewind import RESTORING, WRITERS, filled, rewound
from twophase.contract.outcome import Committed
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.testing.harness import LINEAGE

pytestmark = [pytest.mark.spark, pytest.mark.part("delta")]


@pytest.mark.parametrize("writer", representatives(WRITERS, ()))
def test_restore_table_leads_to_a_rewind(
    delta_spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    """Somebody has changed the rows, and the rewind is refused with RESTORE TABLE as the remedy:
    I restore the version before the change, and the rewind is done.
    """
    table = filled(DeltaHarness(delta_spark, tmp_path / "orders"))
    sink = table.opened(RESTORING)
    before, rows = len(table.commits()) - 1, table.ids()
    table.sql(WRITERS[writer][0])
    with pytest.raises(RestoreRefusedError) as caught:
        sink.check_rewind({LINEAGE: 0})
    assert "RESTORE TABLE" in caught.value.remedy
    table.sql(f"RESTORE TABLE {{table}} TO VERSION AS OF {before}")
    assert table.ids() == rows
    rewound(table)
    assert table.ids() == [0, 1]


@pytest.mark.proof
def test_restore_table_is_not_named_where_it_would_remove_later_rows(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """The table was optimized and the job has written on: to restore the version before that would
    remove what was written since. Another way is named, and a newer point can be rewound to.
    """
    table = filled(DeltaHarness(delta_spark, tmp_path / "orders"))
    sink = table.opened(RESTORING)
    table.sql("OPTIMIZE {table}")
    assert commit(sink, table.write(sink, [6, 7], 3, RESTORING)) == [Committed()]
    with pytest.raises(RestoreRefusedError) as caught:
        sink.check_rewind({LINEAGE: 0})
    assert "RESTORE TABLE" not in caught.value.remedy
    rewound(table, {LINEAGE: 2}, Attempt(3, 0))
    assert table.ids() == [0, 1, 2, 3, 4, 5]

"""Rows: readers see what was written, NULL included, in the columns with the same names."""

from __future__ import annotations

import pyarrow as pa

from twophase.protocol.sink import OpenSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, SinkHarness, transaction_id


class RowContract(ContractBase):
    """No value changes between writer and reader."""

    def test_null_stays_null_and_an_empty_text_empty(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        rows = harness.rows_with_nulls()
        assert any(value is None for row in rows for value in row.values()), (
            "rows_with_nulls() has no NULL"
        )
        batch = pa.RecordBatch.from_pylist(rows, schema=harness.schema)
        self.commit(sink, harness.pre_commit(sink, transaction_id(), batch))
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == rows

    def test_columns_go_by_name_after_a_restart_with_another_order(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, range(2)))
        sink.close()
        names = list(reversed(harness.schema.names))
        again = self.opened(
            harness, schema=pa.schema([harness.schema.field(name) for name in names])
        )
        again.fence(FIRST)
        self.commit(
            again,
            harness.pre_commit(
                again, transaction_id(1), self.batch(harness, range(2, 4)).select(names)
            ),
        )
        again.close()
        assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == harness.rows(range(4))

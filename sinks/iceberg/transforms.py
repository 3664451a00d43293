"""Values that a table's partition spec or sort order makes of a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import IcebergType, IntegerType


@dataclass(frozen=True)
class Transformed:
    """One field of a partition spec or sort order.

    Attributes:
        column: the place of the column that it is made of, among the table's; -1 for none.
        kind: the type of its values.
        transform: makes them; None if all are null.
    """

    column: int
    kind: IcebergType
    transform: Callable[[pa.Array], pa.Array] | None

    @classmethod
    def of(cls, field: PartitionField | SortField, schema: Schema) -> Transformed:
        """Return a field that nothing speaks against."""
        if isinstance(field.transform, VoidTransform):  # of a column that may have been dropped
            return cls(-1, IntegerType(), None)
        columns = [column.field_id for column in schema.fields]
        source = schema.fields[columns.index(field.source_id)].field_type
        kind = field.transform.result_type(source)
        return cls(columns.index(field.source_id), kind, field.transform.pyarrow_transform(source))

    def values(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Return the value of each row; rows have the table's columns and types."""
        if self.transform is None:
            return pa.nulls(rows.num_rows, pa.int32())
        column = _whole(rows.column(self.column))
        if pa.types.is_large_binary(column.type):  # which pyiceberg-core does not truncate
            column = column.cast(pa.binary())
        return _whole(self.transform(column))


def reason_against(field: PartitionField | SortField, schema: Schema) -> str:
    """Return why rows have no value of a field; empty if they have one."""
    if isinstance(field.transform, VoidTransform):
        return ""
    if field.source_id not in {column.field_id for column in schema.fields}:
        return "is made of a value inside a column"
    if isinstance(field.transform, UnknownTransform):
        return "is made by a transform that is unknown here"
    return ""


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

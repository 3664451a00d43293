"""The partition of each row, by the transforms of a table's partition spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType

Values = tuple[bytes | None, ...]
"""The value of each partition field, as Iceberg serialises single values; None is null."""


@dataclass(frozen=True)
class _Field:
    """One partition field.

    Attributes:
        column: the column that it is made of.
        kind: the type of its values.
        transform: makes them; None if all are null.
    """

    column: str
    kind: IcebergType
    transform: Callable[[pa.Array], pa.Array] | None


class Partitions:
    """The partitions of one spec.

    Args:
        spec: the partition spec.
        schema: the table's.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields = [_field(field, schema) for field in spec.fields]

    def divide(self, rows: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """Split rows by partition; the rows of each part are copied.

        Args:
            rows: with the table's columns and types.
        """
        if not self._fields:
            yield (), rows
            return
        columns = [_numbers(self._of(field, rows)) for field in self._fields]
        for part in _groups(columns, rows.num_rows):
            first = int(part[0])
            values = tuple(
                _serialised(field.kind, column[first].as_py())
                for field, column in zip(self._fields, columns, strict=True)
            )
            indices = pa.Array.from_buffers(pa.int64(), len(part), [None, pa.py_buffer(part)])
            yield values, rows.take(indices)

    def record(self, values: Values) -> Record:
        """Return a partition as Iceberg's manifests have it."""
        return Record(
            *(
                None if value is None else from_bytes(_primitive(field.kind), value)
                for field, value in zip(self._fields, values, strict=True)
            )
        )

    @staticmethod
    def _of(field: _Field, rows: pa.RecordBatch) -> pa.Array:
        if field.transform is None:
            return pa.nulls(rows.num_rows, pa.int32())
        column = rows.column(field.column)
        if pa.types.is_large_binary(column.type):  # which pyiceberg-core does not truncate
            column = column.cast(pa.binary())
        found = field.transform(column)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def refusals(spec: PartitionSpec, schema: Schema) -> list[str]:
    """Return why rows cannot be written by a partition spec; empty if they can."""
    problems = []
    for field in spec.fields:
        names = {one.field_id: one for one in schema.fields}
        source = names.get(field.source_id)
        if isinstance(field.transform, VoidTransform):
            continue
        if source is None:
            problems.append(f"partition field {field.name!r} is made of a value inside a column")
        elif isinstance(field.transform, UnknownTransform):
            problems.append(f"the transform {field.transform} is unknown")
        elif isinstance(field.transform, IdentityTransform) and isinstance(
            source.field_type, FloatType | DoubleType
        ):
            problems.append(
                f"partition field {field.name!r} is a floating-point number, whose NaN and -0.0 "
                "readers tell apart differently"
            )
    return problems


def _field(field: Any, schema: Schema) -> _Field:
    source = schema.find_field(field.source_id)
    kind = field.transform.result_type(source.field_type)
    if isinstance(field.transform, VoidTransform):
        return _Field(source.name, kind, None)
    return _Field(source.name, kind, field.transform.pyarrow_transform(source.field_type))


def _primitive(kind: IcebergType) -> PrimitiveType:
    assert isinstance(kind, PrimitiveType)  # noqa: S101 transforms make no other
    return kind


def _numbers(column: pa.Array) -> pa.Array:
    """Return dates and times as the numbers that they are: Python's lack years past 9999."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.view(pa.int64())
    return column


def _groups(columns: Sequence[pa.Array], count: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the rows of each partition, as indices in ascending order."""
    codes = np.zeros(count, np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        found = np.frombuffer(encoded.indices.buffers()[1], np.int32)[
            encoded.indices.offset : encoded.indices.offset + count
        ]
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + found, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable").astype(np.int64)
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _serialised(kind: IcebergType, value: Any) -> bytes | None:
    return None if value is None else to_bytes(_primitive(kind), value)

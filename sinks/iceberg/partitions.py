"""The partition of each row, by the transforms of a table's partition spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType

from twophase.errors import ConfigError
from twophase.sinks.iceberg.options import partition_field
from twophase.sinks.iceberg.transforms import Transformed, reason_against

Values = tuple[bytes | None, ...]
"""The value of each partition field, as Iceberg serialises single values; None is null."""
_FIRST_PARTITION_ID = 1000
_ENDINGS = {"truncate": "trunc"}
"""Of the names that Spark gives to partition fields, where they are not the transform."""


class Partitions:
    """The partitions of one spec.

    Args:
        spec: the partition spec.
        schema: the table's.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields = [Transformed.of(field, schema) for field in spec.fields]

    def divide(self, rows: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """Split rows by partition; the rows of each part are copied.

        Args:
            rows: with the table's columns and types.
        """
        if not self._fields:
            yield (), rows
            return
        columns = [_numbers(field.values(rows)) for field in self._fields]
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


def refusals(spec: PartitionSpec, schema: Schema) -> list[str]:
    """Return why rows cannot be written by a partition spec; empty if they can."""
    problems = []
    for field in spec.fields:
        if reason := reason_against(field, schema):
            problems.append(f"partition field {field.name!r} {reason}")
        elif isinstance(field.transform, IdentityTransform) and isinstance(
            schema.find_type(field.source_id), FloatType | DoubleType
        ):
            problems.append(
                f"partition field {field.name!r} is a floating-point number, whose NaN and -0.0 "
                "readers tell apart differently"
            )
    return problems


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


def new_spec(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table.

    Raises:
        ConfigError: a field is made of no column, or its transform does not take that.
    """
    made = []
    for number, text in enumerate(fields):
        column, transform = partition_field(text)
        found = next((field for field in schema.fields if field.name == column), None)
        if found is None:
            raise ConfigError(
                f"The partition field {text!r} is made of no column of the rows.",
                remedy="name a column in partition_by, or a transform of one such as day(at).",
            )
        parsed = parse_transform(transform)
        if not parsed.can_transform(found.field_type):
            raise ConfigError(
                f"The partition field {text!r} cannot be made of a column of type "
                f"{found.field_type}.",
                remedy="choose another transform in partition_by.",
            )
        kind = transform.partition("[")[0]
        name = column if kind == "identity" else f"{column}_{_ENDINGS.get(kind, kind)}"
        made.append(
            PartitionField(
                source_id=found.field_id,
                field_id=_FIRST_PARTITION_ID + number,
                transform=parsed,
                name=name,
            )
        )
    return PartitionSpec(*made)


def check_names(spec: PartitionSpec, schema: Schema) -> None:
    """Check that the partition fields of a new table have names of their own, in manifests too.

    Raises:
        ConfigError: two of them have one, or one has that of a column that it is not equal to.
    """
    made = [make_compatible_name(field.name) for field in spec.fields]
    for field, name in zip(spec.fields, made, strict=True):
        is_column = isinstance(field.transform, IdentityTransform)
        if made.count(name) > 1 or (not is_column and field.name in schema.column_names):
            raise ConfigError(
                f"The partition field {field.transform}({schema.find_column_name(field.source_id)})"
                f" would have a name that another one or a column has: {field.name!r}.",
                remedy="choose another transform in partition_by, or rename the column.",
            )

"""Splits rows by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twophase.sinks.common.partition_names import Values
from twophase.sinks.common.staging.formats import check_utf8
from twophase.sinks.common.staging.times import check_years


def refusal(kind: pa.DataType) -> str:
    """Return why values of a type cannot be folder names that read back; empty if they can."""
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    if plain or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    return (
        f"{kind} does not read back unchanged from a folder's name; "
        "use a string, an integer, a boolean or a date"
    )


def divide(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Split rows by the values of some columns, and drop those columns.

    The rows of each part are copied, so that no part keeps the whole batch in memory.

    Raises:
        RefusedValueError: a date has no text that reads back.
    """
    rest = batch.drop_columns(list(columns))
    if not columns:
        yield (), rest
        return
    for name in columns:
        if pa.types.is_date32(batch.column(name).type):
            check_years(name, batch.column(name), "the name of a partition")
    texts = [pc.cast(batch.column(name), pa.string()) for name in columns]
    for name, text in zip(columns, texts, strict=True):
        check_utf8(name, text)
    codes = np.zeros(batch.num_rows, np.int64)
    for text in texts:
        encoded = pc.dictionary_encode(text, null_encoding="encode")
        # Renumbered, so that the codes of many columns stay below the number of rows.
        indices = encoded.indices
        found = np.frombuffer(indices.buffers()[1], np.int32)[
            indices.offset : indices.offset + len(indices)
        ]
        pairs = codes * len(encoded.dictionary) + found
        codes = np.unique(pairs, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        values = tuple(text[int(rows[0])].as_py() for text in texts)
        yield (
            values,
            rest.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])),
        )

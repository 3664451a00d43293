"""The columns of a parquet file whose bounds readers can rely on.

To Spark, Hive and DuckDB NaN is a number, greater than all others. pyarrow leaves it out of the
bounds, so a reader that goes by them skips rows: `WHERE d > 1000`, `WHERE d = 'NaN'`. A column
without bounds, as parquet-mr writes it, is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def with_bounds(rows: pa.Table) -> list[str]:
    """Return the paths of the columns without NaN, as pyarrow's `write_statistics` takes them."""
    found = [
        leaf
        for field, column in zip(rows.schema, rows.columns, strict=True)
        for chunk in column.chunks
        for leaf in leaves(field.name, chunk)
    ]
    with_nan = {path for path, values in found if _has_nan(values)}
    return sorted({path for path, _ in found} - with_nan)


def leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Return the columns that a file has of an array. Values that a null or a slice hides are in
    them too: they cost bounds or a dictionary at worst.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from leaves(f"{path}.{field.name}", array.field(number))
    elif pa.types.is_map(kind):
        yield from leaves(f"{path}.key_value.key", array.keys)
        yield from leaves(f"{path}.key_value.value", array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from leaves(f"{path}.list.element", array.values)
    else:
        yield path, array


def _has_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())

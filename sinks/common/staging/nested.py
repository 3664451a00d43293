"""Arrays, structs and maps as pyarrow's ORC writer takes them.

It writes the values that an array has below a null, and those beside a slice, in place of those
that follow: readers find them in other rows, without an error (pyarrow 26).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def without_hidden_values(rows: pa.Table) -> pa.Table:
    """Return the same rows, with nested columns that hold nothing else; copied only if needed."""
    for number, field in enumerate(rows.schema):
        chunks = rows.column(number).chunks
        if pa.types.is_nested(field.type) and not all(map(_is_bare, chunks)):
            bare = pa.chunked_array(map(_bare, chunks), field.type)
            rows = rows.set_column(number, field, bare)
    return rows


def _is_bare(array: pa.Array) -> bool:
    kind = array.type
    if array.offset:
        return False
    if not pa.types.is_nested(kind):
        return True
    nulls = _nulls(array) if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [array.field(number) for number in range(kind.num_fields)]
        hidden = nulls is not None and any((nulls & ~_nulls(field)).any() for field in fields)
        return not hidden and all(map(_is_bare, fields))
    array = _as_list(array)
    ends = np.asarray(array.offsets)
    hidden = nulls is not None and np.diff(ends)[nulls].any()
    is_whole = ends[0] == 0 and ends[-1] == len(array.values)
    return bool(is_whole and not hidden and _is_bare(array.values))


def _bare(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pa.types.is_nested(kind):
        return pa.concat_arrays([array]) if array.offset else array
    nulls = _nulls(array)
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if array.null_count else None
    if pa.types.is_struct(kind):
        return _of(kind, len(array), [valid], array.flatten())
    array = _as_list(array)
    lengths = np.diff(np.asarray(array.offsets))
    lengths[nulls] = 0
    ends = np.zeros(len(array) + 1, lengths.dtype)
    np.cumsum(lengths, out=ends[1:])
    return _of(kind, len(array), [valid, pa.py_buffer(ends)], [array.flatten()])


def _of(
    kind: pa.DataType, length: int, buffers: list[pa.Buffer | None], children: list[pa.Array]
) -> pa.Array:
    bare = [_bare(child) for child in children]
    return pa.Array.from_buffers(kind, length, buffers, children=bare)


def _as_list(array: pa.Array) -> pa.Array:
    """Return a map as a list of structs: the same memory."""
    kind = array.type
    if not pa.types.is_map(kind):
        return array
    return array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))


def _nulls(array: pa.Array) -> np.ndarray:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))

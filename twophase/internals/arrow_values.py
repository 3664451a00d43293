"""Arrow arrays and scalars from Python values, without pandas.

`pyarrow.array`, `pyarrow.scalar` and every compute function that takes a Python value import
pandas, if it is installed, to check whether the value is a pandas object. That costs a third of a
second of CPU time in each of Spark's Python workers. Arrays built from buffers skip that check.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

_CODES = {pa.int32(): "i", pa.int64(): "q"}


def integers(values: Iterable[int], kind: pa.DataType | None = None) -> pa.Array:
    """Return an array of integers.

    Args:
        values: integers, without None.
        kind: int32 or int64, the default.

    Raises:
        OverflowError: a value does not fit.
    """
    kind = kind or pa.int64()
    found = array.array(_CODES[kind], values)
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


def binaries(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Return an array of bytes, or of strings in UTF-8.

    Args:
        values: None becomes null.
        kind: binary, the default, or string.

    Raises:
        OverflowError: the values are longer in total than an array can hold.
    """
    kind = kind or pa.binary()
    validity = _bits(value is not None for value in values) if None in values else None
    present: list[bytes] = [value or b"" for value in values] if validity else values  # type: ignore[assignment]
    data = b"".join(present)
    if len(data) > np.iinfo(np.int32).max:
        raise OverflowError(f"{len(data)} bytes are too many for one array")
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, present), np.int32, len(present)), out=ends[1:])
    return pa.Array.from_buffers(
        kind, len(values), [validity, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return an array of strings; None becomes null."""
    return binaries([None if value is None else value.encode() for value in values], pa.string())


def booleans(values: Iterable[bool]) -> pa.Array:
    """Return an array of booleans, without null."""
    found = list(values)
    return pa.Array.from_buffers(pa.bool_(), len(found), [None, _bits(found)])


@lru_cache(256, typed=True)  # typed: otherwise 1 and True share a key
def scalar(value: bool | int | str) -> pa.Scalar:
    """Return a value as a scalar for compute functions."""
    if isinstance(value, str):
        return texts([value])[0]
    return booleans([value])[0] if isinstance(value, bool) else integers([value])[0]


def _bits(values: Iterable[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.fromiter(values, np.bool_), bitorder="little"))

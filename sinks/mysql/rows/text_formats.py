"""The two formats of rows: the file of LOAD DATA and the values of INSERT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class TextFormat:
    """The format in which one kind of statement takes rows.

    Attributes:
        text: escapes a string array.
        binary: text before and after the hex digits of bytes.
        quote: text before and after a text, a date or a time.
        null: the text of NULL.
        row: text before a row, between two columns and after a row.
    """

    text: Callable[[pa.Array], pa.Array]
    binary: tuple[str, str]
    quote: str
    null: str
    row: tuple[str, str, str]


def _escape(values: pa.Array, escapes: Sequence[tuple[bytes, str, str]]) -> pa.Array:
    """Escape special characters. One search shows that there are none, as usual."""
    _, offsets, data = values.buffers()
    if data is None:
        return values
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    text = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    for byte, character, escaped in escapes:
        if byte in text:
            values = pc.replace_substring(values, character, escaped)
    return values


def _escape_field(values: pa.Array) -> pa.Array:
    return _escape(values, ((b"\\", "\\", "\\\\"), (b"\t", "\t", "\\t"), (b"\n", "\n", "\\n")))


def _escape_literal(values: pa.Array) -> pa.Array:
    # We set the session's sql_mode: backslashes escape (see session_settings.py).
    return _escape(values, ((b"\\", "\\", "\\\\"), (b"'", "'", "\\'")))


LOAD_DATA = TextFormat(
    text=_escape_field, binary=("", ""), quote="", null="\\N", row=("", "\t", "\n")
)
INSERT_VALUES = TextFormat(
    text=_escape_literal, binary=("X'", "'"), quote="'", null="NULL", row=("(", ",", "),")
)

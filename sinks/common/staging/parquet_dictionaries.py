"""The columns of a parquet file that a dictionary makes smaller.

An encoder looks each value up in the dictionary, and gives that up for the rest of the file once it
has grown to 1 MB. Of values that are nearly all different, such as ids, only that work is left.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from twophase.sinks.common.staging.parquet_statistics import leaves

_SAMPLE = 10_000
_MOST_DIFFERENT = 8_000


def with_dictionary(rows: pa.Table) -> list[str]:
    """Return the paths of the columns whose values come again, as pyarrow's `use_dictionary` takes
    them: the first values tell. Fewer than these are cheap to look up.
    """
    found: dict[str, list[pa.Array]] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks:
            for path, values in leaves(field.name, chunk):
                found.setdefault(path, []).append(values)
    return sorted(path for path, chunks in found.items() if _come_again(chunks))


def _come_again(chunks: list[pa.Array]) -> bool:
    sample = pa.chunked_array(chunks).slice(0, _SAMPLE)
    return len(sample) < _SAMPLE or bool(pc.count_distinct(sample).as_py() <= _MOST_DIFFERENT)

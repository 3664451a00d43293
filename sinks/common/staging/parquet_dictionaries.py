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
    paths: dict[tuple[int, int], str] = {}  # two columns may have one: `a.b`, and `b` of a struct
    found: dict[tuple[int, int], list[pa.Array]] = {}
    for number, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        for chunk in column.chunks:
            for leaf, (path, values) in enumerate(leaves(field.name, chunk)):
                paths[number, leaf] = path
                found.setdefault((number, leaf), []).append(values)
    return sorted({paths[one] for one, chunks in found.items() if _come_again(chunks)})


def _come_again(chunks: list[pa.Array]) -> bool:
    sample = pa.chunked_array(chunks).slice(0, _SAMPLE)
    if len(sample) < _SAMPLE:
        return True
    try:
        return bool(pc.count_distinct(sample).as_py() <= _MOST_DIFFERENT)
    except pa.ArrowNotImplementedError:  # of a fixed-size list, say
        return True

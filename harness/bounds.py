"""Values whose bounds in a file are easily wrong, and conditions by which readers skip files, row
groups and pages: a reader has to find in the files of a sink what it finds in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import pyarrow as pa
from duckdb import DuckDBPyConnection
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from twophase.testing.harness import Row

NAN: Final = float("nan")
FIELDS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("inside", pa.struct([("double", pa.float64())])),
        ("text", pa.string()),
        ("bytes", pa.binary()),
    ]
)
ZEROS: Final = ("CAST('0.0' AS DOUBLE)", "CAST('-0.0' AS DOUBLE)")
"""The zeros in conditions."""
_NUMBERS: Final = [
    (1.0, NAN), (NAN, NAN), (None, NAN), (0.0, 1.0), (-1.0, -0.0), (-0.0, 0.0), (1.0, float("inf")),
]  # fmt: skip
"""By file, as the others."""
_TEXTS: Final = [
    ("a", "é" * 40), ("\U0010ffff" * 20, "\U0010ffff" * 20 + "a"), ("\ud7ff" * 20, "\ue000" * 20),
    ("", "\x01"), ("z" * 63 + "é", "z" * 64), (None, "北京" * 20), ("\x7f" * 30, "\x80" * 30),
]  # fmt: skip
_BYTES: Final = [
    (b"\xff" * 40, b"\xff" * 40 + b"\x00"), (b"", b"\x00"), (b"\x7f" * 40, b"\x80" * 40),
    (None, b"\xff"), (b"a" * 100, b"a" * 101), (b"\x00" * 40, b"\x01"), (b"\xfe\xff" * 20, b"\xff"),
]  # fmt: skip


def files() -> list[list[Row]]:
    """Return the rows of each file."""
    return [
        [
            {
                "id": 2 * at + second,
                "double": numbers[second],
                "float": numbers[second],
                "inside": {"double": numbers[second]},
                "text": texts[second],
                "bytes": values[second],
            }
            for second in (0, 1)
        ]
        for at, (numbers, texts, values) in enumerate(zip(_NUMBERS, _TEXTS, _BYTES, strict=True))
    ]


def conditions() -> list[str]:
    """Return conditions in the SQL of Spark and DuckDB."""
    some = _literals([(NAN, 0.0), (0.5, 1000.0)])
    asked = {
        "double": (["=", ">", "<="], _literals([*_NUMBERS, (0.5, 1000.0)])),
        "float": (["=", ">"], some),
        "inside.double": (["=", ">"], some),
        "text": (["="], _literals(_TEXTS)),
        "bytes": (["="], _literals(_BYTES)),
    }
    return [
        f"{column} {comparison} {value}"
        for column, (comparisons, values) in asked.items()
        for comparison, value in product(comparisons, values)
    ]


Missed = dict[str, tuple[list[int], list[int]]]
"""The conditions for which a reader finds other rows in the files than in memory, with the ids of
both.
"""


def missed_by_spark(frame: DataFrame) -> Missed:
    """Ask Spark, with a frame that reads the files."""
    rows = [tuple(row.values()) for file in files() for row in file]
    memory = frame.sparkSession.createDataFrame(rows, from_arrow_schema(FIELDS))
    table = memory.selectExpr("id", *conditions()).collect()
    return _missed(
        lambda condition: [row.id for row in frame.where(condition).select("id").collect()],
        lambda number: [row.id for row in table if row[number + 1]],
    )


def missed_by_duckdb(duck: DuckDBPyConnection, scan: str) -> Missed:
    """Ask DuckDB, with a table function that reads the files."""
    rows = pa.Table.from_pylist([row for file in files() for row in file], FIELDS)
    duck.register("arrow", rows)
    # of the copy nothing is filtered by pyarrow
    duck.execute("CREATE OR REPLACE TEMP TABLE memory AS FROM arrow")
    table = duck.execute(f"SELECT id, {', '.join(conditions())} FROM memory").fetchall()

    def found(condition: str) -> list[int]:
        query = f"SELECT id FROM {scan} WHERE {condition}"
        return [number for (number,) in duck.execute(query).fetchall()]

    return _missed(found, lambda number: [row[0] for row in table if row[number + 1]])


def _missed(found: Callable[[str], list[int]], expected: Callable[[int], list[int]]) -> Missed:
    pairs = {
        condition: (sorted(found(condition)), sorted(expected(number)))
        for number, condition in enumerate(conditions())
    }
    return {condition: both for condition, both in pairs.items() if both[0] != both[1]}


def _literals(pairs: list[tuple[Any, Any]]) -> list[str]:
    return sorted({_sql(value) for pair in pairs for value in pair if value is not None})


def _sql(value: Any) -> str:
    match value:
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case bytes():
            return f"unhex('{value.hex()}')"
        case _:
            return f"'{value}'"

"""The remedies for rows that lack a value name the column and its default in Spark's SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column

TEXT, NAIVE, UTC = pa.string(), pa.timestamp("us"), pa.timestamp("us", "UTC")
EXPRESSION = {"default_is_expression": True}
COLUMN_TYPES = {
    TEXT: "varchar",
    NAIVE: "datetime",
    UTC: "datetime",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "tinyint",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.binary(): "blob",
}


@pytest.mark.parametrize(
    ("name", "kind", "column", "said"),
    [
        ("v", TEXT, {"default": "new"}, "coalesce(v, 'new') AS v"),
        ("order", TEXT, {"default": "it's \\ a\nb"}, "coalesce(order, 'it\\'s \\\\ a\\u000ab')"),
        ("my `v", TEXT, {"default": ""}, "coalesce(`my ``v`, '') AS `my ``v`"),
        ("v", pa.int64(), {"default": "-7"}, "coalesce(v, -7)"),
        ("v", pa.bool_(), {"default": "0", "data_type": "tinyint"}, "coalesce(v, false)"),
        ("v", pa.bool_(), {"default": "b'1'", "data_type": "bit"}, "coalesce(v, true)"),
        ("v", pa.int32(), {"default": "b'101'", "data_type": "bit"}, "coalesce(v, 5)"),
        ("v", pa.date32(), {"default": "2024-01-01"}, "coalesce(v, DATE'2024-01-01')"),
        ("v", NAIVE, {"default": "2024-01-01 00:00:00"}, "TIMESTAMP_NTZ'2024-01-01 00:00:00')"),
        ("v", UTC, {"default": "2024-01-01 00:00:00"}, "TIMESTAMP'2024-01-01 00:00:00 UTC')"),
        ("v", pa.time64("us"), {"default": "10:00:00"}, "coalesce(v, TIME'10:00:00')"),
        ("v", TEXT, {"default": "?", "collation": "utf8mb4_bin"}, "coalesce(v, ...) AS v"),
        ("v", TEXT, {"default": "?", "collation": "latin1_bin"}, "coalesce(v, '?') AS v"),
        ("v", pa.binary(), {"default": "0x61"}, "coalesce(v, ...) AS v"),
        ("v", TEXT, {"default": "concat(_utf8mb4'a',uuid())", **EXPRESSION},
         "coalesce(v, concat('a',uuid()))"),
        ("v", UTC, {"default": "CURRENT_TIMESTAMP", **EXPRESSION},
         "coalesce(v, date_trunc('SECOND', current_timestamp()))"),
        ("v", NAIVE, {"default": "current_timestamp(3)", "fraction_digits": 3, **EXPRESSION},
         "CAST(date_trunc('MILLISECOND', current_timestamp()) AS TIMESTAMP_NTZ))"),
        ("v", UTC, {"default": "current_timestamp(6)", "fraction_digits": 6, **EXPRESSION},
         "coalesce(v, current_timestamp())"),
        ("v", TEXT, {}, "or make the column nullable"),
        ("v", pa.int64(), {"auto_increment": True}, "leave v out of the rows: the server numbers"),
    ],
)  # fmt: skip
def test_the_remedy_names_the_default_in_sql_and_rows_without_the_column(
    name: str, kind: pa.DataType, column: dict[str, Any], said: str
) -> None:
    data_type = column.get("data_type", COLUMN_TYPES[kind])
    known = Column(**{"name": "c", "nullable": False, "column_type": data_type, **column,
                      "data_type": data_type})  # fmt: skip
    plan = plan_column(pa.field(name, kind), known)
    assert isinstance(plan, ColumnPlan)
    assert said in plan.instead_of_null
    assert ("out of the rows" in plan.instead_of_null) == bool(column)

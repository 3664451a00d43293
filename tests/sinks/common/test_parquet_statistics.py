"""Bounds without NaN make readers pass over the rows with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from twophase.sinks.common.staging import formats
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.formats import Format

NAN = float("nan")
SHAPES: dict[str, Any] = {
    "it": lambda values: values,
    "it.a": lambda values: pa.StructArray.from_arrays([values], ["a"]),
    "it.list.element": lambda values: pa.ListArray.from_arrays([0, 1, len(values)], values),
    "it.key_value.value": lambda values: pa.MapArray.from_arrays(
        [0, 1, len(values)], pa.array(["a"] * len(values)), values
    ),
}


@pytest.mark.parametrize("for_hive", [False, True])
@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("last", [NAN, 2.0])
def test_a_column_with_nan_has_no_bounds_and_all_others_have(
    tmp_path: Path, for_hive: bool, path: str, kind: pa.DataType, last: float
) -> None:
    it = SHAPES[path](pa.array([1.0, last], kind))
    rows = pa.table({"id": [*range(len(it))], "it": it, "other": pa.array([0.5] * len(it))})
    with NewFile(tmp_path / "file") as file:
        formats.write(Format.PARQUET, rows, file, for_hive=for_hive)
    group = pa.parquet.read_metadata(tmp_path / "file").row_group(0)
    found = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    without = {name for name, one in found.items() if not one.is_stats_set}
    assert without == ({path} if last != last else set())

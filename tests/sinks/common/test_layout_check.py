"""Which types are the same to readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from harness.rights import permissions_checked
from twophase.errors import ConfigError, PreflightError
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.layout_check import check_layout, same_type

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        (pa.struct([("X", pa.int64()), ("y", pa.large_string())]), True),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), False),
        (pa.struct([("y", pa.string()), ("x", pa.int64())]), False),
        (pa.struct([("x", pa.int64())]), False),
        (pa.struct([("x", pa.int32()), ("y", pa.string())]), False),
    ],
)
def test_fields_of_structs_are_compared_by_name_at_every_depth(
    found: pa.DataType, is_same: bool
) -> None:
    assert same_type(found, PAIR) is is_same
    assert same_type(pa.list_(pa.field("item", found)), pa.list_(pa.field("element", PAIR))) is (
        is_same
    )
    assert same_type(pa.map_(pa.string(), found), pa.map_(pa.string(), PAIR)) is is_same
    assert same_type(pa.struct([("s", found)]), pa.struct([("s", PAIR)])) is is_same


def test_a_list_is_no_map() -> None:
    text = pa.string()
    assert not same_type(pa.list_(text), pa.map_(text, text))
    assert not same_type(pa.map_(text, text), pa.struct([("key", text), ("value", text)]))


MOMENT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
SHAPES = [lambda kind: kind, pa.list_, lambda kind: pa.struct([("a", kind)])]


def check(folder: Path, kind: pa.DataType, rows: pa.DataType, **how: bool) -> None:
    """Check rows against a file that somebody has written."""
    pa.parquet.write_table(pa.table({"it": pa.nulls(1, kind)}), folder / "a.parquet", **how)
    check_layout(folder, pa.schema([("it", rows)]), Format.PARQUET, ())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_moments_are_no_times_without_a_zone(tmp_path: Path, unit: str, shape: Any) -> None:
    for kind, other in [(MOMENT, LOCAL), (LOCAL, MOMENT)]:
        check(tmp_path, shape(pa.timestamp(unit, kind.tz)), shape(kind))
        with pytest.raises(ConfigError, match=r"has column 'it' as .*timestamp"):
            check(tmp_path, shape(pa.timestamp(unit, kind.tz)), shape(other))


@pytest.mark.parametrize("shape", SHAPES)
def test_times_as_spark_may_write_them_are_moments(tmp_path: Path, shape: Any) -> None:
    how = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    check(tmp_path, shape(LOCAL), shape(MOMENT), **how)
    with pytest.raises(ConfigError, match="has column 'it'"):
        check(tmp_path, shape(LOCAL), shape(LOCAL), **how)


def test_a_field_in_another_case_is_another_one_to_readers_that_do_not_fold_it(
    tmp_path: Path,
) -> None:
    upper, lower = (pa.list_(pa.struct([(name, pa.int64())])) for name in ("aB", "ab"))
    check(tmp_path, upper, upper)
    with pytest.raises(ConfigError, match="has column 'it'"):
        check(tmp_path, upper, lower)


def test_a_partition_behind_a_link_is_read_as_readers_read_it(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "day=2019").symlink_to(tmp_path / "archive")
    pa.parquet.write_table(pa.table({"it": [1]}), tmp_path / "archive" / "a.parquet")
    rows = pa.schema([("it", pa.int64()), ("day", pa.string())])
    check_layout(tmp_path / "table", rows, Format.PARQUET, ["day"])
    with pytest.raises(ConfigError, match=r"partitioned by \['day'\], not by \[\]"):
        check_layout(tmp_path / "table", rows, Format.PARQUET, [])


ROWS = pa.schema([("it", pa.int64())])


def test_a_file_that_is_not_the_table_s_is_moved_away(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "README.md").touch()
    with pytest.raises(ConfigError, match="is not a parquet file") as caught:
        check_layout(tmp_path / "table", ROWS, Format.PARQUET, [])
    assert "move it away" in caught.value.remedy
    (tmp_path / "table" / "README.md").rename(tmp_path / "README.md")
    check_layout(tmp_path / "table", ROWS, Format.PARQUET, [])


@pytest.mark.parametrize("mode", [0, 0o444])
def test_a_folder_that_cannot_be_listed_is_named_until_it_can(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "lost+found"
    folder.mkdir()
    (folder / "a.parquet").touch()
    folder.chmod(mode)
    with permissions_checked():
        with pytest.raises(PreflightError, match=r"lost\+found' cannot be listed") as caught:
            check_layout(tmp_path, ROWS, Format.PARQUET, [])
        assert "give the driver's account the right to read it" in caught.value.remedy
        folder.chmod(0o755)
        (folder / "a.parquet").unlink()
        check_layout(tmp_path, ROWS, Format.PARQUET, [])


def test_a_line_that_no_reader_of_csv_takes_is_named_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"' + "x" * 200_000)
    with pytest.raises(PreflightError, match="cannot be read as csv") as caught:
        check_layout(tmp_path, ROWS, Format.CSV, [])
    assert caught.value.remedy == "remove or repair it."
    path.unlink()
    check_layout(tmp_path, ROWS, Format.CSV, [])

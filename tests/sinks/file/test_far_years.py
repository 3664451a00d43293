"""Spark's years reach from -290308 to 294247: each is stored as it is, or refused by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from harness.staged_sink_harness import FileHarness
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import RejectedRowsError
from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging import formats
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.formats import Format
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = pytest.mark.part("files")

DAY_US = 86_400_000_000
DAYS = {
    "far before": -106_000_000,
    "-1": -719_800,
    "0": -719_200,
    "end of 0": -719_163,
    "1": -719_162,
    "1582": -141_427,
    "9999": 2_932_896,
    "10000": 2_932_897,
    "far after": 106_000_000,
}
OF_FOUR_DIGITS = ("1", "1582", "9999")
TYPES = {"date": pa.date32(), "moment": pa.timestamp("us", "UTC"), "clock": pa.timestamp("us")}


def column(kind: pa.DataType, day: int) -> pa.Array:
    """A null and the begin of a day."""
    is_date = pa.types.is_date32(kind)
    numbers = pa.int32() if is_date else pa.int64()
    return pa.array([None, day if is_date else day * DAY_US], numbers).cast(kind)


def shape(values: pa.Array, form: str) -> pa.Array:
    """The values, or each inside another one."""
    if form == "list":
        return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    if form == "struct":
        return pa.StructArray.from_arrays([values], ["it"])
    if form == "map":
        keys = pa.array(["a", "b"])
        return pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, values)
    return values


def write(folder: Path, values: pa.Array, **options: object) -> FileHarness:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("at", values.type)])
    table = FileHarness(folder / "t", schema, **options)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), values], schema=schema)
    sink = table.new_sink().open(SinkContext(JOB, SINK, schema, parallelism=1))
    sink.fence(FIRST)
    made = table.pre_commit(sink, transaction_id(), batch)
    sink.commit([CommitRequest(piece) for piece in made])
    sink.close()
    return table


@pytest.mark.parametrize("year", DAYS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize("name", ["json", "csv"])
def test_a_text_keeps_years_of_four_digits(
    tmp_path: Path, name: str, form: str, kind: str, year: str
) -> None:
    if name == "csv" and form != "plain":
        return  # refused by type
    values = shape(column(TYPES[kind], DAYS[year]), form)
    if year in OF_FOUR_DIGITS:
        [file] = write(tmp_path, values, format=name).files()
        assert f"{int(year):04}-" in file.read_text()
        return
    where = {"plain": "at = .* from 1970-01-01 in row 2 of 2: "}
    inside = r"at \(inside it\) = .* from 1970-01-01: "
    with pytest.raises(RejectedRowsError, match=where.get(form, inside)):
        write(tmp_path, values, format=name)


@pytest.mark.parametrize("form", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize(
    ("moment", "zone"),
    [("9999-12-31T23:59:59Z", "Europe/Berlin"), ("0001-01-01T00:00:00Z", "America/New_York")],
)
def test_a_clock_that_shows_another_year_than_utc_does_not_count(
    tmp_path: Path, form: str, moment: str, zone: str
) -> None:
    kind = pa.timestamp("us", zone)
    values = shape(pa.array([None, moment]).cast(pa.timestamp("us", "UTC")).cast(kind), form)
    [file] = write(tmp_path, values, format="json").files()
    assert f"{moment[:-1]}.000000+00:00" in file.read_text()


@pytest.mark.parametrize("year", DAYS)
@pytest.mark.parametrize("name", ["parquet", "orc", "json", "csv"])
def test_the_name_of_a_partition_keeps_years_of_four_digits(
    tmp_path: Path, name: str, year: str
) -> None:
    values = column(pa.date32(), DAYS[year])
    if year in OF_FOUR_DIGITS:
        table = write(tmp_path, values, format=name, partition_by=["at"])
        assert {file.parent.name[:8] for file in table.files()} == {
            f"at={int(year):04}-",
            "at=__HIV",
        }
        return
    with pytest.raises(
        RejectedRowsError, match="the name of a partition keeps the years 1 to 9999"
    ):
        write(tmp_path, values, format=name, partition_by=["at"])


@pytest.mark.parametrize("year", DAYS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["plain", "list", "struct"])
@pytest.mark.parametrize("for_hive", [False, True], ids=["for Spark", "for Hive"])
@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_a_number_keeps_every_year_or_the_value_is_refused(
    tmp_path: Path, name: str, for_hive: bool, form: str, kind: str, year: str
) -> None:
    values = shape(column(TYPES[kind], DAYS[year]), form)
    if formats.refusal(Format(name), values.type):
        return
    path = tmp_path / "file"
    refusal = ""
    try:
        with NewFile(path) as file:
            formats.write(Format(name), pa.table({"at": values}), file, for_hive=for_hive)
    except RefusedValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("at = ")
        return
    if name == "orc" and for_hive and kind == "moment":
        return  # pyarrow reads nanoseconds only; integration/hive/test_readers.py has Hive's reader
    parquet = partial(pa.parquet.read_table, coerce_int96_timestamp_unit="us")
    read = parquet(path) if name == "parquet" else pa.orc.read_table(path)
    if not (for_hive and DAYS[year] < DAYS["1582"]):  # days of the Julian calendar
        found = read.column("at").combine_chunks()
        assert str(found.cast(values.type).to_string()) == values.to_string()

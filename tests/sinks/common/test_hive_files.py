"""The files of Hive's tables: what its readers go by, without Hive."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging import hive_files
from twophase.sinks.common.staging.hive_files import write_orc, write_parquet

EPOCH = datetime.date(1970, 1, 1)
UTC = datetime.UTC
TIME = pa.timestamp("us", "UTC")


def written(write: Callable[[pa.Table, Any], None], **columns: pa.Array) -> io.BytesIO:
    file = io.BytesIO()
    write(pa.table(columns), file)
    return file


def test_a_parquet_file_has_the_timestamps_and_the_maker_that_hive_goes_by() -> None:
    times = pa.array([datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC), None], TIME)
    name = pa.array(["parquet-cpp-arrow version 1", "x"])
    nested = pa.array([[datetime.datetime(2026, 1, 1, tzinfo=UTC)], None], pa.list_(TIME))
    file = written(write_parquet, at=times, name=name, nested=nested)
    found = pa.parquet.ParquetFile(file)
    assert found.metadata.created_by.startswith("parquet-mr version ")
    kinds = {found.schema.column(number).path: found.schema.column(number).physical_type
             for number in range(3)}  # fmt: skip
    assert kinds == {"at": "INT96", "name": "BYTE_ARRAY", "nested.list.element": "INT96"}
    assert found.read().column("name").to_pylist() == ["parquet-cpp-arrow version 1", "x"]
    assert b"org.apache.spark.version" not in (found.metadata.metadata or {})


def test_an_orc_file_has_times_of_utc_under_names_in_small_letters() -> None:
    moment = datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
    berlin = pa.timestamp("us", "Europe/Berlin")
    columns = {"At": pa.array([moment, None], TIME), "there": pa.array([moment, None], berlin)}
    found = pa.orc.ORCFile(written(write_orc, **columns)).read()
    assert found.schema.names == ["at", "there"]
    assert {field.type for field in found.schema} == {pa.timestamp("ns")}
    for column in found.cast(
        pa.schema([(name, pa.timestamp("us")) for name in found.schema.names])
    ):
        assert column.to_pylist() == [moment.replace(tzinfo=None), None]


@given(st.dates(max_value=datetime.date(1582, 10, 4)))
def test_a_day_keeps_its_name_in_the_julian_calendar(day: datetime.date) -> None:
    year, leap = day.year - 1, day.year % 4 == 0
    months = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]
    ordinal = 365 * year + year // 4 + months[day.month - 1] + (leap and day.month > 2) + day.day
    first = datetime.date(1, 1, 1).toordinal() - EPOCH.toordinal() - 2  # Julian 0001-01-01
    [found] = hive_files._julian(np.array([(day - EPOCH).days]))
    assert found == first + ordinal - 1


@pytest.mark.parametrize("write", [write_parquet, write_orc])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([datetime.date(1582, 10, 5)]), "1582-10-05"),
        (pa.array([None, datetime.datetime(1582, 10, 14, 23, 59, 59, tzinfo=UTC)], TIME), "1582"),
        (pa.array([[datetime.date(1582, 10, 4)]]), "1582-10-04"),
        (pa.array([{"x": [datetime.date(2026, 1, 1), datetime.date(1, 1, 1)]}]), "0001-01-01"),
        (pa.array([[("a", datetime.datetime(1, 1, 1, tzinfo=UTC))]],
            pa.map_(pa.string(), TIME)), "0001-01-01"),
    ],
)  # fmt: skip
def test_what_hive_would_read_as_another_day_is_refused(
    write: Callable[[pa.Table, Any], None], column: pa.Array, value: str
) -> None:
    with pytest.raises(RefusedValueError, match=f"when = '{value}"):
        written(write, when=column)


@given(st.lists(st.none() | st.dates(max_value=datetime.date(1582, 10, 4)) | st.dates(
    min_value=datetime.date(1582, 10, 15)), min_size=1))  # fmt: skip
def test_nulls_and_later_days_stay_as_they_are(days: list[datetime.date | None]) -> None:
    file = written(write_parquet, day=pa.array(days, pa.date32()))
    found = pa.parquet.read_table(file).column("day").cast(pa.int32()).to_pylist()
    late = [day if day is not None and day.year > 1582 else None for day in days]
    assert [(None if day is None else one) for day, one in zip(late, found, strict=True)] == [
        None if day is None else (day - EPOCH).days for day in late
    ]
    assert [one is None for one in found] == [day is None for day in days]

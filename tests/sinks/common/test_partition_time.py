"""When a partition is complete: zones, clocks that change, and times that cannot be right."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.memory_driver import ManualClock
from twophase.sinks.common.staging.partition_time import PartitionTime, time_of

UTC = datetime.UTC
MINUTE_US, HOUR_US, DAY_US = 60 * 10**6, 3600 * 10**6, 86_400 * 10**6
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata",
    "America/Sao_Paulo", "Pacific/Apia", "Africa/Casablanca"]  # fmt: skip


def hourly(zone: str, delay_us: int = HOUR_US, max_future_us: int = DAY_US) -> PartitionTime:
    return PartitionTime(
        ("dt", "hour"), "$dt $hour:00:00", "at", delay_us, zone, max_future_us, ManualClock()
    )


def daily(zone: str) -> PartitionTime:
    return PartitionTime(("dt",), "$dt", "at", DAY_US, zone, DAY_US, ManualClock())


def us(moment: datetime.datetime) -> int:
    return round(moment.timestamp()) * 10**6


# Moments around which clocks change somewhere, and any others.
CHANGES = [
    datetime.datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime.datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime.datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime.datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime.datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime.datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime.datetime(2018, 11, 4, 3, tzinfo=UTC),
    datetime.datetime(2011, 12, 30, 10, tzinfo=UTC),
]
MOMENTS = st.builds(
    lambda change, minutes: change + datetime.timedelta(minutes=minutes),
    st.sampled_from(CHANGES),
    st.integers(-3000, 3000),
) | st.datetimes(
    datetime.datetime(1990, 1, 1), datetime.datetime(2037, 1, 1), timezones=st.just(UTC)
)


@given(st.sampled_from(ZONES), MOMENTS)
@example("America/New_York", datetime.datetime(2026, 11, 1, 6, 59, tzinfo=UTC))
@example("America/New_York", datetime.datetime(2026, 11, 2, 4, 59, tzinfo=UTC))
def test_no_partition_is_complete_while_clocks_still_show_its_hour_or_day(
    zone: str, moment: datetime.datetime
) -> None:
    local = moment.astimezone(ZoneInfo(zone))
    day, hour = f"{local:%Y-%m-%d}", f"{local:%H}"
    for due, length in ((hourly(zone).due_us((day, hour)), HOUR_US),
                        (daily(zone).due_us((day,)), DAY_US)):  # fmt: skip
        assert us(moment.replace(second=0, microsecond=0)) < due
        # Nor does it wait longer than what clocks are ever moved by.
        assert due <= us(moment) + length + 26 * HOUR_US


@pytest.mark.parametrize(
    ("zone", "values", "due"),
    [
        ("UTC", ("2026-03-08", "02"), "2026-03-08T03:00:00Z"),
        ("America/New_York", ("2026-03-08", "01"), "2026-03-08T07:00:00Z"),
        ("America/New_York", ("2026-03-08", "02"), "2026-03-08T08:00:00Z"),  # it does not exist
        ("America/New_York", ("2026-03-08", "03"), "2026-03-08T08:00:00Z"),
        ("America/New_York", ("2026-11-01", "00"), "2026-11-01T05:00:00Z"),
        ("America/New_York", ("2026-11-01", "01"), "2026-11-01T07:00:00Z"),  # it exists twice
        ("America/New_York", ("9999-12-31", "23"), "253402318800 s after 1970"),
    ],
)
def test_the_time_of_a_partition_follows_the_clocks_of_its_zone(
    zone: str, values: tuple[str, str], due: str
) -> None:
    assert time_of(hourly(zone).due_us(values)) == due


def test_a_day_of_25_hours_is_complete_when_it_has_ended() -> None:
    due = daily("America/New_York").due_us(("2026-11-01",))
    assert time_of(due) == "2026-11-02T05:00:00Z"


def test_a_time_with_an_offset_keeps_it() -> None:
    time = PartitionTime(
        ("hour",), "$hour:00:00+02:00", "at", 0, "America/New_York", 0, ManualClock()
    )
    assert time_of(time.due_us(("2026-11-01T01",))) == "2026-10-31T23:00:00Z"


KINDS = [pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_too_far_ahead_does_not_count(kind: pa.DataType) -> None:
    time = hourly("UTC", max_future_us=HOUR_US)
    now_us = time.clock.unix_ms() * 1000
    moments = [now_us - DAY_US, now_us + HOUR_US, None, now_us + HOUR_US + 1, now_us + DAY_US]
    batch = pa.record_batch({"at": pa.array(moments, pa.int64()).cast(kind)})
    assert time.highest_us(batch) == (now_us + HOUR_US, now_us + DAY_US, 4)
    assert time.highest_us(batch.slice(2, 1)) == (None, None, -1)


def test_a_time_without_a_zone_is_of_the_zone_of_the_partitions() -> None:
    time = hourly("America/New_York")
    shown_twice = datetime.datetime(2026, 11, 1, 1, 30)
    batch = pa.record_batch({"at": pa.array([shown_twice], pa.timestamp("us"))})
    first = us(datetime.datetime(2026, 11, 1, 5, 30, tzinfo=UTC))
    assert first in time.highest_us(batch)

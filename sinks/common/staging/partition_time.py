"""Decides when a partition is complete: the highest event time has passed its own plus a delay.

The watermark of a piece is in its manifest and its committable, and so in the checkpoint. A row
whose time is too far ahead of the clock does not move it: one wrong row would complete every
partition. The clock decides about nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Template
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from twophase.internals.clock import Clock, SystemClock
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError, Values

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class PartitionTime:
    """The rules that give the time of a partition and of its rows.

    Attributes:
        columns: the partition columns.
        pattern: the partition's time as ISO text, with `$column` for its values, such as
            `$dt $hour:00:00`.
        event_time: the column with the time of a row.
        delay_us: how long a partition stays open after its time, in microseconds.
        zone: the time zone of partitions, and of event times without one.
        max_future_us: how far ahead of the clock an event time may be, in microseconds.
        clock: the time.
    """

    columns: tuple[str, ...]
    pattern: str
    event_time: str
    delay_us: int
    zone: str
    max_future_us: int
    clock: Clock = field(default_factory=SystemClock)

    def due_us(self, values: Values) -> int:
        """Return the watermark at which a partition is complete, in microseconds since 1970.

        Raises:
            RefusedValueError: the values are not a time.
        """
        text = Template(self.pattern).safe_substitute(dict(zip(self.columns, values, strict=True)))
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError as error:
            raise RefusedValueError(
                f"partition {shown(values)} has no time: {shown(text)} is not "
                "an ISO 8601 date or time"
            ) from error
        if time.tzinfo:
            return _since_epoch_us(time) + self.delay_us
        return max(self._latest_us(time) + self.delay_us, self._end_us(time))

    def _latest_us(self, local: datetime.datetime) -> int:
        """Return the later of the moments that clocks show a time at, if they show it twice."""
        zoned = local.replace(tzinfo=ZoneInfo(self.zone))
        return max(_since_epoch_us(zoned.replace(fold=fold)) for fold in (0, 1))

    def _end_us(self, local: datetime.datetime) -> int:
        """Return the time plus the delay by the clocks of the zone: a day may have 25 hours."""
        try:
            end = local + datetime.timedelta(microseconds=self.delay_us)
        except OverflowError:  # after the year 9999
            return self._latest_us(local) + self.delay_us
        return _since_epoch_us(end.replace(tzinfo=ZoneInfo(self.zone)))

    def limit_us(self) -> int:
        """Return the highest event time that moves the watermark, in microseconds since 1970."""
        return self.clock.unix_ms() * 1000 + self.max_future_us

    def highest_us(self, batch: pa.RecordBatch) -> tuple[int | None, int | None, int]:
        """Return the highest event time of some rows up to the limit, the highest beyond it, and
        the number of the row that has this one.

        The times are in microseconds since 1970, or None; the number is -1 then.
        """
        times = batch.column(self.event_time)
        if times.type.tz is None:
            times = pc.assume_timezone(
                times, self.zone, ambiguous="earliest", nonexistent="earliest"
            )
        moments = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        is_ahead = pc.greater(moments, self.limit_us())
        within, ahead = moments.filter(pc.invert(is_ahead)), moments.filter(is_ahead)
        highest = pc.max(ahead)
        number = pc.index(moments, highest).as_py() if highest.is_valid else -1
        return pc.max(within).as_py(), highest.as_py(), number

    def problems(self, schema: pa.Schema) -> Sequence[str]:
        """Return the reasons why rows with these columns have no time."""
        found = []
        if self.event_time not in schema.names:
            found.append(f"there is no event time column {self.event_time!r}")
        if not found and not pa.types.is_timestamp(schema.field(self.event_time).type):
            found.append(f"event time column {self.event_time!r} is not a timestamp")
        named = Template(self.pattern).get_identifiers()
        unknown = [name for name in named if name not in self.columns]
        if unknown or not named:
            found.append(
                f"the partition time {self.pattern!r} has to name partition columns, such as '$dt'"
            )
        return found


def _since_epoch_us(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def time_of(moment_us: int) -> str:
    """Return a moment as ISO text, for people to read.

    Args:
        moment_us: in microseconds since 1970.
    """
    try:
        return f"{_EPOCH + datetime.timedelta(microseconds=moment_us):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return f"{moment_us // 10**6} s after 1970"

"""Decides when a partition is complete: the highest event time has passed its own plus a delay.

Everything is in UTC. The watermark of a piece is in its manifest and its committable, and so
in the checkpoint.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

import pyarrow as pa
import pyarrow.compute as pc

from twophase.redaction import shown
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
    """

    columns: tuple[str, ...]
    pattern: str
    event_time: str
    delay_us: int

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
        time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
        return (time - _EPOCH) // datetime.timedelta(microseconds=1) + self.delay_us

    def watermark_us(self, batch: pa.RecordBatch) -> int | None:
        """Return the highest event time of some rows, in microseconds since 1970, or None."""
        highest = pc.max(batch.column(self.event_time))
        return None if not highest.is_valid else int(highest.cast(pa.timestamp("us")).value)

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

"""What differs between the versions of PySpark that twophase runs on.

Nothing else in the product asks for Spark's version. A `Feature` is something that only some of
them have; what needs it calls `require`, which refuses by name, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from twophase.errors import PreflightError

Version = tuple[int, int]


def version_in(text: str) -> Version:
    """Return (4, 2) for "4.2.0", and for every build of it."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


SPARK: Final = version_in(pyspark.__version__)


@dataclass(frozen=True)
class Feature:
    """Something that not every supported version of PySpark has.

    Attributes:
        name: what of twophase needs it, as the subject of a sentence.
        why: why that cannot be done without it, as a sentence.
        since: the first version that has it.
        until: the last one; None if there is no such.
        way_on: what to do instead, beside using a version that has it; empty for nothing.
    """

    name: str
    why: str
    since: Version
    until: Version | None = None
    way_on: str = ""

    def is_in(self, version: Version) -> bool:
        """Return whether a version has it."""
        return self.since <= version and (self.until is None or version <= self.until)

    @property
    def is_here(self) -> bool:
        """Whether the version that runs has it."""
        return self.is_in(SPARK)

    @property
    def versions(self) -> str:
        """Which versions have it, such as "4.2 or newer"."""
        if self.until is None:
            return f"{_dotted(self.since)} or newer"
        if self.since == self.until:
            return _dotted(self.since)
        return f"{_dotted(self.since)} to {_dotted(self.until)}"

    def require(self, version: Version = SPARK) -> None:
        """Refuse what needs it, if this version of PySpark has it not.

        Args:
            version: the one to ask about; by default the one that runs.

        Raises:
            PreflightError: it does not.
        """
        if not self.is_in(version):
            raise PreflightError(
                f"{self.name} needs PySpark {self.versions}, and this is {_dotted(version)}: "
                f"{self.why} Nothing was written.",
                remedy=" or ".join(filter(None, (self.way_on, f"use PySpark {self.versions}")))
                + ".",
            )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


LIMITED_READS: Final = Feature(
    "Source twophase-kafka",
    "An older Spark does not tell a source in Python where a micro-batch begins when it asks where "
    "it is to end: not how far to read, nor after a restart with availableNow from where.",
    since=(4, 2),
    way_on="read Kafka with Spark's own source, `format=kafka`,",
)
REPARTITIONED_STATE: Final = Feature(
    "Rescaling a savepoint",
    "An older Spark cannot give keyed state another number of partitions.",
    since=(4, 2),
    way_on="restore the savepoint as it is, with the partitions that it has,",
)
DELTA: Final = Feature(
    "The Delta sink",
    "The sink works with Delta 4.4.0 only, which is built for no other Spark.",
    since=(4, 1),
    until=(4, 2),
)
DELTA_ARTIFACT: Final = f"delta-spark_{_dotted(SPARK)}_2.13"
"""Delta's artifact for this version of Spark; of the classes that one build has, another lacks
some.
"""
FEATURES: Final = (LIMITED_READS, REPARTITIONED_STATE, DELTA)

if SPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable as ReadAllAvailable,
    )
    from pyspark.sql.streaming.datasource import (
        ReadLimit as ReadLimit,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxRows as ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )
else:

    class _Absent:
        """Stands for a class of `LIMITED_READS`: a module that names it can be imported."""

    ReadAllAvailable = _Absent  # type: ignore[assignment,misc]
    ReadLimit = _Absent  # type: ignore[assignment,misc]
    ReadMaxRows = _Absent  # type: ignore[assignment,misc]
    SupportsTriggerAvailableNow = _Absent  # type: ignore[assignment,misc]


def to_arrow_schema(
    schema: StructType, *, timezone: str | None, prefers_large_types: bool = False
) -> pa.Schema:
    """Return the Arrow schema in which Spark passes rows to Python.

    Args:
        schema: of the rows.
        timezone: the session's, which Spark names in each type of a timestamp.
        prefers_large_types: whether strings and binary data have 64 bit offsets.
    """
    convert: Any = types.to_arrow_schema
    if SPARK >= (4, 2):
        return convert(schema, timezone=timezone, prefers_large_types=prefers_large_types)
    in_utc = convert(schema, timestamp_utc=True, prefers_large_types=prefers_large_types)
    return pa.schema([in_zone(field, timezone) for field in in_utc])


def in_zone(field: pa.Field, timezone: str | None) -> pa.Field:
    """Return a field whose timestamps, at any depth, are in a time zone; those without one stay."""
    return field.with_type(_type_in_zone(field.type, timezone))


def _type_in_zone(kind: pa.DataType, timezone: str | None) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, timezone)
    if pa.types.is_list(kind):
        return pa.list_(in_zone(kind.value_field, timezone))
    if pa.types.is_map(kind):
        return pa.map_(in_zone(kind.key_field, timezone), in_zone(kind.item_field, timezone))
    if pa.types.is_struct(kind):
        return pa.struct([in_zone(field, timezone) for field in kind])
    return kind

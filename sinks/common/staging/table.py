"""The table that rows go to, as its writers need it; the sink takes it to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError, Values, folders
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.staging_area import StagingArea


@dataclass(frozen=True)
class Table:
    """A folder of files, for one job and sink.

    Attributes:
        area: the staging area of the job and sink; its root is the table's folder.
        format: the format of the files.
        partition_by: partition columns, from the outermost folder to the innermost.
        target: the target's identity (I10).
        static: partition columns that the rows do not have, with their values.
        columns: the table's name for each column of the rows, in the table's order; empty if the
            names are the same.
        time: gives the time of partitions and rows; None if it is not needed.
        in_metastore: partition values are also stored in a database, and Hive reads the files.
    """

    area: StagingArea
    format: Format
    partition_by: tuple[str, ...]
    target: str
    static: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    time: PartitionTime | None = None
    in_metastore: bool = False

    @property
    def dynamic(self) -> tuple[str, ...]:
        """The partition columns that the rows have."""
        return tuple(name for name in self.partition_by if name not in self.static)

    def partition(self, values: Values) -> Values:
        """Return all partition values, given those of the dynamic columns."""
        given = {**dict(zip(self.dynamic, values, strict=True)), **self.static}
        return tuple(given[name] for name in self.partition_by)

    def check(self, partition: Values) -> None:
        """Check that a partition can be written.

        Raises:
            RefusedValueError: it would read back as another one, or lacks a time that it needs.
        """
        folders(self.partition_by, partition)
        for name, value in zip(self.partition_by, partition, strict=True):
            if self.in_metastore and (reason := refusal_by_metastore(value or "")):
                raise RefusedValueError(f"{name} = {shown(value)} {reason}")
        if self.time is not None:
            self.time.due_us(partition)


def refusal_by_metastore(value: str) -> str:
    """Return why a partition of a value may be another one to a metastore; empty if it is not."""
    # Databases ignore trailing spaces in comparisons, and some cannot store NUL.
    if value.endswith(" ") or "\0" in value:
        return "cannot be distinguished from other values by the metastore's database"
    return ""

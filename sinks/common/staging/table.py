"""The table that rows go to, as its writers need it: this value travels to the executors inside the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twophase.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError, Values, folders
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.staging_area import StagingArea


@dataclass(frozen=True)
class Table:
    """A folder of files, for one job and sink.

    Attributes:
        home: the job's and sink's hidden folder; its root is the table's folder.
        format: of the files.
        partition_by: partition columns, from the outermost folder to the innermost.
        target: the target's identity (I10).
        static: partition columns that the rows do not have, with the value of all of them.
        columns: what the columns of the rows are called in the table, in its order; empty if they are the same.
        time: how partitions and rows are timed; None if nobody asks for it.
        in_metastore: whether partition values are kept in a database too.
    """

    home: StagingArea
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
        """All partition values, of those of the dynamic columns."""
        given = {**dict(zip(self.dynamic, values, strict=True)), **self.static}
        return tuple(given[name] for name in self.partition_by)

    def check(self, partition: Values) -> None:
        """See that a partition can be written.

        Raises:
            RefusedValueError: it would read back as another one, or has no time where it needs one.
        """
        folders(self.partition_by, partition)
        for name, value in zip(self.partition_by, partition, strict=True):
            if self.in_metastore and value is not None and (value.endswith(" ") or "\0" in value):
                # Databases compare text without the spaces at its end, and some hold no NUL.
                raise RefusedValueError(f"{name} = {shown(value)} is not told from others by the metastore's database")
        if self.time is not None:
            self.time.due_us(partition)

"""The policies that commit a partition: metastore, `_SUCCESS` file, function. All may run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twophase.errors import TargetChangedError
from twophase.failpoints import failpoint
from twophase.sinks.common.partition_names import Values, folders
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.hive.catalog import Catalog, HiveTable
from twophase.sinks.hive.identity import record, why_replaced

SUCCESS = "_SUCCESS"


@dataclass(frozen=True)
class CommittedPartition:
    """A committed partition, as the user's function gets it.

    Attributes:
        table: the table's name, with its database.
        values: the value of each partition column; None for null.
        location: the partition's folder.
    """

    table: str
    values: Mapping[str, str | None]
    location: str


@dataclass(frozen=True)
class Policies:
    """The policies for committed partitions, in this order: metastore, file, function.

    Attributes:
        catalog: of the metastore.
        table: the table of the partitions.
        root: the table's folder.
        success_file: write a `_SUCCESS` for each.
        call: the user's function.
        accept: called with the creation time of the table that the proofs are of from now on.
    """

    catalog: Catalog
    table: HiveTable
    root: Path
    success_file: bool
    call: Callable[[CommittedPartition], None] | None
    accept: Callable[[str], None]

    def run(self, partitions: Sequence[Values], stage: Path) -> None:
        """Commit the partitions that are due. After an error all of it is run again.

        Raises:
            TargetChangedError: the metastore has another table now.
        """
        if self.table.partition_columns:
            check = partial(self._check, stage)
            self.catalog.add_partitions(self.table, self.root, partitions, check)
        else:
            self.catalog.check_table(self.table, self.root)
        failpoint("F05")
        for values in partitions:
            folder = self.root.joinpath(*folders(self.table.partition_columns, values))
            if self.success_file:
                (folder / SUCCESS).touch()
                sync(folder)
            if self.call is not None:
                named = dict(zip(self.table.partition_columns, values, strict=True))
                self.call(CommittedPartition(self.table.name, named, str(folder)))
        self.catalog.refresh(self.table)

    def _check(self, stage: Path, created: str, has_partitions: bool) -> None:
        self.check_identity(stage, created, lambda: has_partitions)

    def check_identity(self, stage: Path, created: str, has_partitions: Callable[[], bool]) -> None:
        """Check that the metastore still has the table that partitions were added to.

        Args:
            stage: the folder of the fence.
            created: the creation time of the table that has this name now.
            has_partitions: the metastore has a partition of that table.

        Raises:
            TargetChangedError: it has another one.
        """
        if reason := why_replaced(self.table, created, has_partitions, stage):
            raise TargetChangedError(
                f"Partitions can no longer be added: {reason}.",
                remedy="do that, then start the job again.",
            )
        record(created, stage)
        self.accept(created)

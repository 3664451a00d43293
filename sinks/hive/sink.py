"""The Hive sink: appends files to a table exactly once, and commits its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from twophase.errors import ConfigError, RestoreRefusedError, StopJobError
from twophase.ids import Attempt
from twophase.protocol.sink import SinkContext, SinkHistory
from twophase.sinks.common.partition_names import Values
from twophase.sinks.common.staging.column_check import check_columns
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.location import check_inside, local_path
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.preflight import check_folder, check_owned, make_staging_area
from twophase.sinks.common.staging.sink import StagedSink
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.common.staging.table import Table
from twophase.sinks.hive.catalog import Catalog, HiveTable
from twophase.sinks.hive.fit import fit
from twophase.sinks.hive.identity import note, why_another
from twophase.sinks.hive.options import HiveOptions, Trigger
from twophase.sinks.hive.pending import Pending
from twophase.sinks.hive.policies import SUCCESS, Policies


@dataclass(frozen=True)
class _Fitting:
    """The mapping of the rows into a table.

    Attributes:
        path: the table's folder.
        columns: the table's name for each column of the rows.
        time: gives the time of its partitions; None if they have none.
    """

    path: Path
    columns: Mapping[str, str]
    time: PartitionTime | None


class HiveSink(StagedSink):
    """Appends to one table. Options: `twophase.sinks.hive.options.HiveOptions`.

    The catalog is used on the driver only, and is not pickled.

    Args:
        options: `table`, and any other option by its name.
    """

    needs_spark: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = HiveOptions.parse(options, "HiveSink")
        self._catalog: Catalog | None = None
        self._identity = ""
        self._policies: Policies | None = None

    def __repr__(self) -> str:
        return f"HiveSink({self._options.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        # The user's function stays on the driver too: it need not be picklable.
        return {
            **self.__dict__,
            "_catalog": None,
            "_policies": None,
            "_options": self._options.model_copy(update={"on_partition_commit": None}),
        }

    @staticmethod
    def spark_conf() -> Mapping[str, str]:
        """The settings to start Spark with."""
        return {"spark.sql.catalogImplementation": "hive"}

    @staticmethod
    def rehearsal(folder: Path) -> tuple[HiveSink, Mapping[str, str]]:
        """See `twophase.protocol.sink.CanRehearse`: a metastore in memory."""
        return HiveSink(table="rehearsal", create=True), {
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            (
                "spark.hadoop.javax.jdo.option.ConnectionURL"
            ): "jdbc:derby:memory:rehearsal;create=true",
            "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={folder / 'derby.log'}",
        }

    def bind(self, context: SinkContext) -> Table:
        """See `StagedSink.bind`."""
        options = self._options
        self._catalog = catalog = Catalog.find()
        found = catalog.table(options.table) or self._created(catalog, context.schema)
        self._accept(found.created)
        fitting = self._fitting(found, context.schema)
        path = fitting.path
        check_folder(path)
        area = StagingArea(path, Owner(context.job, context.sink))
        make_staging_area(area)
        Pending(area.stage()).make()
        self._policies = Policies(
            catalog, found, path, options.success_file, options.on_partition_commit, self._accept
        )
        return Table(
            area,
            found.format,
            found.partition_columns,
            f"hive:{found.name}:file:{path}",
            static=dict(options.partition),
            columns=fitting.columns,
            time=fitting.time,
            in_metastore=True,
        )

    def history(self) -> SinkHistory:
        """See `Sink.history`."""
        found = super().history()
        if not found.committed:
            return found
        catalog, table = self._lookup()
        has_partitions = partial(catalog.has_partitions, table)
        replaced = why_another(table, table.created, has_partitions, self.table.area.stage())
        if not replaced:
            self._accept(table.created)
        return replace(found, replaced=replaced)

    def fence(self, attempt: Attempt) -> None:
        """See `Sink.fence`. From now on the proofs are of the table whose history was accepted.

        A table that has replaced it since is noticed when partitions are added to it.
        """
        super().fence(attempt)
        note(self._identity, self.table.area.stage())

    def publish(self, pieces: Sequence[Manifest], stage: Path) -> None:
        """See `StagedSink.publish`. When partitions are due, the policies run."""
        if self._policies is None:
            raise self._unopened()
        pending = Pending(stage)
        due = self._due(pieces, pending)
        if due:
            self._policies.run(sorted(due, key=str), stage)
            pending.remove(due)
        else:
            catalog, table = self._lookup()
            has_partitions = partial(catalog.has_partitions, table)
            self._policies.check_identity(stage, table.created, has_partitions)

    def check_retract(self) -> None:
        """See `StagedSink.check_retract`: a partition that was moved may have taken rows along."""
        catalog, table = self._lookup()
        if problem := catalog.misplaced(table, self.table.area.root):
            raise RestoreRefusedError(
                f"No checkpoint is taken back from table {table.name}: it has changed in the "
                f"metastore: {problem}. Nothing was removed.",
                remedy="set location and format back (ALTER TABLE ... SET LOCATION), or restore "
                "a newer checkpoint.",
            )

    def retract(self, left: Sequence[Path]) -> None:
        """See `StagedSink.retract`. Partitions stay in the metastore; they are not complete now."""
        self.check_retract()
        for folder in left if self._options.success_file else ():
            (folder / SUCCESS).unlink(missing_ok=True)
            sync(folder)

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        super().rewind(keep, attempt)
        catalog, table = self._lookup()
        catalog.refresh(table)

    def _accept(self, created: str) -> None:
        """Remember the table whose rows the proofs are of, by its creation time."""
        self._identity = created

    def _due(self, pieces: Sequence[Manifest], pending: Pending) -> set[Values]:
        """Add what the pieces bring to what waits; return the partitions that are due."""
        time = self.table.time
        got = {file.partition for piece in pieces for file in piece.files}
        if time is None:
            # some may still wait from when the trigger was another
            return got | {*pending.partitions()}
        pending.add(got)
        pending.raise_watermark(
            [piece.watermark_us for piece in pieces if piece.watermark_us is not None]
        )
        watermark_us = pending.watermark_us()
        if watermark_us is None:
            return set()
        return {one for one in pending.partitions() if watermark_us >= time.due_us(one)}

    def _unopened(self) -> StopJobError:
        return StopJobError(f"{self!r} was used before it was opened.", remedy="call open first.")

    def _lookup(self) -> tuple[Catalog, HiveTable]:
        """Return the current table.

        Raises:
            ConfigError: it is gone.
        """
        if self._catalog is None:
            raise self._unopened()
        found = self._catalog.table(self._options.table)
        if found is None:
            raise ConfigError(
                f"Table {self._options.table!r} is gone.", remedy="find out who dropped it."
            )
        return self._catalog, found

    def _created(self, catalog: Catalog, rows: pa.Schema) -> HiveTable:
        """Create the table after all checks: a refusal leaves no table behind."""
        options = self._options
        if not options.create:
            raise ConfigError(
                f"There is no table {options.table!r}.", remedy="make it, or set create."
            )
        check_columns(rows, options.format, options.partition_by)
        planned = catalog.plan(options.table, rows, options.format, options.partition_by)
        check_owned(self._fitting(planned, rows).path)
        catalog.create(planned)
        found = catalog.table(options.table)
        if found is None:
            raise ConfigError(
                f"Table {options.table!r} was created and has disappeared.",
                remedy="find out who dropped it.",
            )
        return found

    def _fitting(self, table: HiveTable, rows: pa.Schema) -> _Fitting:
        """Validate options and rows against a table, existing or planned."""
        options = self._options
        if options.create and table.partition_columns != options.partition_by:
            raise ConfigError(
                f"Table {table.name} is partitioned by {list(table.partition_columns)}, not by "
                f"{list(options.partition_by)}.",
                remedy="correct partition_by, or write to another table.",
            )
        path = local_path(table.location, f"the location of table {table.name}")
        if options.root is not None:
            check_inside(path, local_path(options.root, "root"))
        columns = fit(rows, table, options.partition)
        time = self._time(table)
        in_table = pa.schema([pa.field(columns[field.name], field.type) for field in rows])
        dynamic = [name for name in table.partition_columns if name not in options.partition]
        check_columns(in_table, table.format, dynamic)
        self._check_time(time, in_table)
        return _Fitting(path, columns, time)

    def _time(self, found: HiveTable) -> PartitionTime | None:
        options = self._options
        if options.partition_commit_trigger is Trigger.CHECKPOINT:
            return None
        delay_us = round(options.partition_commit_delay * 10**6)
        return PartitionTime(
            found.partition_columns,
            options.partition_time or "",
            options.event_time or "",
            delay_us,
        )

    def _check_time(self, time: PartitionTime | None, schema: pa.Schema) -> None:
        problems = [] if time is None else time.problems(schema)
        if problems:
            raise ConfigError(
                f"Partitions cannot be timed: {'; '.join(problems)}.",
                remedy="correct the sink's options.",
            )

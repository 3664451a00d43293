"""The Hive sink: appends files to a table exactly once, and commits its partitions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import ArrowSink, CommitRequest, SinkContext, SinkHistory
from twophase.errors import ConfigError, RestoreRefusedError
from twophase.ids import Attempt
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import Values, folders
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.common.staging.partition_time import PartitionTime, time_of
from twophase.sinks.common.staging.preflight import check_folder, open_staging_area
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.writer import AHEAD, ROW_AHEAD
from twophase.sinks.hive.catalog import Catalog, HiveTable
from twophase.sinks.hive.identity import record, why_replaced
from twophase.sinks.hive.options import HiveOptions
from twophase.sinks.hive.pending import PendingPartitions
from twophase.sinks.hive.policies import SUCCESS, Policies
from twophase.sinks.hive.preflight import check_table, find_table

_log = logging.getLogger("twophase.sinks.hive")


class HiveSink(ArrowSink):
    """Appends to one table. Options: `twophase.sinks.hive.options.HiveOptions`.

    Args:
        options: `table`, and any other option by its name.
    """

    needs_spark: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        self._options = HiveOptions.parse(options, "HiveSink")

    def __repr__(self) -> str:
        return f"HiveSink({self._options.table!r})"

    @classmethod
    def spark_conf(cls) -> Mapping[str, str]:
        """See `Sink.spark_conf`. The settings are the same for every table."""
        return {"spark.sql.catalogImplementation": "hive"}

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[HiveSink, Mapping[str, str]]:
        """See `Sink.rehearsal`: with a metastore in memory."""
        return cls(table="rehearsal", create=True), {
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            (
                "spark.hadoop.javax.jdo.option.ConnectionURL"
            ): "jdbc:derby:memory:rehearsal;create=true",
            "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={folder / 'derby.log'}",
        }

    def open(self, context: SinkContext) -> OpenHiveSink:
        """See `Sink.open`."""
        options, owner, catalog = self._options, Owner.of(context), Catalog.find()
        found = find_table(catalog, options, context.schema)
        destination = check_table(found, options, context.schema)
        path = destination.path
        check_folder(path)
        area = open_staging_area(path, owner, writes=context.schema is not None)
        table = Table(
            area,
            found.format,
            found.partition_columns,
            f"hive:{found.name}:file:{path}",
            static=dict(options.partition),
            columns=destination.columns,
            time=destination.time,
            in_metastore=True,
        )
        return OpenHiveSink(table, options, catalog, found)


class OpenHiveSink(OpenStagedSink):
    """Appends to one table of the metastore.

    Args:
        table: the table's folder.
        options: the declared sink's.
        catalog: of the metastore.
        found: the table in it.
    """

    def __init__(
        self, table: Table, options: HiveOptions, catalog: Catalog, found: HiveTable
    ) -> None:
        super().__init__(table)
        self._options = options
        self._catalog = catalog
        self._created = found.created
        self._policies = Policies(
            catalog,
            found,
            table.area.root,
            options.success_file,
            options.on_partition_commit,
            self._accept,
        )

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        found = super().history()
        if not found.committed:
            return found
        table = self._current_table()
        has_partitions = partial(self._catalog.has_partitions, table)
        replaced = why_replaced(table, table.created, has_partitions, self.table.area.stage())
        if not replaced:
            self._accept(table.created)
        return replace(found, replaced=replaced)

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`. From now on the proofs are of the table whose history was accepted.

        A table that has replaced it since is noticed when partitions are added to it.
        """
        super().fence(attempt)
        record(self._created, self.table.area.stage())

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        for handle in (request.committable.handle for request in requests):
            if AHEAD in handle:
                _log.warning(
                    "table %s: a row has the %s %s, which is further ahead than "
                    "event_time_max_future. It is stored, and does not move the watermark. The "
                    "row: %s",
                    self._options.table,
                    self._options.event_time,
                    shown(time_of(int(handle[AHEAD]))),
                    handle.get(ROW_AHEAD, ""),
                )
        return super().commit(requests)

    def publish(self, pieces: Sequence[Manifest], stage: Path) -> None:
        """See `OpenStagedSink.publish`. When partitions are due, the policies run."""
        pending = PendingPartitions(stage)
        due = self._due(pieces, pending)
        if due:
            self._policies.run(sorted(due, key=str), stage)
            pending.remove(due)
        else:
            table = self._current_table()
            has_partitions = partial(self._catalog.has_partitions, table)
            self._policies.check_identity(stage, table.created, has_partitions)

    def _create_area(self) -> None:
        super()._create_area()
        PendingPartitions(self.table.area.stage()).create()

    def waiting_partitions(self) -> Sequence[str]:
        """See `CompletesPartitions`."""
        return [*self._waiting()]

    def complete_partitions(self, names: Sequence[str]) -> None:
        """See `CompletesPartitions`."""
        waiting = [values for name, values in self._waiting().items() if name in names]
        if waiting:
            stage = self.table.area.stage()
            self._policies.run(waiting, stage)
            PendingPartitions(stage).remove(waiting)

    def _waiting(self) -> dict[str, Values]:
        """Return the partitions that wait, by the folders of each."""
        if not self._has_area:
            return {}
        pending = PendingPartitions(self.table.area.stage())
        found = sorted(pending.partitions(), key=str) if pending.exist() else []
        return {"/".join(folders(self.table.partition_by, values)): values for values in found}

    def check_unpublish(self) -> None:
        """See `OpenStagedSink.check_unpublish`. A partition that was moved may hold moved rows."""
        table = self._current_table()
        if problem := self._catalog.storage_problem(table, self.table.area.root):
            raise RestoreRefusedError(
                f"Cannot rewind table {table.name}: it has changed in the metastore: {problem}. "
                "Nothing was removed.",
                remedy="reset location and format (ALTER TABLE ... SET LOCATION), or restore "
                "a newer checkpoint.",
            )

    def unpublish(self, folders: Sequence[Path]) -> None:
        """See `OpenStagedSink.unpublish`. Partitions stay in the metastore, no longer complete."""
        self.check_unpublish()
        for folder in folders if self._options.success_file else ():
            (folder / SUCCESS).unlink(missing_ok=True)
            sync(folder)

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        super().rewind(keep, attempt)
        self._catalog.refresh(self._current_table())

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `RewindsInSteps`. A success file that has gone stays away."""
        super().settle_rewind(keep, attempt)
        self._catalog.refresh(self._current_table())

    def _accept(self, created: str) -> None:
        """Remember the table whose rows the proofs are of, by its creation time."""
        self._created = created

    def _due(self, pieces: Sequence[Manifest], pending: PendingPartitions) -> set[Values]:
        """Add what the pieces bring to what waits; return the partitions that are due."""
        time = self.table.time
        got = {file.partition for piece in pieces for file in piece.files}
        if time is None:
            # some may still wait from when the trigger was another
            return got | {*pending.partitions()}
        pending.add(got)
        limit_us = time.limit_us()
        self._warn(time, got, pending.watermark_us(), limit_us)
        pending.raise_watermark(
            [piece.watermark_us for piece in pieces if piece.watermark_us is not None], limit_us
        )
        watermark_us = pending.watermark_us(limit_us)
        if watermark_us is None:
            return set()
        return {one for one in pending.partitions() if watermark_us >= time.due_us(one)}

    def _warn(
        self, time: PartitionTime, got: set[Values], watermark_us: int | None, limit_us: int
    ) -> None:
        """Say what would surprise: a watermark that no longer counts, and rows of a far future."""
        table = self._options.table
        if watermark_us is not None and watermark_us > limit_us:
            _log.warning(
                "table %s: the watermark %s is further ahead than event_time_max_future. It no "
                "longer counts: the next row with an earlier %s sets it.",
                table,
                time_of(watermark_us),
                time.event_time,
            )
        for values in sorted(got, key=str):
            if (due_us := time.due_us(values)) - time.delay_us > limit_us:
                _log.warning(
                    "table %s: rows of partition %s wait, unseen by readers, until the watermark "
                    "has passed %s.",
                    table,
                    shown(values),
                    time_of(due_us),
                )

    def _current_table(self) -> HiveTable:
        """Return the table as the metastore describes it now.

        Raises:
            ConfigError: it is gone.
        """
        found = self._catalog.table(self._options.table)
        if found is None:
            raise ConfigError(
                f"Table {self._options.table!r} is gone.",
                remedy="create it again over the same folder, or restore both from a backup, then "
                "start the job again.",
            )
        return found

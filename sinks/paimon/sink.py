"""The Paimon sink: appends rows exactly once, one snapshot a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import ConfigError, PreflightError
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.location import local_path
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.preflight import check_folder, check_owned
from twophase.sinks.paimon.columns import check_new, check_rows, kind_of, optional
from twophase.sinks.paimon.driver_table import DriverTable
from twophase.sinks.paimon.layout import check_partitions, check_table
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.sinks.paimon.options import PaimonOptions
from twophase.sinks.paimon.private_api import Schema, create_table, newest_schema


class PaimonSink(ArrowSink):
    """Appends to one table. Options: `twophase.sinks.paimon.options.PaimonOptions`.

    Args:
        options: `warehouse`, `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = PaimonOptions.parse(options, "PaimonSink")

    def __repr__(self) -> str:
        return f"PaimonSink({self._options.where!r})"

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[PaimonSink, dict[str, str]]:
        """See `Sink.rehearsal`."""
        return cls(warehouse=str(folder), table="a.b", create=True), {}

    def check_connection(self) -> None:
        """See `Sink.check_connection`."""
        found = newest_schema(self._location())
        if found is not None or not self._options.create:
            self._check(found)

    def open(self, context: SinkContext) -> OpenPaimonSink:
        """See `Sink.open`."""
        options, rows, owner = self._options, context.schema, Owner.of(context)
        location = self._location()
        found = newest_schema(location)
        if found is None and options.create and rows is not None:
            self._create(location, rows)
            found = newest_schema(location)
        schema = self._check(found)
        if rows is not None:
            check_rows(rows, schema.columns)
        table = DriverTable(owner, location, options.table)
        if rows is not None:
            table.create_area()
        return OpenPaimonSink(table, rows, options)

    def _location(self) -> Path:
        """Return the table's folder, which need not exist.

        Raises:
            PreflightError: the warehouse does not.
        """
        warehouse = local_path(self._options.warehouse, "warehouse")
        if not warehouse.is_dir():
            raise PreflightError(
                f"The warehouse {warehouse} is not a folder.",
                remedy="create it, or correct warehouse.",
            )
        return (warehouse / self._options.folder).resolve()

    def _create(self, location: Path, rows: pa.Schema) -> None:
        """Create the table.

        Raises:
            ConfigError: it cannot have such columns.
        """
        check_new(rows)
        if missing := [name for name in self._options.partition_by if name not in rows.names]:
            raise ConfigError(
                f"The rows have no column {missing[0]!r} to partition by.",
                remedy="name columns of the rows in partition_by.",
            )
        check_partitions(
            {name: kind_of(rows.field(name).type) for name in self._options.partition_by}
        )
        check_owned(location)
        columns = pa.schema([(field.name, optional(field.type)) for field in rows])
        create_table(location, columns, self._options.partition_by)
        sync(location)

    def _check(self, found: Schema | None) -> Schema:
        """Check all that does not depend on job and rows; return the table's schema."""
        options = self._options
        if found is None:
            raise ConfigError(
                f"There is no table {options.where}.",
                remedy="create it, correct table, or let the sink create it: `create=true`.",
            )
        check_table(found, options)
        check_folder(self._location())
        return found

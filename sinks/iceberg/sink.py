"""The Iceberg sink: appends rows exactly once, one snapshot a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import ConfigError
from twophase.sinks.common.staging.location import local_path
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.preflight import check_folder
from twophase.sinks.iceberg.branch import check_branch, create_branch
from twophase.sinks.iceberg.catalog import open_catalog
from twophase.sinks.iceberg.columns import check_rows, table_schema
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.layout import check_table
from twophase.sinks.iceberg.new_columns import add_columns
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.sinks.iceberg.options import CatalogKind, IcebergOptions, SchemaChange


class IcebergSink(ArrowSink):
    """Appends to one table. Options: `twophase.sinks.iceberg.options.IcebergOptions`.

    Args:
        options: `catalog_uri`, `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = IcebergOptions.parse(options, "IcebergSink")

    def __repr__(self) -> str:
        return f"IcebergSink({self._options.where!r})"

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[IcebergSink, dict[str, str]]:
        """See `Sink.rehearsal`."""
        uri = f"sqlite:///{folder / 'catalog.db'}"
        return cls(catalog_uri=uri, table="a.b", create=True, warehouse=str(folder)), {}

    def check_connection(self) -> None:
        """See `Sink.check_connection`."""
        options = self._options
        database = options.database
        if options.create and database and database.parent.exists() and not database.exists():
            return  # `open` creates it
        catalog = open_catalog(options, make=False, owner=None)
        try:
            found = catalog.find()
            if found is not None or not options.create:
                loaded, _ = self._check(found, must_exist=not options.create)
                catalog.check(loaded, options.branch)
        finally:
            catalog.close()

    def open(self, context: SinkContext) -> OpenIcebergSink:
        """See `Sink.open`."""
        options, rows, owner = self._options, context.schema, Owner.of(context)
        make = options.create and rows is not None
        catalog = open_catalog(options, make=make, owner=owner)
        try:
            found = catalog.find()
            if found is None and options.create and rows is not None:
                found = catalog.create(table_schema(rows))
            must_exist = not options.create and rows is not None
            loaded, location = self._check(found, must_exist=must_exist)
            catalog.check(loaded, options.branch)
            if rows is not None and options.schema_change == SchemaChange.ADD_COLUMNS:
                loaded = add_columns(catalog, rows)
            if rows is not None:
                check_rows(rows, loaded.schema())
            table = DriverTable(owner, catalog, loaded, location, options.branch)
            if rows is not None:
                if options.create:
                    create_branch(table)
                table.create_area()
            catalog.opened()
        except BaseException:
            catalog.close()
            raise
        return OpenIcebergSink(table, rows)

    def _check(self, found: Table | None, *, must_exist: bool) -> tuple[Table, Path]:
        """Check all that does not depend on job and rows; return the table and its folder.

        Args:
            found: the table.
            must_exist: whether the branch must exist.
        """
        if found is None:
            elsewhere = ", warehouse or prefix" if self._options.kind is CatalogKind.REST else ""
            raise ConfigError(
                f"There is no table {self._options.where}.",
                remedy=f"create it, correct table{elsewhere}, or let the sink create it: "
                "`create=true`.",
            )
        check_table(found, self._options.partition_by)
        check_branch(found, self._options.branch, must_exist=must_exist)
        location = local_path(found.location(), f"the location of {self._options.table}")
        check_folder(location)
        return found, location

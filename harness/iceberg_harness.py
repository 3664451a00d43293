"""An Iceberg table in a catalog of its own, under test. Read by pyiceberg without the product."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from harness.iceberg_places import Place, SqlitePlace
from harness.lake_harness import LakeHarness
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.sinks.iceberg.sink import IcebergSink
from twophase.testing.harness import Row, contents_of

TABLE = "shop.orders"


class IcebergHarness(LakeHarness[OpenIcebergSink]):
    """One table.

    Args:
        folder: holds an SQLite catalog and its warehouse, or says where it is.
        fields: the columns of the rows, if they differ from those of the contract tests.
        options: the sink's options.
    """

    def __init__(
        self, folder: Path | Place, fields: pa.Schema | None = None, **options: Any
    ) -> None:
        self.place = SqlitePlace(folder) if isinstance(folder, Path) else folder
        super().__init__(self.place.folder, fields, **options)

    def new_sink(self, **options: Any) -> IcebergSink:
        """See `SinkHarness`."""
        return IcebergSink(
            **{
                "table": self.place.table,
                "create": True,
                **self.place.options,
                **self.options,
                **options,
            }
        )

    def unreachable(self) -> IcebergSink:
        """See `SinkHarness`."""
        return self.new_sink(**self.place.unreachable)

    def elsewhere(self) -> IcebergHarness:
        """See `SinkHarness`."""
        return IcebergHarness(self.place.elsewhere(), self.fields, **self.options)

    def contents(self) -> object:
        """See `SinkHarness`."""
        return self.place.listed(), contents_of(self.place.tables)

    def rows_visible(self) -> list[Row]:
        """See `SinkHarness`."""
        try:
            found = self.rows_of(self.branch)
        except (NoSuchTableError, SQLAlchemyError):  # nobody has made it yet
            return []
        return list(found.select(self.fields.names).cast(self.fields).to_pylist())

    def catalog(self) -> Catalog:
        """Return the catalog, as another application opens it."""
        return self.place.catalog()

    def table(self) -> Table:
        """Return the table, as another application loads it."""
        with closing(self.catalog()) as catalog:
            return catalog.load_table(self.place.table)

    @property
    def branch(self) -> str:
        """The branch that rows go to."""
        return str(self.options.get("branch", "main"))

    def rows_of(self, branch: str) -> pa.Table:
        """Return the rows of a branch, with the table's columns; none if there is no such branch.

        pyiceberg reads a branch with the columns of its newest snapshot.
        """
        table = self.table()
        fields = table.schema().as_arrow()
        head = table.metadata.snapshot_by_name(branch)
        if head is None:
            return fields.empty_table()
        if branch == "main":
            return table.scan().to_arrow()
        return table.scan(snapshot_id=head.snapshot_id).to_arrow()

    def data_files(self) -> list[str]:
        """The data files in the table's folder, named by a snapshot or not."""
        return sorted(path.name for path in self.folder.rglob("data/*.parquet"))

"""A Paimon table in a warehouse of its own, under test. Read by pypaimon without the product."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.table.file_store_table import FileStoreTable

from harness.lake_harness import LakeHarness
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.sinks.paimon.sink import PaimonSink
from twophase.testing.harness import Row, contents_of, fresh_name

TABLE = "shop.orders"


class PaimonHarness(LakeHarness[OpenPaimonSink]):
    """One table in a filesystem catalog.

    Args:
        folder: the warehouse.
        fields: the columns of the rows, if they differ from those of the contract tests.
        options: the sink's options.
    """

    def __init__(self, folder: Path, fields: pa.Schema | None = None, **options: Any) -> None:
        super().__init__(folder, fields, **options)
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def location(self) -> Path:
        """The table's folder."""
        return self.folder / "shop.db" / "orders"

    def new_sink(self, **options: Any) -> PaimonSink:
        """See `SinkHarness`."""
        given = {"warehouse": str(self.folder), "table": TABLE, "create": True}
        return PaimonSink(**{**given, **self.options, **options})

    def unreachable(self) -> PaimonSink:
        """See `SinkHarness`."""
        return self.new_sink(warehouse=str(self.folder / "nowhere"))

    def elsewhere(self) -> PaimonHarness:
        """See `SinkHarness`."""
        return PaimonHarness(self.folder.parent / fresh_name("lake"), self.fields, **self.options)

    def contents(self) -> object:
        """See `SinkHarness`."""
        return contents_of(self.folder)

    def rows_visible(self) -> list[Row]:
        """See `SinkHarness`."""
        try:
            found = self.read()
        except TableNotExistException:  # nobody has made it yet
            return []
        return list(found.select(self.fields.names).cast(self.fields).to_pylist())

    def table(self) -> FileStoreTable:
        """Return the table, as another application loads it."""
        return CatalogFactory.create({"warehouse": str(self.folder)}).get_table(TABLE)

    def read(self, **options: str) -> pa.Table:
        """Return the rows of the table, with the table's columns.

        Args:
            options: of the read, such as which snapshot.
        """
        builder = self.table().copy(options).new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows as another application does."""
        builder = self.table().new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.Table.from_pylist(list(rows), schema=self.fields))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def data_files(self) -> list[str]:
        """The data files in the table's folder, named by a snapshot or not."""
        return sorted(path.name for path in self.location.rglob("bucket-*/*.parquet"))

"""A Hive table under test: what readers see in it, and what lies hidden."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from harness.staged_sink_harness import StagedHarness
from twophase.sinks.hive.sink import HiveSink
from twophase.testing.harness import Row, fresh_name


def warehouse_of(spark: SparkSession) -> Path:
    """The folder of the tables that Spark makes."""
    folder = spark.conf.get("spark.sql.warehouse.dir")
    assert folder is not None
    return Path(folder.removeprefix("file:"))


class HiveHarness(StagedHarness):
    """One table.

    Args:
        spark: with a metastore.
        fields: the columns of the rows, if other than those of every contract test.
        options: of the sink.
    """

    def __init__(
        self, spark: SparkSession, fields: pa.Schema | None = None, **options: Any
    ) -> None:
        self.spark = spark
        self.name = options.pop("table", fresh_name("orders"))
        super().__init__(warehouse_of(spark) / self.name, fields)
        self.options = options

    def new_sink(self, **options: Any) -> HiveSink:
        return HiveSink(**{"table": self.name, **self.options, **options})

    def elsewhere(self) -> HiveHarness:
        return HiveHarness(self.spark, self.fields, **self.options)

    def contents(self) -> object:
        is_there = self.spark.catalog.tableExists(self.name)
        partitions = self.partitions() if is_there and self.options.get("partition_by") else []
        return super().contents(), is_there, partitions

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """In two partitions, if the table is partitioned by name."""
        return [row | {"name": f"row {row['id'] % 2}"} for row in super().rows(ids)]

    def sql(self, statement: str) -> list[Any]:
        """Run a statement; `{table}` stands for the table."""
        return self.spark.sql(statement.replace("{table}", self.name)).collect()

    def rows_visible(self) -> list[Row]:
        """By Spark SQL."""
        if not self.spark.catalog.tableExists(self.name):
            return []
        return [
            row.asDict(recursive=True)
            for row in self.spark.table(self.name).select(*self.fields.names).collect()
        ]

    def rows_of_pyarrow(self, *partition_by: str) -> list[Row]:
        """By pyarrow, from the table's folder."""
        partitioning = ds.partitioning(
            pa.schema([self.fields.field(name) for name in partition_by]), flavor="hive"
        )
        kind = self.files()[0].suffix.removeprefix(".")
        found = ds.dataset(
            self.path, self.fields, format=kind, partitioning=partitioning if partition_by else None
        )
        return list(found.to_table().select(self.fields.names).to_pylist())

    def partitions(self) -> list[str]:
        """Those of the metastore."""
        return sorted(row.partition for row in self.sql("SHOW PARTITIONS {table}"))

    def make(self, statement: str) -> None:
        """Make the table with the columns of the rows; `{columns}` stands for them."""
        columns = [
            f"{field.name} {field.dataType.simpleString()}"
            for field in from_arrow_schema(self.fields)
        ]
        self.sql(statement.replace("{columns}", ", ".join(columns)))

"""Starts the Python processes of Spark's driver and local tasks before they are needed.

Spark starts each on first use: one that looks for data sources in every installed package, one that
plans a read, one that forks the workers of tasks. Each delays the first row by half a second to a
second, one after the other, while another processor is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pkgutil import iter_modules
from threading import Thread
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

# of packages with data sources, see pyspark.sql.worker.lookup_data_sources
_SOURCES_PREFIX = "pyspark_"
_LOCAL = "local"
_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager$"


class Nothing(DataSource):
    """A data source without rows. Reading it starts the processes that read one with rows."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "twophase-nothing"

    def schema(self) -> str:
        """One column."""
        return "id long"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 of Spark's contract
        """Return a reader of no rows."""
        return _Reader()


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 of Spark's contract
        return iter([pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})])


def skip_lookup(session: SparkSession) -> None:
    """Tell Spark that no package has data sources, if so: it would start a process to find out.

    Args:
        session: has no data source registered yet, and its workers run this same Python.
    """
    if any(module.name.startswith(_SOURCES_PREFIX) for module in iter_modules()):
        return
    jvm: Any = session._jvm
    with suppress(Exception):  # not the Spark version that this was written for: let it look
        found = jvm.java.lang.Class.forName(_MANAGER).getDeclaredField("dataSourceBuilders")
        found.setAccessible(True)
        if found.get(None).isEmpty():
            found.set(None, getattr(jvm, "scala.Option").apply(jvm.PythonUtils.toScalaMap({})))


def start_workers(session: SparkSession) -> None:
    """Start the processes that plan reads and fork workers, by a Spark job in the background.

    Args:
        session: nothing is started if its tasks run on other machines.
    """
    if not str(session.sparkContext.master).startswith(_LOCAL):
        return

    def read_nothing() -> None:
        with suppress(Exception):  # the first micro-batch gets the error again
            session.sparkContext.setJobDescription("twophase: start the Python workers")
            session.dataSource.register(Nothing)
            session.read.format(Nothing.name()).load().collect()

    Thread(target=read_nothing, name="twophase-first-workers", daemon=True).start()

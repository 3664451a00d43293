"""The Python processes of Spark's driver and of its tasks on this machine, started before the first micro-batch asks for them.

Spark starts each when it is first needed: one that looks for data sources in every installed package, one that plans a read, one
that forks the workers of tasks. Each takes half a second to a second of the first row's time, one after the other, while another
processor has nothing to do.
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

_SOURCES_PREFIX = "pyspark_"  # of packages that bring data sources, by pyspark.sql.worker.lookup_data_sources
_LOCAL = "local"
_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager$"


class Nothing(DataSource):
    """A data source without rows. To read it starts the processes that read one with rows."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "twophase-nothing"

    def schema(self) -> str:
        """One column."""
        return "id long"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 of Spark's contract
        """Reads nothing."""
        return _Reader()


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 of Spark's contract
        return iter([pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})])


def skip_lookup(session: SparkSession) -> None:
    """Tell Spark that no installed package brings data sources, where that is so: it starts a process to find out.

    Args:
        session: before a data source is registered in it. Its workers run this very Python.
    """
    if any(module.name.startswith(_SOURCES_PREFIX) for module in iter_modules()):
        return
    jvm: Any = session._jvm
    with suppress(Exception):  # another Spark than the one that this was written for: it looks
        found = jvm.java.lang.Class.forName(_MANAGER).getDeclaredField("dataSourceBuilders")
        found.setAccessible(True)
        if found.get(None).isEmpty():
            found.set(None, getattr(jvm, "scala.Option").apply(jvm.PythonUtils.toScalaMap({})))


def start_workers(session: SparkSession) -> None:
    """Begin to start the process that plans reads and the one that forks the workers of tasks, by a Spark job without rows.

    Args:
        session: nothing is started if its tasks run on other machines.
    """
    if not str(session.sparkContext.master).startswith(_LOCAL):
        return

    def read_nothing() -> None:
        with suppress(Exception):  # the first micro-batch meets it again
            session.sparkContext.setJobDescription("twophase: start the Python workers")
            session.dataSource.register(Nothing)
            session.read.format(Nothing.name()).load().collect()

    Thread(target=read_nothing, name="twophase-first-workers", daemon=True).start()

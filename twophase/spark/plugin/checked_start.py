"""Checks a query of the plugin form in `start()`, which raises what is wrong.

Spark asks a Python data source nothing before the first micro-batch: what is wrong would end the
query there, and be logged several times with Spark's stack. PySpark's writer keeps its settings in
the JVM, in fields that it does not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from twophase.errors import TargetUnreachableError
from twophase.spark.folder import folder_formats
from twophase.spark.plan import logical_plan
from twophase.spark.plugin.source import SinkDataSource

_start = DataStreamWriter.start
_formats: WeakKeyDictionary[SparkSession, dict[str, type[SinkDataSource]]] = WeakKeyDictionary()


def check_starts(spark: SparkSession, formats: Sequence[type[SinkDataSource]]) -> None:
    """Check each query of a session that is written to one of these formats, in its `start()`."""
    _formats[spark] = {kind.name(): kind for kind in formats}
    DataStreamWriter.start = _checked_start  # type: ignore[method-assign]


@wraps(_start)
def _checked_start(
    self: DataStreamWriter,
    path: str | None = None,
    format: str | None = None,
    outputMode: str | None = None,
    partitionBy: str | list[str] | None = None,
    queryName: str | None = None,
    **options: Any,
) -> StreamingQuery:
    if format is not None:
        self.format(format)
    if outputMode is not None:
        self.outputMode(outputMode)
    self.options(**options)
    _check(self, {} if path is None else {"path": path})
    return _start(self, path, partitionBy=partitionBy, queryName=queryName)


def _check(writer: DataStreamWriter, more: dict[str, str]) -> None:
    formats = _formats.get(writer._spark)
    if not formats:
        return
    set_in: Any = writer._jwrite
    kind = formats.get(str(_value(set_in, "source")).lower())
    if kind is not None:
        folder_formats.check(f"format {kind.name()!r}", writer._spark.conf)
        source = kind(dict(_pairs(_value(set_in, "extraOptions"))) | more)
        mode, frame = _value(set_in, "outputMode").toString().lower(), writer._df
        legs = partial(logical_plan.sources, frame)
        writer.options(**source.compare(frame.schema, mode, legs))
        with suppress(TargetUnreachableError):  # the query fails with it, as it would later
            source.check(frame.schema, mode)


def _value(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(of)


def _pairs(options: Any) -> Iterator[tuple[str, str]]:
    each = options.iterator()
    while each.hasNext():
        pair = each.next()
        yield pair._1(), pair._2()

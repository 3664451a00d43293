"""Turns a job file into a described job: views of the sources, rows by SQL, and the sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from twophase.cli.display.text import clean
from twophase.cli.jobfile.job_file import JobFile, SourceSection
from twophase.contract.sink import Sink
from twophase.contract.source_entry_points import source_of
from twophase.errors import ConfigError, carried
from twophase.spark.job.stream_writer import StreamWriter, write_stream
from twophase.spark.plugin.registration import register_formats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = "rows"
_SPARK_CHARS = 400


def describe(spark: SparkSession, job: JobFile, sinks: Mapping[str, Sink]) -> StreamWriter:
    """Describe the job of a job file, without starting anything.

    Args:
        spark: the session.
        job: the job file.
        sinks: the sinks from `make_sinks`.

    Raises:
        ConfigError: Spark refuses a source or a query.
    """
    where = job.path.name
    register_formats(spark)
    frames = {
        name: _checked(f"{where}: {name}", partial(_load, spark, entry))
        for name, entry in job.sources.items()
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    if job.sql is None:
        frame = next(iter(frames.values()))
    else:
        frame = _checked(f"{where}: sql", partial(spark.sql, job.sql))
    writer = write_stream(frame, name=job.name).options(**job.options)
    for name, sink in sinks.items():
        text = job.sinks[name].sql
        transform = None if text is None else _query_over_rows(f"{where}: sinks.{name}.sql", text)
        writer.sink(name, sink, transform)
    return writer.trigger(**job.trigger) if job.trigger else writer


def _load(spark: SparkSession, section: SourceSection) -> DataFrame:
    source_of(section.format)  # Spark would not know why it is not registered
    reader = spark.readStream.format(section.format).options(**section.options)
    frame = (reader if section.fields is None else reader.schema(section.fields)).load()
    if (late := section.watermark) is None:
        return frame
    return frame.withWatermark(late.column, f"{round(late.delay * 1000)} milliseconds")


def _query_over_rows(where: str, text: str) -> Callable[[DataFrame], DataFrame]:
    """Return a transform, run on the streaming rows for the columns, then on each batch's rows."""

    def transform(rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView(_ROWS)
        return _checked(where, partial(rows.sparkSession.sql, text))

    return transform


def _checked(where: str, make: Callable[[], DataFrame]) -> DataFrame:
    try:
        return make()
    except (PySparkException, Py4JJavaError) as error:
        if (known := carried(error)) is not None:
            raise known from error
        text = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
        first = next((clean(line) for line in text.splitlines() if line.strip()), "")
        raise ConfigError(
            f"{where}: Spark rejects it: {first[:_SPARK_CHARS]}",
            remedy=f"correct {where.partition(':')[0]}.",
        ) from error

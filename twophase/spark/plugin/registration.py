"""Registers the data sources of twophase in a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from twophase.contract.source_entry_points import installed_sources
from twophase.errors import ConfigError
from twophase.internals.pyspark_version import check_pyspark
from twophase.internals.redaction import SETTING, share_redaction
from twophase.internals.sink_entry_points import sink_names
from twophase.seal import share_key
from twophase.spark.plan import shuffles
from twophase.spark.plugin.checked_start import check_starts
from twophase.spark.plugin.query_start import listen
from twophase.spark.plugin.source import PREFIX, SinkDataSource, data_source
from twophase.spark.startup.worker_interpreter import use_this_python


def register(spark: SparkSession) -> None:
    """Register the formats of twophase in this session.

    Spark looks a format up in the active session of the thread that reads or writes. A thread
    that has none, as one that you start or one after a Ctrl-C has, gets this one: call `register`
    there too.

    In local mode Spark's workers are made to run this same Python, unless
    `PYSPARK_PYTHON` names another.

    `twophase-kafka`, and what other installed sources name, is read with `readStream`;
    `twophase-<sink>`, for each installed sink, is written with `writeStream`, whose `start()`
    raises what is wrong with the options or the target. `twophase-kafka` is both.

    Raises:
        ConfigError: the session is a Spark Connect session.
        PreflightError: `PYSPARK_PYTHON` names a Python that has no twophase; or this is another
            pyspark than the required one.
    """
    check_pyspark()
    if not isinstance(spark, SparkSession):
        raise ConfigError(
            "The session is of Spark Connect: the formats are registered in the process "
            "that Spark's driver is in.",
            remedy="call twophase.register there, in a session of spark.master, "
            "without spark.remote.",
        )
    check_starts(spark, register_formats(spark))
    listen(spark)


def register_formats(spark: SparkSession) -> list[type[SinkDataSource]]:
    """Register only the formats, for a session that will not run queries of the plugin form.

    Returns:
        Those of the sinks.

    Raises:
        PreflightError: `PYSPARK_PYTHON` names a Python that has no twophase.
    """
    use_this_python(spark.sparkContext)
    share_key(spark.sparkContext.environment)
    share_redaction(spark.conf.get(SETTING, "false") or "false", spark.sparkContext.environment)
    read = {
        kind.name(): kind
        for _, source in installed_sources()
        if (kind := source.data_source()) is not None
    }
    for key, value in shuffles.settings(spark).items():
        spark.conf.set(key, value)  # a query of this form starts without us
    formats = [data_source(name, spark, read.get(f"{PREFIX}{name}")) for name in sink_names()]
    for kind in {**read, **{kind.name(): kind for kind in formats}}.values():
        spark.dataSource.register(kind)
    if SparkSession.getActiveSession() is None:
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    return formats

"""Registers the data sources of twophase in a Spark session.

Over Spark Connect the process that calls has no driver in it. Spark plans, writes and commits on
the server, as for any query of the plugin form. What `register` does besides in the driver's own
process cannot be done from there: `start()` is not checked, and no listener finishes a committed
micro-batch before Spark reads its folder. So what is wrong ends the query in its first micro-batch,
and a micro-batch whose commit Spark has not noted runs again, which writes nothing. Such a session
is asked for its settings only, and none is changed: the file of a declarative pipeline may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from twophase.contract.source_entry_points import installed_sources
from twophase.errors import ConfigError
from twophase.internals.pyspark_version import check_pyspark
from twophase.internals.redaction import SETTING, share_redaction
from twophase.internals.sink_entry_points import sink_names
from twophase.seal import share_key
from twophase.spark.folder import folder_formats
from twophase.spark.plan import shuffles
from twophase.spark.plugin.checked_start import check_starts
from twophase.spark.plugin.description import Environment
from twophase.spark.plugin.query_start import listen
from twophase.spark.plugin.source import PREFIX, SinkDataSource
from twophase.spark.startup.worker_interpreter import use_this_python

_SESSION = "pyspark.sql.connect.session"
_SLOTS = re.compile(r"local\[(\d+)[],]")
_RESPONSES = "_execute_and_fetch_as_iterator"
_PROFILES = "__python_accumulator__"
_variables: dict[str, str] = {}
_expecting: WeakSet[Any] = WeakSet()


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

    Over Spark Connect the server must have the same twophase. What is wrong then ends the query, in
    its first micro-batch.

    Args:
        spark: the session; one of Spark Connect too.

    Raises:
        ConfigError: this is no session.
        PreflightError: `PYSPARK_PYTHON` names a Python that has no twophase; or this is another
            pyspark than the required one.
    """
    check_pyspark()
    if is_of_connect(spark):
        _register_over_connect(spark)
    elif isinstance(spark, SparkSession):
        check_starts(spark, register_formats(spark))
        listen(spark)
    else:
        raise ConfigError(
            f"twophase.register was given a {type(spark).__name__}, not a Spark session.",
            remedy="call twophase.register(spark) with the session that reads and writes.",
        )


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
    for key, value in shuffles.settings(spark).items():
        spark.conf.set(key, value)  # a query of this form starts without us
    kinds = _formats(_environment(spark)).values()
    for kind in kinds:
        spark.dataSource.register(kind)
    if SparkSession.getActiveSession() is None:
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    return [kind for kind in kinds if issubclass(kind, SinkDataSource)]


def _environment(spark: SparkSession) -> Environment:
    context = spark.sparkContext
    return Environment(
        parallelism=context.defaultParallelism,
        speculation=context.getConf().get("spark.speculation", "false") == "true",
        timezone=str(spark.conf.get("spark.sql.session.timeZone")),
        fault=shuffles.find_fault(spark),
    )


def is_of_connect(spark: object) -> bool:
    """Return whether a session is one of Spark Connect, whose packages need not be installed."""
    return any(kind.__module__ == _SESSION for kind in type(spark).__mro__)


def _register_over_connect(spark: Any) -> None:
    expect_profiles(spark.client)
    for kind in _formats(environment_of(spark.conf)).values():
        spark.dataSource.register(kind)


def expect_profiles(client: Any) -> None:
    """Keep the reports of profilers from those who read the responses to a command.

    A Python process that plans or commits for a data source reports what its profilers have found,
    also if none is on. For a data source that a session has registered, the server passes that on
    at the end of a command. PySpark's client reads it, and hands it on as if it was a response;
    `spark-pipelines run` then ends with `UNKNOWN_RESPONSE`, although its run is complete.

    Args:
        client: `SparkSession.client`.
    """
    fetch = getattr(client, _RESPONSES, None)
    if fetch is None or client in _expecting:
        return

    def without_profiles(*args: Any, **options: Any) -> Iterator[Any]:
        for response in fetch(*args, **options):
            if getattr(response, "name", None) != _PROFILES:
                yield response

    setattr(client, _RESPONSES, without_profiles)
    _expecting.add(client)


def environment_of(conf: Any) -> Environment:
    """Return what can be known of a session from its settings.

    A session has those of its application too.

    Args:
        conf: `SparkSession.conf`.

    Raises:
        ConfigError: a setting of twophase is not right.
        PreflightError: Spark would write its checkpoint folders in a format that is not known here.
    """
    folder_formats.check("This session", conf)
    share_key(_variables)
    share_redaction(conf.get(SETTING, "false"), _variables)
    master = conf.get("spark.master", "")
    return Environment(
        parallelism=_parallelism(master, conf.get("spark.default.parallelism", "")),
        speculation=conf.get("spark.speculation", "false") != "false",
        timezone=conf.get("spark.sql.session.timeZone"),
        fault=shuffles.find_fault_in(conf),
        variables=dict(_variables),
    )


def _parallelism(master: str, default: str) -> int:
    """Return how many writers may run at once; 0 if the settings do not say so."""
    slots = _SLOTS.match(master)
    return int(slots[1]) if slots else int(default) if default.isdecimal() else 0


def _formats(environment: Environment) -> dict[str, type[DataSource]]:
    """Return the classes of all formats by their names, which Spark's workers get by value.

    Spark knows one class for each name: that of `twophase-kafka` reads and writes.

    Args:
        environment: of the session.
    """
    read = {
        kind.name(): kind
        for _, source in installed_sources()
        if (kind := source.data_source()) is not None
    }
    written = {
        f"{PREFIX}{name}": _data_source(name, environment, read.get(f"{PREFIX}{name}"))
        for name in sink_names()
    }
    return {**read, **written}


def _data_source(
    sink_type: str, environment: Environment, read: type[DataSource] | None
) -> type[SinkDataSource]:
    return type(
        f"{sink_type.title()}DataSource",
        (SinkDataSource, *([] if read is None else [read])),
        {"sink_type": sink_type, "environment": environment},
    )

"""Checks the session, the table's location, and whether it can be written, before the first row."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from twophase.errors import ConfigError, PreflightError
from twophase.sinks.common.java import active_session
from twophase.sinks.delta.ddl import by_name, create_at_path, create_table, first_line, is_vacant
from twophase.sinks.delta.features import refusal_of_column, refusals
from twophase.sinks.delta.jvm import SPARK_CONF, Jvm
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.delta.rows import check_rows
from twophase.spark_versions import DELTA

_OF_THE_SESSION = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_STATISTICS = "spark.databricks.delta.stats.collect"
_SINGLE_DRIVER = ("S3SingleDriverLogStore",)
_DAY_MS = 24 * 3600 * 1000
_RETENTION_DAYS = 30


def find_session() -> Jvm:
    """Return the Spark session of the job, with Delta set up.

    Raises:
        PreflightError: there is none, or Delta is not set up in it, or it is of another Spark.
    """
    DELTA.require()
    session = active_session("Delta")
    jvm = Jvm(session)
    missing = [
        f"{key}={SPARK_CONF[key]}"
        for key in _OF_THE_SESSION
        if SPARK_CONF[key] not in (session.conf.get(key, "") or "")
    ]
    if missing:
        raise PreflightError(
            f"Delta is not set up in this Spark session: {', '.join(missing)} is missing.",
            remedy="start Spark with the settings of DeltaSink.spark_conf().",
        )
    if session.conf.get(_STATISTICS, "true") != "true":
        raise PreflightError(
            f"{_STATISTICS} is off: the row counts of data files come from their statistics.",
            remedy="turn it on.",
        )
    jvm.check_delta()
    return jvm


def open_table(jvm: Jvm, options: DeltaOptions, schema: pa.Schema | None) -> Log:
    """Find the table, and check that it can be written; create it only for rows to come.

    Args:
        jvm: the JVM of Spark.
        options: the sink's.
        schema: the columns of the rows; None if none will follow.

    Raises:
        ConfigError: an option or the rows do not fit it.
        PreflightError: it cannot be written safely.
    """
    rows = None if schema is None else from_arrow_schema(schema)
    folder = _folder(jvm, options, rows)
    _check_root(jvm, options, folder)
    log = Log(jvm, folder)
    snapshot = log.snapshot()
    if snapshot.version < 0:
        _check_vacant(jvm, folder)
        if rows is None or not options.create:
            raise ConfigError(
                f"There is no Delta table in {folder}.", remedy="create it, or set `create=true`."
            )
        _check_store(log, options)
        create_at_path(jvm, folder, rows, options.partition_by)
        snapshot = log.snapshot()
    _check_table(log, snapshot, options, rows)
    return log


def _folder(jvm: Jvm, options: DeltaOptions, rows: StructType | None) -> str:
    """Return where the table is or will be."""
    if options.path is not None:
        return _qualified(jvm, options.path)
    assert options.table is not None  # noqa: S101 the options ensure it
    try:
        name = by_name(jvm, options.table)
        if rows is not None and options.create and not jvm.session.catalog.tableExists(name):
            create_table(jvm, name, rows, options.partition_by)
        detail = jvm.session.sql(f"DESCRIBE DETAIL {name}").select("format", "location").first()
    except PySparkException as error:
        raise ConfigError(
            f"Table {options.table!r} does not exist, or is not a Delta table: {first_line(error)}",
            remedy="create it, or set `create=true`.",
        ) from error
    if detail is None or detail["format"] != "delta":
        raise ConfigError(
            f"Table {options.table!r} is not a Delta table but {detail and detail['format']!r}."
        )
    return _qualified(jvm, detail["location"])


def _qualified(jvm: Jvm, folder: str) -> str:
    try:
        path = jvm.hadoop("Path")(folder)
        return str(path.getFileSystem(_configuration(jvm)).makeQualified(path).toString())
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigError(f"The path {folder!r} cannot be used: {first_line(error)}") from error


def _configuration(jvm: Jvm) -> Any:
    return jvm.java_session.sessionState().newHadoopConf()


def _check_root(jvm: Jvm, options: DeltaOptions, folder: str) -> None:
    """Check that the folder is inside `root`, even after links are followed."""
    if options.root is None:
        return
    root, inside = _resolved(jvm, _qualified(jvm, options.root)), _resolved(jvm, folder)
    if inside != root and not inside.startswith(f"{root.rstrip('/')}/"):
        raise ConfigError(
            f"The table's folder {inside} is not inside the option 'root', {root}. "
            "Nothing was written."
        )


def _resolved(jvm: Jvm, folder: str) -> str:
    uri = jvm.hadoop("Path")(folder).toUri()
    return f"file:{os.path.realpath(uri.getPath())}" if uri.getScheme() == "file" else folder


def _check_vacant(jvm: Jvm, folder: str) -> None:
    """Check that a table may be created here."""
    path = jvm.hadoop("Path")(folder)
    files = path.getFileSystem(_configuration(jvm))
    if not is_vacant(jvm, files, path):
        raise ConfigError(f"{folder} is not empty, and is not a Delta table. Nothing was written.")


def _check_table(
    log: Log, snapshot: Snapshot, options: DeltaOptions, rows: StructType | None
) -> None:
    layout = snapshot.layout
    _check_exactly_once(log, snapshot)
    _check_store(log, options)
    if options.partition_by and options.partition_by != layout.partition_columns:
        raise ConfigError(
            f"The table in {log.storage.root} is partitioned by {list(layout.partition_columns)}, "
            f"the option 'partition_by' says {list(options.partition_by)}."
        )
    if rows is not None:
        _check_columns(log, snapshot, options, rows)
    _check_rights(log)


def _check_columns(log: Log, snapshot: Snapshot, options: DeltaOptions, rows: StructType) -> None:
    found = check_rows(rows, StructType.fromJson(json.loads(snapshot.schema)), snapshot.layout)
    problems = list(found.problems)
    for column in found.missing:
        if not options.merge_schema:
            problems.append(f"column '{column}' is not in the table")
        elif why := refusal_of_column(column.field.dataType):
            problems.append(f"column '{column}': {why}")
    if problems:
        is_merged = options.merge_schema or not found.missing
        way_on = "" if is_merged else "; `merge_schema=true` adds columns that the table lacks"
        raise ConfigError(
            f"The rows do not fit the table in {log.storage.root}: {'; '.join(problems)}. "
            "Nothing was written.",
            remedy=f"change the rows or the table{way_on}.",
        )


def _check_exactly_once(log: Log, snapshot: Snapshot) -> None:
    problems = refusals(snapshot.layout)
    retention_ms = snapshot.retention_ms
    if retention_ms is not None and retention_ms < _RETENTION_DAYS * _DAY_MS:
        problems.append(
            f"delta.setTransactionRetentionDuration is {retention_ms / _DAY_MS:g} days: "
            "the table could forget during an outage which checkpoints it has; set at least "
            f"{_RETENTION_DAYS} days, or unset it"
        )
    if problems:
        raise PreflightError(
            f"The table in {log.storage.root} cannot be written exactly once: "
            f"{'; '.join(problems)}."
        )


def _check_store(log: Log, options: DeltaOptions) -> None:
    if log.store.rpartition(".")[2] in _SINGLE_DRIVER and not options.allow_single_driver_log_store:
        raise PreflightError(
            f"The table in {log.storage.root} cannot be written exactly once: {log.store} "
            "separates commits within one process only, so two drivers could overwrite each "
            "other's commits.",
            remedy="configure S3DynamoDBLogStore, or set `allow_single_driver_log_store=true` if "
            "nothing else ever writes.",
        )


def _check_rights(log: Log) -> None:
    """Check that the folder can be written, as far as its file system tells without a write."""
    refused = log.storage.refuses_writing()
    if refused:
        raise PreflightError(
            f"The folder {log.storage.root} cannot be written: {refused}.",
            remedy="give the driver's account write permission.",
        )

"""Creates a table or adds columns. The only place where names become part of SQL.

A creation names what Spark refuses, and leaves nothing behind after an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from twophase.errors import ConfigError, PreflightError
from twophase.sinks.delta.features import refusal_of_column
from twophase.sinks.delta.jvm import Jvm, messages
from twophase.sinks.delta.log import Log
from twophase.sinks.delta.storage import refusal_to_write

_LOG_FOLDER = "_delta_log"
_STAGED_COMMITS = "_staged_commits"


def create_at_path(jvm: Jvm, folder: str, rows: StructType, partition_by: Sequence[str]) -> None:
    """Create a table in a folder that is empty or does not exist.

    Args:
        jvm: the JVM of Spark.
        folder: qualified.
        rows: the columns.
        partition_by: the partition columns.

    Raises:
        ConfigError: a column is not allowed, or the folder is inside another table.
        PreflightError: the folder cannot be written.
    """
    path = jvm.hadoop("Path")(folder)
    files = path.getFileSystem(jvm.java_session.sessionState().newHadoopConf())
    missing = _missing(files, path)
    _check_parents(jvm, files, path)
    _check_rights(jvm, files, missing[-1].getParent() if missing else path)
    _tidy(jvm, files, path, missing)  # to Spark, a log without a commit is an existing table
    try:
        create_table(jvm, by_path(folder), rows, partition_by)
    except PreflightError:
        _tidy(jvm, files, path, missing)
        raise


def create_table(jvm: Jvm, table: str, rows: StructType, partition_by: Sequence[str]) -> None:
    """Create a table, unless it exists.

    Args:
        jvm: the JVM of Spark.
        table: its name, quoted.
        rows: the columns.
        partition_by: the partition columns.

    Raises:
        ConfigError: Spark does not accept its name or a column.
        PreflightError: it cannot be written.
    """
    _check_columns(table, rows, partition_by)
    try:
        _create_table(jvm, table, rows, partition_by)
    except AnalysisException as error:
        raise ConfigError(
            f"Cannot create table {table}: {first_line(error)} Nothing was written.",
            remedy="change the rows, for example with select and cast, or the sink's options.",
        ) from error
    except (Py4JJavaError, PySparkException) as error:
        raise PreflightError(
            f"Could not create table {table}: {_cause(error)}.",
            remedy="check that there is space, and that the driver's account may write there.",
        ) from error


def _check_columns(table: str, rows: StructType, partition_by: Sequence[str]) -> None:
    # Spark would find a column in another case, and the table's partition columns would
    # differ from the option.
    unknown = [name for name in partition_by if name not in rows.names]
    if unknown:
        raise ConfigError(
            f"Cannot create table {table}: the partition columns {unknown} are not in the rows. "
            "Nothing was written.",
            remedy="correct partition_by, or the rows.",
        )
    refused = [
        f"column {field.name!r}: {why}"
        for field in rows.fields
        if (why := refusal_of_column(field.dataType))
    ]
    if refused:
        raise ConfigError(
            f"Cannot create table {table}: {'; '.join(refused)}. Nothing was written.",
            remedy="change the rows, for example with select and cast.",
        )


def first_line(error: Exception) -> str:
    """Return the first line of a Spark error, 300 characters at most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _missing(files: Any, path: Any) -> list[Any]:
    """Return a folder and those above it that do not exist."""
    missing = []
    while path.getParent() is not None and not files.exists(path):
        missing.append(path)
        path = path.getParent()
    return missing


def _check_parents(jvm: Jvm, files: Any, path: Any) -> None:
    parent = path.getParent()
    while parent is not None:
        if files.exists(jvm.hadoop("Path")(parent, _LOG_FOLDER)):
            raise ConfigError(
                f"{path.toString()} is inside another Delta table, {parent.toString()}. "
                "Nothing was written."
            )
        parent = parent.getParent()


def _check_rights(jvm: Jvm, files: Any, folder: Any) -> None:
    """Check that an existing folder can be written, as far as that shows without a write."""
    if refused := refusal_to_write(jvm, files, folder):
        raise PreflightError(
            f"The folder {folder.toString()} cannot be written: {refused}. Nothing was written.",
            remedy="give the driver's account write permission.",
        )


def _tidy(jvm: Jvm, files: Any, path: Any, missing: Sequence[Any]) -> None:
    """Remove the rest of a failed creation. Non-empty folders stay: another may be creating it."""
    log = jvm.hadoop("Path")(path, _LOG_FOLDER)
    with suppress(Py4JJavaError):
        for name in _names(files, log):
            if _is_unwritten(name):
                files.delete(jvm.hadoop("Path")(log, name), False)
    for folder in (jvm.hadoop("Path")(log, _STAGED_COMMITS), log, *missing):
        with suppress(Py4JJavaError):
            files.delete(folder, False)


def is_vacant(jvm: Jvm, files: Any, path: Any) -> bool:
    """Return whether a folder has nothing but the leftovers of a creation that died.

    Args:
        jvm: the JVM of Spark.
        files: the file system of the folder.
        path: the folder, in which there is no table.
    """
    names = _names(files, path) if files.exists(path) else []
    if names == [_LOG_FOLDER]:
        log = jvm.hadoop("Path")(path, _LOG_FOLDER)
        names = [
            name
            for name in _names(files, log)
            if name != _STAGED_COMMITS and not _is_unwritten(name)
        ]
    return not names


def _is_unwritten(name: str) -> bool:
    """Return whether a file of a table's log is a commit that Delta had begun to write."""
    return name.startswith(".") and name.endswith(".tmp")


def _names(files: Any, folder: Any) -> list[str]:
    return [str(status.getPath().getName()) for status in files.listStatus(folder)]


def _cause(error: Exception) -> str:
    """Return the message of the original error."""
    texts = [first_line(error), *filter(None, messages(error))]
    return texts[-1].splitlines()[0][:300]


def quoted(name: str) -> str:
    """Return `name` as a quoted identifier."""
    return f"`{name.replace('`', '``')}`"


def by_path(folder: str) -> str:
    """Return the SQL name of the table in a folder."""
    return f"delta.{quoted(folder)}"


def by_name(jvm: Jvm, table: str) -> str:
    """Return a table's name with each part quoted. Raises Spark's own error if it is not a name."""
    parts = jvm.java_session.sessionState().sqlParser().parseMultipartIdentifier(table)
    return ".".join(quoted(parts.apply(number)) for number in range(parts.size()))


def _create_table(jvm: Jvm, table: str, rows: StructType, partition_by: Sequence[str]) -> None:
    """Create a table for rows, with every column nullable, unless it exists. `table` is quoted."""
    columns = StructType([_nullable(field) for field in rows.fields])
    partitioned = (
        f" PARTITIONED BY ({', '.join(map(quoted, partition_by))})" if partition_by else ""
    )
    jvm.session.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({columns.toDDL()}) USING delta{partitioned}"
    )


def _nullable(field: StructField) -> StructField:
    """Return a column, nullable at every depth: Delta has no NOT NULL in arrays and maps."""

    def inside(kind: DataType) -> DataType:
        match kind:
            case StructType():
                return StructType([_nullable(one) for one in kind.fields])
            case ArrayType():
                return ArrayType(inside(kind.elementType))
            case MapType():
                return MapType(inside(kind.keyType), inside(kind.valueType))
            case _:
                return kind

    return StructField(field.name, inside(field.dataType))


@dataclass(frozen=True)
class NewColumn:
    """A column that a table lacks, or a field of its structs.

    Attributes:
        parent: where it belongs: names of columns and fields, with `element`, `key` and `value`
            for what is inside arrays and maps; empty for a column.
        field: its name and type.
    """

    parent: tuple[str, ...]
    field: StructField

    def __str__(self) -> str:
        return ".".join((*self.parent, self.field.name))

    def sql(self) -> str:
        """Return its definition, nullable."""
        definition = StructType([_nullable(self.field)]).toDDL()
        return ".".join((*map(quoted, self.parent), definition))


def add_columns(log: Log, columns: Sequence[NewColumn]) -> None:
    """Add nullable columns to a table, in a separate commit.

    Raises:
        TimeoutError: another driver has held the table's lock too long.
        JvmLockedError: this JVM itself holds it for as long as it lives.
    """
    added = ", ".join(column.sql() for column in columns)
    with log.storage.commit_lock():
        log.jvm.session.sql(f"ALTER TABLE {by_path(log.storage.root)} ADD COLUMNS ({added})")

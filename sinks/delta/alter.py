"""Creates a table or adds columns. The only place where names become part of SQL."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructField, StructType

from twophase.sinks.delta.jvm import Jvm
from twophase.sinks.delta.log import Log


def quoted(name: str) -> str:
    """Return `name` as a quoted identifier."""
    return f"`{name.replace('`', '``')}`"


def by_path(folder: str) -> str:
    """Return the SQL name of the table in a folder."""
    return f"delta.{quoted(folder)}"


def by_name(jvm: Jvm, table: str) -> str:
    """Return a table's name with each part quoted. Raises Spark's own error if it is no name."""
    parts = jvm.java_session.sessionState().sqlParser().parseMultipartIdentifier(table)
    return ".".join(quoted(parts.apply(number)) for number in range(parts.size()))


def create_table(jvm: Jvm, table: str, rows: StructType, partition_by: Sequence[str]) -> None:
    """Create a table for rows, with every column nullable, unless it exists. `table` is quoted."""
    columns = StructType([StructField(field.name, field.dataType) for field in rows.fields])
    partitioned = (
        f" PARTITIONED BY ({', '.join(map(quoted, partition_by))})" if partition_by else ""
    )
    jvm.session.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({columns.toDDL()}) USING delta{partitioned}"
    )


def add_columns(log: Log, columns: Sequence[StructField]) -> None:
    """Add nullable columns to a table, in a separate commit.

    Raises:
        TimeoutError: another driver has held the table's lock too long.
        JvmLockedError: this JVM itself holds it for as long as it lives.
    """
    added = StructType([StructField(field.name, field.dataType) for field in columns])
    with log.storage.commit_lock():
        log.jvm.session.sql(
            f"ALTER TABLE {by_path(log.storage.root)} ADD COLUMNS ({added.toDDL()})"
        )

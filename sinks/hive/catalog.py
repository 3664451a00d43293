"""The metastore, embedded or a service, through the session's Spark catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from twophase.errors import ConfigError, PreflightError, TargetUnreachableError
from twophase.internals.redaction import shown
from twophase.sinks.common.java import PYTHON_UTILS, active_session, brief, java_class
from twophase.sinks.common.partition_names import NULL_NAME, Values, folders, specified
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.hive.storage_descriptor import (
    StorageDescriptor,
    check_columns,
    check_storage,
    is_of_hive,
    serde_format,
    storage_problem,
    table_format,
)
from twophase.spark_versions import to_arrow_schema

_PATH = "org.apache.hadoop.fs.Path"
_PARTITION = "org.apache.spark.sql.catalyst.catalog.CatalogTablePartition"
_CONVERTERS = "scala.jdk.javaapi.CollectionConverters"
_OPTION = "scala.Option"
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_TAKEN = "LOCATION_ALREADY_EXISTS"
_OF_THE_METASTORE = (
    "org.apache.hadoop.",
    "org.apache.thrift.",
    "java.net.",
    "java.io.",
    "java.sql.",
)


@dataclass(frozen=True)
class HiveTable:
    """A table as the metastore describes it.

    Attributes:
        name: with its database.
        location: its folder, according to the metastore.
        format: the format of its files.
        columns: its columns without the partition columns, in order.
        partition_columns: from the outermost folder to the innermost.
        partition_types: the type of each partition column.
        serde: it is a table of Hive's own (STORED AS), whose columns are those of Hive.
        created: its creation time, in milliseconds since 1970; empty if it is only planned.
    """

    name: str
    location: str
    format: Format
    columns: pa.Schema
    partition_columns: tuple[str, ...]
    partition_types: tuple[pa.DataType, ...]
    serde: bool = False
    created: str = ""


class Catalog:
    """Spark's catalog; on the driver only.

    Args:
        session: the session that it belongs to.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        # py4j creates attributes dynamically; there is nothing to check types against.
        self._java: Any = session._jsparkSession

    @classmethod
    def find(cls) -> Catalog:
        """Return the catalog of this thread's active session, or else of the first one.

        Raises:
            PreflightError: there is no session, or it has no metastore.
        """
        session = active_session("Hive")
        if session.conf.get("spark.sql.catalogImplementation") != "hive":
            raise PreflightError(
                "The Spark session has no Hive metastore.",
                remedy="build the session with enableHiveSupport().",
            )
        return cls(session)

    def table(self, name: str) -> HiveTable | None:
        """Look a table up; return None if it does not exist.

        Raises:
            ConfigError: files cannot be added to it, or this is no name of a table.
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"look up table {name}"):
            identifier, catalog = self._identifier(name), self._java.sessionState().catalog()
            if not catalog.tableExists(identifier):
                return None
            found = catalog.getTableMetadata(identifier)
            self._check(name, found)
            partition_columns = tuple(self._items(found.partitionColumnNames()))
            fields = _fields(found)
            return HiveTable(
                name=found.identifier().unquotedString().removeprefix("spark_catalog."),
                location=self._path(found.location()),
                format=table_format(found)
                or Format.PARQUET,  # `_check` has refused what is neither
                columns=_arrow([field for field in fields if field.name not in partition_columns]),
                partition_columns=partition_columns,
                partition_types=tuple(
                    _arrow([field for field in fields if field.name in partition_columns]).types
                ),
                serde=is_of_hive(found),
                created=str(found.createTime()),
            )

    def plan(
        self, name: str, rows: pa.Schema, kind: Format, partition_by: Sequence[str]
    ) -> HiveTable:
        """Return the table that `create` would create. Creates nothing.

        Args:
            name: of the table.
            rows: all columns, including the partition columns.
            kind: the format of its files.
            partition_by: its partition columns.

        Raises:
            ConfigError: Spark does not accept this name, or its database does not exist.
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"create table {name}"):
            location = self._path(
                self._java.sessionState().catalog().defaultTablePath(self._identifier(name))
            )
        return HiveTable(
            name=name,
            location=location,
            format=kind,
            columns=pa.schema([field for field in rows if field.name not in partition_by]),
            partition_columns=tuple(partition_by),
            partition_types=tuple(rows.field(column).type for column in partition_by),
        )

    def create(self, planned: HiveTable) -> None:
        """Create a table, unless it exists.

        Raises:
            ConfigError: Spark does not accept this name or these columns, or its
                folder is not empty.
            TargetUnreachableError: the metastore does not answer.
        """
        partitions = zip(planned.partition_columns, planned.partition_types, strict=True)
        fields = pa.schema([*planned.columns, *(pa.field(name, kind) for name, kind in partitions)])
        columns = ", ".join(
            f"{_quoted(field.name)} {_type_sql(field.dataType)}"
            for field in from_arrow_schema(fields)
        )
        by = ", ".join(map(_quoted, planned.partition_columns))
        with self._answering(f"create table {planned.name}"):
            parser = self._java.sessionState().sqlParser()
            quoted = ".".join(
                _quoted(part) for part in self._items(parser.parseMultipartIdentifier(planned.name))
            )
            statement = (
                f"CREATE TABLE IF NOT EXISTS {quoted} ({columns}) USING {planned.format.value}"
            )
            self._session.sql(f"{statement} PARTITIONED BY ({by})" if by else statement)

    def check_table(self, table: HiveTable, root: Path) -> None:
        """Check that readers of a table look where its files are.

        Args:
            table: as it was when it was looked up.
            root: the folder with its files.

        Raises:
            ConfigError: the table is gone.
            StopJobError: it is somewhere else now, of another format, or lacks a column.
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"look up table {table.name}"):
            self._check_storage(table, root, self._metadata(table))

    def has_partitions(self, table: HiveTable) -> bool:
        """Return whether the metastore has a partition of a table.

        Raises:
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"list the partitions of table {table.name}"):
            catalog, name = self._java.sessionState().catalog(), self._identifier(table.name)
            return bool(catalog.listPartitionNames(name, self._option()).nonEmpty())

    def add_partitions(
        self,
        table: HiveTable,
        root: Path,
        partitions: Sequence[Values],
        check: Callable[[str, bool], None],
    ) -> None:
        """Add the missing partitions, with their folders, and check that the others are in theirs.

        Nothing is cached between calls: a partition may be moved while the job runs.

        Args:
            table: as it was when it was looked up.
            root: the folder with its files.
            partitions: the partitions.
            check: called with the table's creation time and whether it has partitions; if it
                raises, nothing is added.

        Raises:
            ConfigError: the table is gone.
            StopJobError: it or a partition is somewhere else, or of another format, or it lacks a
                column; no partition was added.
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"add partitions to table {table.name}"):
            identifier, catalog = self._identifier(table.name), self._java.sessionState().catalog()
            found = self._metadata(table)
            self._check_storage(table, root, found)
            there = {*self._items(catalog.listPartitionNames(identifier, self._option()))}
            check(str(found.createTime()), bool(there))
            names = table.partition_columns
            paths = {values: "/".join(folders(names, values)) for values in partitions}
            listed = [values for values, path in paths.items() if path in there]
            known = self._descriptors(table, found, listed)
            descriptors = {paths[values]: one for values, one in known.items()}
            expected = {
                path: StorageDescriptor(str(root / path), table.format) for path in paths.values()
            }
            check_storage(table.name, descriptors, expected)
            storage = found.storage()
            new = [one for one in paths.items() if one[0] not in known]
            parts = [self._partition(table, values, path, storage) for values, path in new]
            if parts:
                catalog.createPartitions(identifier, self._class(PYTHON_UTILS).toSeq(parts), True)

    def storage_problem(self, table: HiveTable, root: Path) -> str:
        """Return which of the table and its partitions are elsewhere; empty if none is.

        Args:
            table: as it was when it was looked up.
            root: the folder with its files.

        Raises:
            TargetUnreachableError: the metastore does not answer.
        """
        with self._answering(f"list the partitions of table {table.name}"):
            found = self._metadata(table)
            known = {"": StorageDescriptor(self._path(found.location()), table_format(found))}
            expected = {"": StorageDescriptor(str(root), table.format)}
            name, columns = self._identifier(table.name), table.partition_columns
            catalog = self._java.sessionState().catalog()
            # Hive refuses to list the partitions of a table that has no partition columns.
            listed = self._items(catalog.listPartitions(name, self._option())) if columns else []
            for partition in listed:
                spec = dict(self._class(_CONVERTERS).asJava(partition.spec()))
                path = "/".join(folders(columns, specified(columns, spec)))
                known[path] = self._descriptor(partition.storage(), table, found)
                expected[path] = StorageDescriptor(str(root / path), table.format)
            return storage_problem(known, expected)

    def zone(self) -> str:
        """Return the zone of the JVM, which it reads ORC's timestamps in; empty if that is UTC."""
        zones = self._class("java.util.TimeZone")
        zone = zones.getDefault()
        return "" if zone.hasSameRules(zones.getTimeZone("UTC")) else str(zone.getID())

    def refresh(self, table: HiveTable) -> None:
        """Drop this session's cached list of the table's files."""
        with self._answering(f"refresh table {table.name}"):
            self._java.sessionState().catalog().refreshTable(self._identifier(table.name))

    def _metadata(self, table: HiveTable) -> Any:
        return self._java.sessionState().catalog().getTableMetadata(self._identifier(table.name))

    def _check_storage(self, table: HiveTable, root: Path, found: Any) -> None:
        known = StorageDescriptor(self._path(found.location()), table_format(found))
        check_storage(table.name, {"": known}, {"": StorageDescriptor(str(root), table.format)})
        check_columns(table.name, _arrow(_fields(found)), table.columns)

    def _descriptors(
        self, table: HiveTable, found: Any, partitions: Sequence[Values]
    ) -> dict[Values, StorageDescriptor]:
        """Return the storage of those partitions that exist."""
        if not partitions:
            return {}
        # Spark's metastore client: the catalog would look up database and table again
        # for each partition.
        client = self._java.sessionState().catalog().externalCatalog().unwrapped().client()
        raw = client.getRawHiveTable(found.database(), found.identifier().table())
        found_storage = {}
        for values in partitions:
            spec = self._spec(map(str.lower, table.partition_columns), values)
            if (partition := client.getPartitionOption(raw, spec)).isDefined():
                found_storage[values] = self._descriptor(partition.get().storage(), table, found)
        return found_storage

    def _descriptor(self, storage: Any, table: HiveTable, found: Any) -> StorageDescriptor:
        """Return the storage of a partition. Its serde counts only in a table of Hive's own."""
        location, serde = storage.locationUri(), storage.serde()
        path = self._path(location.get()) if location.isDefined() else ""
        if is_of_hive(found):
            return StorageDescriptor(path, serde_format(serde.get() if serde.isDefined() else ""))
        return StorageDescriptor(path, table.format)

    def _spec(self, columns: Iterable[str], values: Values) -> Any:
        named = zip(columns, values, strict=True)
        return self._class(PYTHON_UTILS).toScalaMap(
            {name: NULL_NAME if text is None else text for name, text in named}
        )

    def _partition(self, table: HiveTable, values: Values, path: str, storage: Any) -> Any:
        spec = self._spec(table.partition_columns, values)
        location = self._class(_PATH)(f"{table.location}/{path}").toUri()
        # Of its other fields some versions of Spark have one more.
        rest = [storage.productElement(number) for number in range(1, storage.productArity())]
        kept = storage.copy(self._option(location), *rest)
        nothing = self._class(PYTHON_UTILS).toScalaMap({})
        return self._class(_PARTITION)(spec, kept, nothing, 0, -1, self._option())

    def _option(self, value: Any = None) -> Any:
        return self._class(_OPTION).apply(value)

    def _class(self, name: str) -> Any:
        return java_class(self._session, name)

    def _path(self, location: Any) -> str:
        """Return the text of a URI, decoded: a space is not `%20`."""
        return str(self._class(_PATH)(location).toString())

    def _items(self, sequence: Any) -> list[Any]:
        return list(self._class(_CONVERTERS).asJava(sequence))

    def _identifier(self, name: str) -> Any:
        return self._java.sessionState().sqlParser().parseTableIdentifier(name)

    def _check(self, name: str, found: Any) -> None:
        """Check that the table is a folder of plain files, which alone takes files by a rename."""
        problems = []
        if (kind := found.tableType().name()) not in ("MANAGED", "EXTERNAL"):
            problems.append(f"it is a {kind}")
        if found.bucketSpec().isDefined():
            problems.append("it is bucketed")
        if (
            property_ := found.properties().get("transactional")
        ).isDefined() and property_.get().lower() == "true":
            problems.append("it is transactional")
        if not found.tracksPartitionsInCatalog() and not found.partitionColumnNames().isEmpty():
            problems.append("its partitions are not in the metastore")
        fields = StructType.fromJson(json.loads(found.schema().json())).fields
        problems += [
            f"column {field.name!r} is a CHAR or VARCHAR"
            for field in fields
            if _LENGTH in field.metadata
        ]
        problems += [f"column {field.name!r} is NOT NULL" for field in fields if not field.nullable]
        if table_format(found) is None:
            problems.append("its files are neither parquet nor orc")
        if problems:
            raise ConfigError(
                f"Files cannot be added to table {name!r}: {'; '.join(problems)}.",
                remedy="choose another table.",
            )

    @contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Py4JError, PySparkException) as error:
            # it may name partitions, and so values of rows: these are redacted
            if is_refusal(error):
                raise ConfigError(
                    f"Spark could not {what}: {shown(brief(error))}.",
                    remedy="correct the sink's options, the rows or the table.",
                ) from error
            raise TargetUnreachableError(
                f"The metastore could not {what}: {shown(brief(error))}.",
                remedy="check that the metastore runs; decided checkpoints are "
                "committed once it is back.",
            ) from error


def _fields(found: Any) -> Sequence[StructField]:
    """Return the columns of a table, as Spark's catalog describes it, with those of partitions."""
    return StructType.fromJson(json.loads(found.schema().json())).fields


def _arrow(fields: Sequence[StructField]) -> pa.Schema:
    return to_arrow_schema(StructType(list(fields)), timezone="UTC")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type_sql(kind: DataType) -> str:
    """Return a type as SQL, whatever the names of the fields in it; all may be null."""
    match kind:
        case StructType():
            inside = ", ".join(f"{_quoted(one.name)}: {_type_sql(one.dataType)}" for one in kind)
            return f"struct<{inside}>"
        case ArrayType():
            return f"array<{_type_sql(kind.elementType)}>"
        case MapType():
            return f"map<{_type_sql(kind.keyType)}, {_type_sql(kind.valueType)}>"
        case _:
            return kind.simpleString()


def is_refusal(error: Exception) -> bool:
    """Return whether a statement was refused for its content, and would be refused again.

    Spark wraps any error of its metastore client in an `AnalysisException`, which it also raises
    for a wrong name: only the causes tell them apart.

    Args:
        error: what Spark or py4j raised.

    Returns:
        False if the metastore has failed, or the JVM no longer tells.
    """
    if not isinstance(error, PySparkException):
        return False
    try:
        refused = isinstance(error, AnalysisException) or error.getCondition() == _TAKEN
        return refused and not any(name.startswith(_OF_THE_METASTORE) for name in _classes(error))
    except Py4JError:
        return False


def _classes(error: PySparkException) -> Iterator[str]:
    """Return the Java classes of an exception and of its causes."""
    # pyspark keeps the Java exception there, and offers no other way to its causes.
    java: Any = getattr(error, "_origin", None)
    while java is not None:
        yield str(java.getClass().getName())
        java = java.getCause()

"""The table in its catalog: a database that has the location of its newest metadata.

A commit swaps that location: it takes effect only if the catalog still has the one that the commit
was checked against. So what `commit` requires and what it writes are one atomic step (HD9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from pydantic import Field
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from pyiceberg.transforms import parse_transform
from sqlalchemy import inspect, make_url
from sqlalchemy.exc import SQLAlchemyError

from twophase.errors import (
    ConfigError,
    PreflightError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.iceberg.options import IcebergOptions, partition_field
from twophase.sinks.iceberg.synced_io import NAME

_FIRST_PARTITION_ID = 1000
_TABLES = "iceberg_tables"
_ENDINGS = {"truncate": "trunc"}
"""Of the names that Spark gives to partition fields, where they are not the transform."""
_DRIVERS = {"mysql": "mysql+pymysql"}


class AssertProperties(ValidatableTableRequirement):
    """Properties of the table are what they were read as. Only a catalog whose commits are checked
    in this process knows it.
    """

    type: Literal["twophase-assert-properties"] = Field(default="twophase-assert-properties")
    expected: dict[str, str | None]

    def validate(  # type: ignore[override]  # as in pyiceberg
        self, base_metadata: TableMetadata | None
    ) -> None:
        """See `ValidatableTableRequirement.validate`."""
        found: Mapping[str, str] = {} if base_metadata is None else base_metadata.properties
        for key, value in self.expected.items():
            if found.get(key) != value:
                raise CommitFailedException(f"The property {key} has changed")


class AssertRef(ValidatableTableRequirement):
    """A name is that of a branch, or of none and of no tag. pyiceberg's own requirement takes a tag
    for a branch, and refuses all names but main while the table has no snapshot. Only a catalog
    whose commits are checked in this process knows this one.
    """

    type: Literal["twophase-assert-ref"] = Field(default="twophase-assert-ref")
    ref: str
    is_branch: bool

    def validate(  # type: ignore[override]  # as in pyiceberg
        self, base_metadata: TableMetadata | None
    ) -> None:
        """See `ValidatableTableRequirement.validate`."""
        found = None if base_metadata is None else base_metadata.refs.get(self.ref)
        kind = None if found is None else found.snapshot_ref_type
        if kind != (SnapshotRefType.BRANCH if self.is_branch else None):
            raise CommitFailedException(f"{self.ref} was created, dropped or made a tag")


class AssertSequence(ValidatableTableRequirement):
    """The number of the next snapshot is what it was read as: nobody has written to another branch,
    which pyiceberg would answer with an error of its own. Only a catalog whose commits are checked
    in this process knows it.
    """

    type: Literal["twophase-assert-sequence"] = Field(default="twophase-assert-sequence")
    following: int

    def validate(  # type: ignore[override]  # as in pyiceberg
        self, base_metadata: TableMetadata | None
    ) -> None:
        """See `ValidatableTableRequirement.validate`."""
        if base_metadata is None or base_metadata.next_sequence_number() != self.following:
            raise CommitFailedException("Another branch has changed")


class Catalog:
    """A catalog, and one name in it.

    Args:
        options: of the sink.
        make: create the catalog's own tables if they are missing.
    """

    def __init__(self, options: IcebergOptions, *, make: bool) -> None:
        self._options = options
        if options.database is not None:
            _check_database(options.database, make=make)
        properties = {"uri": _engine_uri(options), "py-io-impl": NAME, "pool_pre_ping": "true"}
        if options.warehouse is not None:
            properties["warehouse"] = options.warehouse
        with self._reached():
            self._catalog = SqlCatalog(
                options.catalog, init_catalog_tables=str(make).lower(), **properties
            )
            self._has_tables = make or inspect(self._catalog.engine).has_table(_TABLES)

    def find(self) -> Table | None:
        """Return the table; None if there is none, or not even a catalog in the database."""
        if not self._has_tables:
            return None
        try:
            with self._reached():
                return self._catalog.load_table(self._options.table)
        except NoSuchTableError:
            return None

    def load(self) -> Table:
        """Return the table as it is now.

        Raises:
            TargetChangedError: it is gone.
        """
        found = self.find()
        if found is None:
            raise TargetChangedError(
                f"The table {self._options.where} is gone: it was dropped or renamed.",
                remedy="restore the table under its name, then start the job again.",
            )
        return found

    def create(self, schema: Schema) -> Table:
        """Create the table, or return the one that another driver has created meanwhile."""
        options = self._options
        namespace = options.table.rpartition(".")[0]
        with self._reached():
            try:
                self._catalog.create_namespace_if_not_exists(namespace)
                return self._catalog.create_table(
                    options.table,
                    schema,
                    partition_spec=new_spec(options.partition_by, schema),
                    properties={"format-version": str(options.format_version)},
                )
            except (TableAlreadyExistsError, NoSuchNamespaceError):
                return self.load()

    def commit(
        self,
        table: Table,
        requirements: Sequence[ValidatableTableRequirement],
        updates: Sequence[TableUpdate],
    ) -> None:
        """Change the table in one step.

        Raises:
            CommitFailedException: a requirement is not met; nothing was changed.
            OSError: whether it was changed is unknown.
        """
        # pyiceberg's type of a requirement has its own kinds only
        required = cast(tuple[TableRequirement, ...], tuple(requirements))
        try:
            self._catalog.commit_table(table, required, tuple(updates))
        except SQLAlchemyError as error:
            raise OSError(brief(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._catalog.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Translate errors of the database."""
        try:
            yield
        except SQLAlchemyError as error:
            raise TargetUnreachableError(
                f"The catalog {self._options.catalog_uri} cannot be read: {brief(error)}.",
                remedy="check that the database answers, and that the account may read and write "
                "the tables of the catalog.",
            ) from error


def _engine_uri(options: IcebergOptions) -> str:
    """Return the URI as SQLAlchemy takes it, with its driver and the password."""
    scheme, rest = options.catalog_uri.split(":", 1)
    url = make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
    password = options.password()
    return (url.set(password=password) if password else url).render_as_string(False)


def new_spec(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table.

    Raises:
        ConfigError: a field is made of no column, or its transform does not take that.
    """
    made = []
    for number, text in enumerate(fields):
        column, transform = partition_field(text)
        found = next((field for field in schema.fields if field.name == column), None)
        if found is None:
            raise ConfigError(
                f"The partition field {text!r} is made of no column of the rows.",
                remedy="name a column in partition_by, or a transform of one such as day(at).",
            )
        parsed = parse_transform(transform)
        if not parsed.can_transform(found.field_type):
            raise ConfigError(
                f"The partition field {text!r} cannot be made of a column of type "
                f"{found.field_type}.",
                remedy="choose another transform in partition_by.",
            )
        kind = transform.partition("[")[0]
        name = column if kind == "identity" else f"{column}_{_ENDINGS.get(kind, kind)}"
        made.append(
            PartitionField(
                source_id=found.field_id,
                field_id=_FIRST_PARTITION_ID + number,
                transform=parsed,
                name=name,
            )
        )
    return PartitionSpec(*made)


def _check_database(path: Path, *, make: bool) -> None:
    """Check that an SQLite file is there: a connection would create it.

    Raises:
        PreflightError: it is not.
    """
    if not (path.parent if make else path).exists():
        raise PreflightError(
            f"The catalog {path} does not exist.",
            remedy="correct catalog_uri; with `create=true` a job creates the file, and not its "
            "folder.",
        )

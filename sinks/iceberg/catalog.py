"""The table in its catalog, which has the location of its newest metadata.

A commit swaps that location: it takes effect only if the catalog still has the one that the commit
was checked against. So what `commit` requires and what it writes are one atomic step (HD9). Who
checks what a commit requires differs, and so does what it can require:

    here            the catalog is a database or a Hive metastore: pyiceberg reads the metadata,
                    checks the requirements in this process, and swaps by compare-and-swap. A
                    requirement may be of any kind: `AssertProperties`
    by the server   of a REST catalog, which knows Iceberg's own kinds only, and no properties:
                    `twophase.sinks.iceberg.rest_catalog`
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Literal, cast

from pydantic import Field
from pyiceberg.catalog import Catalog as Client
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from pyiceberg.types import NestedField

from twophase.errors import (
    StopJobError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.columns import refused
from twophase.sinks.iceberg.options import CatalogKind, IcebergOptions
from twophase.sinks.iceberg.partitions import check_names, new_spec

TRIES = 10
_UNCLEAR = 3
"""So many changes whose outcome is unknown are tried: each may have waited for its deadline."""
_NAMELESS: tuple[type[Exception], ...] = (
    ValueError,
    NotImplementedError,
    EOFError,
    zlib.error,
    ValidationError,
)
"""What pyiceberg raises of metadata that it cannot read, change or write, beside OSError."""
_MODULES = {
    CatalogKind.SQL: "sql_catalog",
    CatalogKind.HIVE: "hive_catalog",
    CatalogKind.REST: "rest_catalog",
}
"""A client takes long to import: only the one that is used is imported."""


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


class AssertLayout(ValidatableTableRequirement):
    """What files were checked against is as it was read: the table's location and format version,
    and each partition spec is there. Only a catalog whose commits are checked in this process knows
    it.
    """

    type: Literal["twophase-assert-layout"] = Field(default="twophase-assert-layout")
    location: str
    format_version: int
    specs: frozenset[int]

    def validate(  # type: ignore[override]  # as in pyiceberg
        self, base_metadata: TableMetadata | None
    ) -> None:
        """See `ValidatableTableRequirement.validate`."""
        found = base_metadata and (base_metadata.location, base_metadata.format_version)
        if found != (self.location, self.format_version):
            raise CommitFailedException("The location or the format version has changed")
        if base_metadata is None or not self.specs <= base_metadata.specs().keys():
            raise CommitFailedException("A partition spec was removed")


def _nothing() -> None:
    """What a change without files of its own leaves behind."""


@dataclass(frozen=True)
class Change:
    """A change of the table that no catalog was told of.

    Attributes:
        table: as it was loaded.
        requirements: what must not have changed since.
        updates: make the change, in one step.
        discard: deletes the files that were written for it.
        snapshot: the id of the snapshot that it adds; None if it adds none.
    """

    table: Table
    requirements: Sequence[ValidatableTableRequirement]
    updates: Sequence[TableUpdate]
    discard: Callable[[], None] = _nothing
    snapshot: int | None = None


class Catalog(ABC):
    """A catalog, and one name in it. What a commit requires is checked in this process.

    Args:
        options: of the sink.
        client: pyiceberg's.
    """

    failures: ClassVar[tuple[type[Exception], ...]]
    """What the client raises if the catalog does not answer, or refuses."""

    def __init__(self, options: IcebergOptions, client: Client) -> None:
        self._options = options
        self._client = client
        self._is_open = False

    def find(self) -> Table | None:
        """Return the table; None if there is none.

        Raises:
            TargetUnreachableError: its metadata is not there.
            StopJobError: its metadata is damaged, or of a format that pyiceberg does not read.
        """
        try:
            return self._client.load_table(self._options.table)
        except NoSuchIcebergTableError:
            raise
        except NoSuchTableError:
            return None
        except self.failures as error:
            raise self._explain(error) from self._cause(error)
        except OSError as error:
            raise TargetUnreachableError(
                f"The metadata of the table {self._options.where} cannot be read: {brief(error)}.",
                remedy="check that the table's folder is mounted and can be read. If the file is "
                "gone, restore it from a backup, then start the job again.",
            ) from error
        except _NAMELESS as error:
            text = " ".join(str(error).split())[:400]
            raise StopJobError(
                f"The metadata of the table {self._options.where} cannot be read by pyiceberg: it "
                f"is damaged, or of a newer format: {text}.",
                remedy="restore the file that the catalog names, or the table as it was before, "
                "then start the job again.",
            ) from error

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
        spec = new_spec(options.partition_by, schema)
        check_names(spec, schema)
        if problems := self.refusals(schema.fields):
            raise refused(problems)
        try:
            self._client.create_namespace_if_not_exists(namespace, self._of_namespace(namespace))
            return self._client.create_table(
                options.table,
                schema,
                partition_spec=spec,
                properties={"format-version": str(options.format_version)},
            )
        except (TableAlreadyExistsError, NoSuchNamespaceError):
            return self.load()
        except self.failures as error:
            raise self._explain(error) from self._cause(error)

    def refusals(self, columns: Sequence[NestedField]) -> list[str]:  # noqa: ARG002
        """Return why the catalog cannot have new columns; empty if it can."""
        return []

    @abstractmethod
    def check(self, loaded: Table, branch: str) -> None:
        """Check that the catalog refuses a commit whose requirements are not met.

        Raises:
            PreflightError: it does not.
        """

    def opened(self) -> None:
        """From now on the catalog has answered before: what it refuses may pass."""
        self._is_open = True

    @abstractmethod
    def release(self, owner: Owner) -> None:
        """End what dead drivers of a job and sink have left in the catalog."""

    def as_read(
        self, loaded: Table, branch: str, keys: Iterable[str]
    ) -> Sequence[ValidatableTableRequirement]:
        """Return what a commit to a branch requires of all that our own commits change.

        Args:
            loaded: as it was read.
            branch: that it adds a snapshot to.
            keys: the properties that it was planned by.
        """
        was = loaded.metadata
        return [
            AssertProperties(expected={key: was.properties.get(key) for key in keys}),
            AssertSequence(following=was.next_sequence_number()),
            AssertRef(ref=branch, is_branch=branch in was.refs),
            AssertLayout(
                location=was.location,
                format_version=was.format_version,
                specs=frozenset(was.specs()),
            ),
        ]

    def without_ref(self, branch: str) -> ValidatableTableRequirement:
        """Return what requires that there is neither a branch nor a tag of a name."""
        return AssertRef(ref=branch, is_branch=False)

    def new_property(
        self,
        loaded: Table,
        branch: str,  # noqa: ARG002
        key: str,
        value: str,
        summary: Mapping[str, str],  # noqa: ARG002
    ) -> Change:
        """Return a change of one property, which no commit to a branch in flight outlasts.

        Args:
            loaded: as it was read.
            branch: the branch.
            key: the property, which `as_read` was given.
            value: its new value.
            summary: of the snapshot, if one is needed.
        """
        before = AssertProperties(expected={key: loaded.properties.get(key)})
        update = SetPropertiesUpdate(updates={key: value})
        table = AssertTableUUID(uuid=loaded.metadata.table_uuid)
        return Change(loaded, [table, before], [update])

    def commit(self, change: Change) -> None:
        """Change the table in one step.

        Raises:
            CommitFailedException: it was refused. It may have been made before that: the next look
                tells.
            OSError: whether it was changed is unknown.
            TwoPhaseError: it was refused, and whether it was made before that is unknown.
        """
        try:
            self._swap(change)
        except CommitFailedException:
            if not self._has(change):
                change.discard()
            raise

    def _has(self, change: Change) -> bool:
        """Return whether the table has the snapshot of a change that was refused.

        A gateway may send a commit twice, and a metastore repeats one whose reply it has lost
        itself. The refusal of the second must not delete the files of the first.
        """
        if change.snapshot is None:
            return False
        found = self.load().metadata.snapshots
        return change.snapshot in {one.snapshot_id for one in found}

    def _swap(self, change: Change) -> None:
        # pyiceberg's type of a requirement has its own kinds only
        required = cast(tuple[TableRequirement, ...], tuple(change.requirements))
        try:
            made = self._client.commit_table(change.table, required, tuple(change.updates))
        except CommitFailedException:
            raise
        except self.failures + _NAMELESS as error:
            raise self._unclear(error) from self._cause(error)
        private_api.delete_old_metadata(self._client, change.table, made.metadata)

    def commit_with_retries(
        self, plan: Callable[[], Change | None], failed: str, tries: int = TRIES
    ) -> None:
        """Look at the table and commit the change that it lacks, until a look shows that it lacks
        none. So neither a refusal nor a lost reply is an outcome: the next look tells.

        Args:
            plan: looks at the table; returns the change, or None if nothing is to be changed.
            failed: what could not be done, for the error.
            tries: the maximum number of looks.

        Raises:
            TargetUnreachableError: the table has not taken the change.
        """
        failure: Exception | None = None
        tried = unclear = 0
        while tried < tries and unclear < _UNCLEAR:
            tried += 1
            try:
                change = plan()
                if change is None:
                    return
                self.commit(change)
            except (CommitFailedException, OSError) as error:
                failure = error
                unclear += not isinstance(error, CommitFailedException)
        raise TargetUnreachableError(
            f"{failed} in {tried} tries{f': {brief(failure)}' if failure else ''}.",
            remedy="check that the catalog and the table's folder can be written, then start the "
            "job again.",
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _of_namespace(self, namespace: str) -> dict[str, str]:  # noqa: ARG002
        """Return the properties of a new namespace."""
        return {}

    def _unclear(self, error: Exception) -> Exception:
        """Return an error of a commit: OSError, or `CommitFailedException` if nothing was changed.

        Args:
            error: one of the failures.
        """
        return OSError(brief(error))

    def _cause(self, error: Exception) -> Exception | None:
        """Return what a traceback shows below our own error."""
        return error

    @abstractmethod
    def _explain(self, error: Exception) -> TwoPhaseError:
        """Return what one of the failures means to the user, and what to do."""


def open_catalog(options: IcebergOptions, *, make: bool, owner: Owner | None) -> Catalog:
    """Return the catalog.

    Args:
        options: of the sink.
        make: create the catalog's own tables if they are missing and it is in a database.
        owner: job and sink; None if nothing will be committed.

    Raises:
        ConfigError: a secret cannot be read.
        PreflightError: it refuses.
        TargetUnreachableError: it does not answer.
    """
    module = import_module(f"twophase.sinks.iceberg.{_MODULES[options.kind]}")
    match options.kind:
        case CatalogKind.SQL:
            found = module.DatabaseCatalog(options, make=make)
        case CatalogKind.HIVE:
            found = module.MetastoreCatalog(options, owner)
        case CatalogKind.REST:
            found = module.RestServerCatalog(options)
    return cast(Catalog, found)

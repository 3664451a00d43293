"""A catalog in a Hive metastore. What a commit requires is checked in this process.

pyiceberg locks the table in the metastore, reads it, and sets the location of its metadata. A lock
ends by itself (`hive.txn.timeout`, five minutes): a driver that was held up for longer sets the
location over that of a newer commit. So the metastore is asked to compare the location in the step
that sets it (HIVE-26882), and one that does not is refused at the start. The lock stays: Iceberg's
Java writers rely on it, and do not compare while they hold it.

The lock of a driver that was killed would hold up others until it ends. It names job and sink, so
the next fence releases it: what such a driver still sends is refused by the comparison.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import ClassVar, cast
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    EnvironmentContext,
    FieldSchema,
    InvalidOperationException,
    LockRequest,
    MetaException,
    ShowLocksRequest,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import METADATA_LOCATION, PREVIOUS_METADATA_LOCATION
from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchPropertyException,
)
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport
from thrift.transport.TTransport import TTransportException

from twophase.errors import ConfigError, PreflightError, TargetUnreachableError, TwoPhaseError
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.iceberg.catalog import Catalog, Change
from twophase.sinks.iceberg.columns import inner_names
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.iceberg.synced_io import NAME

_NOWHERE = "twophase_probe"
"""A location of metadata, and a partition key, that no table has."""
_REFUSAL = "The table has been modified"
"""How the metastore begins to say that a location is not the expected one."""
_OURS = "twophase"
_DEADLINE_MS = 60_000
_AGENT_LENGTH = 128


class MetastoreCatalog(Catalog):
    """A catalog in a Hive metastore.

    Args:
        options: of the sink.
        owner: whose locks are taken; None if nothing will be committed.
    """

    failures: ClassVar = (TException,)

    def __init__(self, options: IcebergOptions, owner: Owner | None) -> None:
        client = HiveClient(
            options.catalog,
            _agent(owner),
            **{
                "uri": options.catalog_uri,
                "py-io-impl": NAME,
                "hive.hive2-compatible": "true",
                "lock-check-max-wait-time": "1",
                "lock-check-retries": "10",
            },
        )
        super().__init__(options, client)
        self._hive = client
        self._owner = owner
        self._has_lost_a_reply = False

    def find(self) -> Table | None:
        """See `Catalog.find`.

        Raises:
            ConfigError: the table is not one of Iceberg.
        """
        try:
            return super().find()
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            raise ConfigError(
                f"{self._options.where} is a table of Hive, and not of Iceberg: {brief(error)}.",
                remedy="name another table.",
            ) from error

    def refusals(self, columns: Sequence[NestedField]) -> list[str]:
        """See `Catalog.refusals`. The metastore creates a table with any names inside its columns,
        but cannot read their types when it is altered, as each commit does.
        """
        return [
            f"column {column!r}: of the name of a field inside it a metastore reads only letters, "
            f"digits, _, $, dots and blanks, not {name!r}"
            for name, column in inner_names(columns)
            if not all(map(_is_of_type, name))
        ]

    def check(self, loaded: Table, branch: str) -> None:  # noqa: ARG002
        """See `Catalog.check`: asks for a change from a location that the table never had.

        The change is of the partition keys, which no metastore allows. So one that does not compare
        changes nothing either.
        """
        database, name = loaded.name()
        try:
            with self._hive.connections() as connection:
                table = connection.get_table(database, name)
                table.partitionKeys = [*(table.partitionKeys or ()), FieldSchema(_NOWHERE, "int")]
                connection.alter_if(database, name, table, _NOWHERE, {})
        except CommitFailedException:
            return
        except InvalidOperationException:
            pass  # it has looked at the partition keys, and not at the location
        except TException as error:
            raise self._explain(error) from error
        raise PreflightError(
            f"The metastore {self._options.catalog_uri} does not compare the location of a table's "
            "metadata when it sets it (HIVE-26882): of two drivers both would commit.",
            remedy="use Hive 2.3.10, 4.0 or newer, or keep the table in another kind of catalog.",
        )

    def release(self, owner: Owner) -> None:
        """See `Catalog.release`."""
        database, name = self._options.table.lower().rsplit(".", 1)
        try:
            with self._hive.connections() as connection:
                for lock in connection.show_locks(ShowLocksRequest(database, name)).locks or ():
                    if lock.agentInfo == _agent(owner):
                        connection.unlock(UnlockRequest(lock.lockid))
        except TException as error:
            raise self._explain(error) from error

    def _swap(self, change: Change) -> None:
        """See `Catalog`. A commit whose reply was lost has left its lock."""
        if self._has_lost_a_reply and self._owner is not None:
            self.release(self._owner)
            self._has_lost_a_reply = False
        try:
            super()._swap(change)
        except OSError:
            self._has_lost_a_reply = True
            raise

    def _of_namespace(self, namespace: str) -> dict[str, str]:
        """See `Catalog`: where its tables are."""
        warehouse = self._options.warehouse
        return {} if warehouse is None else {"location": f"{warehouse}/{namespace}.db"}

    def _explain(self, error: Exception) -> TwoPhaseError:
        """See `Catalog._explain`."""
        is_down = isinstance(error, TTransportException)
        kind = TargetUnreachableError if is_down or self._is_open else PreflightError
        return kind(
            f"The metastore {self._options.catalog_uri} cannot be used: {brief(error)}.",
            remedy="check that it answers, that it keeps locks (its tables of transactions exist), "
            "and that this account may read and change the table.",
        )


def _is_of_type(letter: str) -> bool:
    """Return whether a metastore reads a character as a part of a name in a type: it knows UTF-16
    units, and Java's letters and digits.
    """
    kind = unicodedata.category(letter)
    return letter in "_.$ " or (letter <= "\uffff" and (kind[0] == "L" or kind == "Nd"))


def _agent(owner: Owner | None) -> str:
    """Return whose a lock is, in as many characters as a metastore keeps."""
    if owner is None:
        return _OURS
    text = f"{_OURS} {owner.job}/{owner.sink}"
    if len(text) <= _AGENT_LENGTH:
        return text
    return f"{_OURS} {hashlib.sha256(text.encode()).hexdigest()}"


class HiveClient(HiveCatalog):
    """A client of a Hive metastore.

    Args:
        name: of the catalog.
        agent: who its locks are of.
        properties: see `HiveCatalog`.
    """

    def __init__(self, name: str, agent: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._agent = agent
        self._client = Connections(properties["uri"])

    def connections(self) -> Connections:
        """Return what opens a connection, as a context manager."""
        return cast(Connections, self._client)

    def _create_lock_request(self, database_name: str, table_name: str) -> LockRequest:
        request = super()._create_lock_request(database_name, table_name)
        request.agentInfo = self._agent
        return request


class Connections(_HiveClient):
    """Opens connections to a metastore, with a deadline for each reply."""

    def _init_thrift_transport(self) -> TTransport:
        parts = urlsplit(self._uri)
        socket = TSocket.TSocket(parts.hostname, parts.port)
        socket.setTimeout(_DEADLINE_MS)
        return TTransport.TBufferedTransport(socket)

    def _client(self) -> ComparingClient:
        return ComparingClient(super()._client()._iprot)


class ComparingClient(Client):
    """A connection whose change of a table is refused unless its metadata is still the one that the
    change was made from.
    """

    def alter_table_with_environment_context(
        self,
        dbname: str,
        tbl_name: str,
        new_tbl: HiveTable,
        environment_context: EnvironmentContext,
    ) -> None:
        """See Hive's `ThriftHiveMetastore`. Others have written proofs among the parameters: they
        may be longer than a metastore takes, and nobody reads them there.

        Raises:
            CommitFailedException: it was refused.
        """
        parameters = new_tbl.parameters
        new_tbl.parameters = {
            key: value for key, value in parameters.items() if not key.startswith(_OURS)
        }
        was = parameters.get(PREVIOUS_METADATA_LOCATION, "")
        self.alter_if(dbname, tbl_name, new_tbl, was, environment_context.properties)

    def alter_if(
        self, database: str, table: str, new: HiveTable, was: str, context: dict[str, str]
    ) -> None:
        """Change a table if the location of its metadata is an expected one.

        Args:
            database: of the table.
            table: its name.
            new: what it becomes.
            was: the expected location.
            context: how it is changed.

        Raises:
            CommitFailedException: it is another location. A metastore that has set the new one,
                and then lost its database's reply, tries again and says the same.
        """
        compared = {
            "expected_parameter_key": METADATA_LOCATION,
            "expected_parameter_value": was,
        }
        try:
            super().alter_table_with_environment_context(
                database, table, new, EnvironmentContext({**context, **compared})
            )
        except MetaException as error:
            if _REFUSAL in (error.message or ""):
                raise CommitFailedException(error.message) from error
            raise

"""A catalog in a database, by pyiceberg's `SqlCatalog`: SQLite, or MySQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import event, inspect, make_url
from sqlalchemy.exc import SQLAlchemyError

from twophase.errors import ConfigError, PreflightError, TargetUnreachableError, TwoPhaseError
from twophase.options.references import authorities_in
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.common.mysql_replies import (
    CONNECTION_LOST,
    NOT_NOW,
    is_tls_refused,
    passes_by_itself,
    remedies,
)
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.iceberg.synced_io import NAME

_TABLES = "iceberg_tables"
_DRIVERS = {"mysql": "mysql+pymysql"}
_DEADLINE_S = 60
"""Of each answer of MySQL (HD5); it gives up a lock that it waits for before that."""
_GRANT_REMEDY = (
    "GRANT the account SELECT, INSERT, UPDATE, DELETE and CREATE on the catalog's schema."
)
_REMEDIES = {**remedies("catalog_uri"), **dict.fromkeys((1044, 1142, 1143), _GRANT_REMEDY)}
_TLS = "give the server a certificate for its name, and name the file of its authority in tls_ca."
_GENERIC = (
    "check that the database answers, and that the account may read and write the tables of the "
    "catalog."
)


class DatabaseCatalog(Catalog):
    """A catalog in a database.

    Args:
        options: of the sink.
        make: create the catalog's own tables if they are missing.
    """

    failures = (SQLAlchemyError,)

    def __init__(self, options: IcebergOptions, *, make: bool) -> None:
        self._options = options
        self._is_open = False
        if options.database is not None:
            _check_database(options.database, make=make)
        if options.tls_ca is not None:
            self._check_authorities()
        properties = {"uri": _engine_uri(options), "py-io-impl": NAME, "pool_pre_ping": "true"}
        if options.warehouse is not None:
            properties["warehouse"] = options.warehouse
        try:
            client = SqlCatalog(
                options.catalog, init_catalog_tables=str(make).lower(), **properties
            )
            if options.database is None:
                event.listen(client.engine, "do_connect", self._before_login)
            self._has_tables = make or inspect(client.engine).has_table(_TABLES)
        except SQLAlchemyError as error:
            raise self._explain(error) from error
        super().__init__(options, client)

    def find(self) -> Table | None:
        """See `Catalog.find`; None too if there is not even a catalog in the database."""
        return super().find() if self._has_tables else None

    def check(self, loaded: Table, branch: str) -> None:
        """See `Catalog.check`: a database compares the row that it changes."""

    def release(self, owner: Owner) -> None:
        """See `Catalog.release`: locks end with their connection."""

    @property
    def _refused(self) -> type[TwoPhaseError]:
        """What a refusal raises: once it has worked, it may again."""
        return TargetUnreachableError if self._is_open else PreflightError

    def _before_login(
        self, _dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]
    ) -> None:
        """Read what may have been replaced since the last login.

        Args:
            parameters: of the login, which get the password; PyMySQL reads the authorities itself.
        """
        if self._options.tls_ca is not None:
            self._check_authorities()
        if password := self._password():
            parameters["password"] = password

    def _password(self) -> str:
        """Return the password as it is now; empty if there is none.

        Raises:
            ConfigError: it cannot be read.
            TargetUnreachableError: the same, after the catalog was open.
        """
        try:
            return self._options.password()
        except ConfigError as error:
            if not self._is_open:
                raise
            raise TargetUnreachableError(error.what, remedy=error.remedy) from error

    def _check_authorities(self) -> None:
        """Check that the file of authorities has certificates.

        Raises:
            PreflightError: it has none, or cannot be read.
            TargetUnreachableError: the same, after the catalog was open.
        """
        authorities_in(str(self._options.tls_ca), self._refused)

    def _explain(self, error: Exception) -> TwoPhaseError:
        """See `Catalog._explain`."""
        reply, of_driver = _reply(error), getattr(error, "orig", None) or error
        if is_tls_refused(of_driver):
            return self._refused(
                f"The catalog {self._options.catalog_uri} is not trusted: {brief(error)}.",
                remedy=_TLS,
            )
        passes = _may_pass(reply) or passes_by_itself(of_driver)
        kind = TargetUnreachableError if passes else self._refused
        return kind(
            f"The catalog {self._options.catalog_uri} cannot be used: {brief(error)}.",
            remedy=_REMEDIES.get(reply, _GENERIC) if isinstance(reply, int) else _GENERIC,
        )


def _reply(error: Exception) -> object:
    """Return the number of MySQL's error, or the text of SQLite's."""
    arguments = getattr(getattr(error, "orig", None), "args", ())
    return arguments[0] if arguments else None


def _may_pass(reply: object) -> bool:
    """Return whether a database did not answer, or refuses for now."""
    if isinstance(reply, int):
        return reply in CONNECTION_LOST | NOT_NOW and reply not in _REMEDIES
    return isinstance(reply, str) and "locked" in reply


def _engine_uri(options: IcebergOptions) -> str:
    """Return the URI as SQLAlchemy takes it, with its driver, the password and the authorities.

    With authorities PyMySQL requires TLS, and a certificate of one of them for the server's name.
    """
    scheme, rest = options.catalog_uri.split(":", 1)
    url = make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
    if options.database is None:
        deadlines = dict.fromkeys(("read_timeout", "write_timeout"), str(_DEADLINE_S))
        url = url.update_query_dict(deadlines)
    password = options.password()
    if options.tls_ca is not None:
        url = url.update_query_dict({"ssl_ca": options.tls_ca})
    return (url.set(password=password) if password else url).render_as_string(False)


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

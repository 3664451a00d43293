"""An account on a server that speaks MySQL's protocol, and its use by tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from urllib.parse import quote

import pymysql

USER = "root"
_CONNECT_TIMEOUT_S = 10


@dataclass(frozen=True)
class Account:
    """The address of a server and its account with all privileges."""

    host: str
    port: int
    user: str
    password: str

    def connect(self, database: str | None = None) -> pymysql.Connection:
        """Open a plain connection, autocommit on."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            autocommit=True,
            local_infile=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
        )

    def probe(self) -> None:
        """Ask the server for one row."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()


class SqlAccess(ABC):
    """Access to a running server, whoever runs it."""

    @property
    def host(self) -> str:
        """Host name or address."""
        return self._account.host

    @property
    def port(self) -> int:
        """TCP port."""
        return self._account.port

    @property
    def user(self) -> str:
        """An account with all privileges (on the user's own server: the one in its URL)."""
        return self._account.user

    @property
    def password(self) -> str:
        """The account's password."""
        return self._account.password

    def url(self, database: str) -> str:
        """Return `mysql://user@host:port/database`, without the password."""
        account = self._account
        return (
            f"mysql://{quote(account.user, safe='')}@{account.host}:{account.port}/"
            f"{quote(database, safe='')}"
        )

    def connect(self, database: str | None = None) -> pymysql.Connection:
        """Open a plain PyMySQL connection with autocommit and LOAD DATA LOCAL."""
        return self._account.connect(database)

    def create_database(self, name: str) -> None:
        """Create an empty utf8mb4 database; an existing one of that name is an error."""
        quoted = name.replace("`", "``")
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{quoted}` CHARACTER SET utf8mb4")

    @property
    @abstractmethod
    def _account(self) -> Account:
        """The account with all privileges."""

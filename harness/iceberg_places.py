"""Where the tables of a test are: a catalog, and a folder of its own for each test."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pymysql
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from sqlalchemy import make_url

from harness.rights import secret_file
from twophase.testing.harness import contents_of, fresh_name
from twophase.testing.services import MariaDbService, MySqlService

_NOBODY_LISTENS = 1
"""A port."""


class Place(ABC):
    """A catalog, and the name and folder of the tables of one test in it.

    Attributes:
        folder: holds the tables.
        table: the name of the table.
    """

    folder: Path
    table: str = "shop.orders"

    @property
    def tables(self) -> Path:
        """The folder in which the catalog makes tables."""
        return self.folder

    @property
    @abstractmethod
    def options(self) -> Mapping[str, Any]:
        """The sink's options that name the catalog."""

    @property
    @abstractmethod
    def unreachable(self) -> Mapping[str, Any]:
        """The same, of a catalog that does not answer."""

    @abstractmethod
    def catalog(self) -> Catalog:
        """Return the catalog, as another application opens it."""

    @abstractmethod
    def listed(self) -> object:
        """Return what the catalog has of this test's tables."""

    @abstractmethod
    def elsewhere(self) -> Place:
        """Return another place in a catalog of the same kind."""


class SqlitePlace(Place):
    """A catalog in a file of SQLite.

    Args:
        folder: holds the catalog and the warehouse.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def tables(self) -> Path:
        return self.folder / "warehouse"

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "catalog_uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": str(self.tables),
        }

    @property
    def unreachable(self) -> Mapping[str, Any]:
        return {"catalog_uri": f"sqlite:///{self.folder}/nowhere/catalog.db"}

    def catalog(self) -> Catalog:
        return SqlCatalog(
            "default",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=str(self.tables),
        )

    def listed(self) -> object:
        database = self.folder / "catalog.db"
        if not database.exists():
            return contents_of(self.folder)
        with closing(sqlite3.connect(database)) as connection:
            return [*connection.iterdump()]

    def elsewhere(self) -> SqlitePlace:
        return SqlitePlace(self.folder.parent / fresh_name("lake"))


class MySqlPlace(Place):
    """A catalog in a database of MySQL or MariaDB.

    Args:
        folder: holds the warehouse, and a file with the password beside it.
        server: has the database.
    """

    def __init__(self, folder: Path, server: MySqlService | MariaDbService) -> None:
        self.folder = folder
        self.server = server
        self.database = fresh_name("lake")
        folder.mkdir(parents=True, exist_ok=True)
        server.create_database(self.database)
        self._password = secret_file(
            folder.parent / f"{self.database}.password", f"{server.password}\n"
        )

    @property
    def tables(self) -> Path:
        return self.folder / "warehouse"

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "catalog_uri": self.server.url(self.database),
            "password_file": str(self._password),
            "warehouse": str(self.tables),
        }

    @property
    def unreachable(self) -> Mapping[str, Any]:
        return {"catalog_uri": f"mysql://nobody@127.0.0.1:{_NOBODY_LISTENS}/nothing"}

    def catalog(self) -> Catalog:
        url = make_url(self.server.url(self.database)).set(
            drivername="mysql+pymysql", password=self.server.password
        )
        uri = url.render_as_string(hide_password=False)
        return SqlCatalog("default", uri=uri, warehouse=str(self.tables))

    def listed(self) -> object:
        with self.server.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            tables = [name for (name,) in cursor.fetchall()]
            rows = []
            for name in tables:
                cursor.execute(f"SELECT * FROM `{name}`")
                rows += sorted(cursor.fetchall())
        return tables, rows

    def end_sessions(self) -> None:
        """End those that pools of sinks nobody has closed have left: a server has 151."""
        with closing(self.server.connect()) as admin, admin.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s", (self.database,)
            )
            for (number,) in cursor.fetchall():
                with suppress(pymysql.Error):  # it has gone by itself
                    cursor.execute(f"KILL {number}")

    def elsewhere(self) -> MySqlPlace:
        return MySqlPlace(self.folder.parent / fresh_name("lake"), self.server)


class ServerPlace(Place):
    """A namespace of its own in a catalog that a server keeps, which all tests use.

    Args:
        warehouse: the folder in which the server has the folders of namespaces.
    """

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.namespace = fresh_name("shop")
        self.table = f"{self.namespace}.orders"

    def listed(self) -> object:
        with closing(self.catalog()) as catalog:
            try:
                names = catalog.list_tables(self.namespace)
            except NoSuchNamespaceError:
                return None
            return [(name, catalog.load_table(name).metadata_location) for name in names]


class RestPlace(ServerPlace):
    """A REST catalog.

    Args:
        uri: of the server.
        warehouse: its folder.
        more: other options of the sink: how it logs in.
    """

    def __init__(self, uri: str, warehouse: Path, **more: Any) -> None:
        super().__init__(warehouse)
        self.uri = uri
        self.folder = warehouse / self.namespace
        self.more = more

    @property
    def options(self) -> Mapping[str, Any]:
        return {"catalog_uri": self.uri, **self.more}

    @property
    def unreachable(self) -> Mapping[str, Any]:
        return {"catalog_uri": f"http://127.0.0.1:{_NOBODY_LISTENS}"}

    def catalog(self) -> Catalog:
        return RestCatalog("default", uri=self.uri)

    def elsewhere(self) -> RestPlace:
        return RestPlace(self.uri, self.warehouse, **self.more)


class MetastorePlace(ServerPlace):
    """A Hive metastore.

    Args:
        port: of the server, on the loopback interface.
        warehouse: its folder.
    """

    def __init__(self, port: int, warehouse: Path) -> None:
        super().__init__(warehouse)
        self.port = port
        self.folder = warehouse / f"{self.namespace}.db"

    @property
    def options(self) -> Mapping[str, Any]:
        return {"catalog_uri": f"thrift://127.0.0.1:{self.port}"}

    @property
    def unreachable(self) -> Mapping[str, Any]:
        return {"catalog_uri": f"thrift://127.0.0.1:{_NOBODY_LISTENS}"}

    def catalog(self) -> Catalog:
        uri = f"thrift://127.0.0.1:{self.port}"
        return HiveCatalog("default", uri=uri, **{"hive.hive2-compatible": "true"})

    def elsewhere(self) -> MetastorePlace:
        return MetastorePlace(self.port, self.warehouse)

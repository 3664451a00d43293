"""MariaDB: the one on PATH, otherwise Debian's MariaDB 10.11 unpacked into the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.access import USER
from twophase.testing.services.debian import library_path, unpack_packages, with_dependencies
from twophase.testing.services.pins import MARIADB_SERIES
from twophase.testing.services.process import Launch, run_tool
from twophase.testing.services.sql import SqlProgram, SqlService, as_root_if_root

URL_VARIABLE = "TWOPHASE_MARIADB_URL"
PASSWORD_VARIABLE = "TWOPHASE_MARIADB_PASSWORD"  # noqa: S105 - a name
_PACKAGE = "mariadb-server-core"
_INSTALL = (
    "install it (Debian: `apt-get install -y mariadb-server`) or name one of "
    f"your own in {URL_VARIABLE}."
)
# In the order in which mariadb-install-db feeds them; help texts and GIS are left out:
# they take longest.
_BOOTSTRAP_FILES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "mysql_sys_schema.sql",
)


@dataclass(frozen=True)
class MariaDb:
    """An installed or unpacked MariaDB.

    Attributes:
        program: `mariadbd`.
        share: the folder with its SQL files and messages.
        environment: variables that it needs to find its libraries.
        version: as it reports it.
    """

    program: Path
    share: Path
    environment: dict[str, str]
    version: str

    @property
    def command(self) -> list[str]:
        """The start of every command line."""
        folders = [
            f"--lc-messages-dir={self.share}",
            f"--character-sets-dir={self.share / 'charsets'}",
        ]
        return [str(self.program), "--no-defaults", *folders, *as_root_if_root()]


class _MariaDbProgram(SqlProgram):
    name = "MariaDB"

    @override
    def prepare(self, data: Path) -> None:
        shutil.copytree(mariadb_template(mariadb()), data / "db")
        created = f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{self.password}';"
        self._account_file = self._write_account(data / "account.sql", created)

    @override
    def launch(self, data: Path) -> Launch:
        server = mariadb()
        command = [
            *server.command,
            *self._common_options(data),
            f"--local-infile={int(self._local_infile)}",
        ]
        if self._account_file is not None:
            command.append(f"--init-file={self._account_file}")
        return Launch([*command, *self._options], server.environment)


class MariaDbService(SqlService):
    """A MariaDB server, or the user's own if TWOPHASE_MARIADB_URL is set.

    No binary log, redo log flushed at every commit.
    The arguments are those of `SqlService`.
    """

    _program_type = _MariaDbProgram
    _url_variable = URL_VARIABLE
    _password_variable = PASSWORD_VARIABLE


def fetch_mariadb() -> None:
    """Fetch everything that a start needs into the cache."""
    mariadb_template(mariadb())


def mariadb() -> MariaDb:
    """Return the MariaDB to run, fetched on first use."""
    # Other users than root often lack the sbin folders in their PATH.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"])
    found = shutil.which("mariadbd", path=path)
    if found is not None:
        return _describe(Path(found).resolve(), {})
    folder = cached(f"mariadb-{MARIADB_SERIES}", fetch_packages)
    return _describe(folder / "usr" / "sbin" / "mariadbd", library_path(folder))


def fetch_packages(folder: Path) -> None:
    """Unpack MariaDB, and the libraries that this system lacks, into a folder."""
    with show_progress(f"Fetching MariaDB {MARIADB_SERIES}") as progress:
        try:
            unpack_packages(with_dependencies(_PACKAGE), folder, progress)
        except ServiceError as error:
            raise ServiceError(
                f"There is no mariadbd here, and none could be fetched: {error}", remedy=_INSTALL
            ) from error


def _describe(program: Path, environment: dict[str, str]) -> MariaDb:
    said = subprocess.run(
        [str(program), "--no-defaults", "--version"],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    version = re.search(r"Ver (\S+)", said.stdout)
    if said.returncode != 0 or version is None:
        raise ServiceError(f"{program} does not run:\n{said.stdout}{said.stderr}", remedy=_INSTALL)
    prefix = program.parent.parent
    for name in ("mysql", "mariadb"):
        if (prefix / "share" / name / _BOOTSTRAP_FILES[0]).is_file():
            return MariaDb(program, prefix / "share" / name, environment, version[1])
    raise ServiceError(
        f"{program} comes without its SQL files under {prefix / 'share'}.", remedy=_INSTALL
    )


def mariadb_template(server: MariaDb) -> Path:
    """Return a data folder with the system tables: a copy takes no time, a creation does."""
    return cached(f"mariadb-{server.version}-data", lambda folder: _bootstrap(server, folder))


def _bootstrap(server: MariaDb, folder: Path) -> None:
    """Do the work of mariadb-install-db, which needs programs that the unpacked packages lack."""
    sql = ["CREATE DATABASE mysql;", "USE mysql;", "SET @auth_root_socket=NULL;"]
    sql += [(server.share / name).read_text() for name in _BOOTSTRAP_FILES]
    # The accounts without a password: each server gets its own account, see
    # _MariaDbProgram.prepare.
    sql += ["DELETE FROM mysql.global_priv WHERE User = 'root';", "DELETE FROM mysql.proxies_priv;"]
    command = [
        *server.command,
        "--bootstrap",
        f"--datadir={folder}",
        "--skip-log-bin",
        "--max-allowed-packet=8M",
    ]
    launch = Launch(command, server.environment)
    run_tool(launch, "MariaDB's system tables could not be made", "\n".join(sql))

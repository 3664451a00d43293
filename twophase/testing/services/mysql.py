"""MySQL 8.0.12 as a server of one's own, or the user's."""

from __future__ import annotations

import shutil
from pathlib import Path

from typing_extensions import override

from twophase.testing.services.access import USER
from twophase.testing.services.mysql_install import (
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    mysql_environment,
    mysql_template,
    mysqld,
)
from twophase.testing.services.process import Launch
from twophase.testing.services.sql import SqlProgram, SqlService


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

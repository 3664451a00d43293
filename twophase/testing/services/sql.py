"""The common base of the MySQL and MariaDB services: an account, connections, databases."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.access import USER, Account, SqlAccess
from twophase.testing.services.external_server import ExternalServer
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.ports import LOOPBACK
from twophase.testing.services.program import Program
from twophase.testing.services.server import Server
from twophase.testing.services.service import Service

_DEFAULT_PORT = 3306
SETTINGS = (
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=1",
    # Warming the buffer pool up makes restarts slow, and benchmarks uneven.
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-size=256M",
)
"""The options of every test server: no acknowledged branch is lost, nothing is
slower than necessary.
"""


def as_root_if_root() -> list[str]:
    """The server refuses to run as root unless it is told to."""
    return ["--user=root"] if os.geteuid() == 0 else []


class SqlProgram(Program):
    """A MySQL or MariaDB server, with its account.

    The password is new for every server: a fixed one would let in every user of the machine.

    Args:
        local_infile: the server allows LOAD DATA LOCAL.
        options: more server options.
    """

    def __init__(self, local_infile: bool, options: Sequence[str]) -> None:
        super().__init__()
        self.password = secrets.token_hex(16)
        self._local_infile = local_infile
        self._options = options
        self._account_file: Path | None = None

    @property
    def account(self) -> Account:
        """The account that may do everything."""
        if not self.ports:
            raise self.not_started()
        return Account(LOOPBACK, self.port, USER, self.password)

    @override
    def probe(self) -> None:
        self.account.probe()

    @override
    def started(self) -> None:
        if self._account_file is not None:
            self._account_file.unlink()
            self._account_file = None

    def _common_options(self, data: Path) -> list[str]:
        options = [f"--datadir={data / 'db'}", f"--port={self.port}", f"--bind-address={LOOPBACK}"]
        # Relative to the data folder: a full path can exceed the maximum length of a socket's name.
        options += ["--socket=server.sock", f"--pid-file={data / 'server.pid'}"]
        # A server that starts deletes temporary tables in its folder, those of its neighbours too.
        options.append(f"--tmpdir={data}")
        return [*options, *SETTINGS, *as_root_if_root()]

    def _write_account(self, file: Path, created: str) -> Path:
        file.touch(mode=0o600)
        file.write_text(f"{created}\nGRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n")
        return file


class SqlService(SqlAccess, Service):
    """A server that speaks MySQL's protocol. Use `MySqlService` or `MariaDbService`.

    Args:
        local_infile: the server allows LOAD DATA LOCAL; MySQL's default is off.
        server_options: more server options, `--name=value`; they override ours. Not applied
            to the user's own.
        detached: the server outlives this process.
        own: start a local server whatever the environment says.
        startup_timeout_s: how long a start may take.
    """

    _program_type: type[SqlProgram]
    _url_variable: str
    _password_variable: str

    def __init__(
        self,
        *,
        local_infile: bool = False,
        server_options: Sequence[str] = (),
        detached: bool = False,
        own: bool = False,
        startup_timeout_s: float = 60.0,
    ) -> None:
        self._program = self._program_type(local_infile, checked_options(server_options))
        self._external = None if own else self.external_account()
        server: Server
        if self._external is not None:
            server = ExternalServer(
                self._program.name, variable=self._url_variable, probe=self._external.probe
            )
        else:
            server = LocalServer(
                self._program, detached=detached, startup_timeout_s=startup_timeout_s
            )
        super().__init__(server)

    @classmethod
    def external_account(cls) -> Account | None:
        """Return the account on the user's own server, if the environment names one.

        Raises:
            ServiceError: it names none that can be read.
        """
        return _external_account(cls._url_variable, cls._password_variable)

    @property
    @override
    def _account(self) -> Account:
        return self._external or self._program.account


def _external_account(url_variable: str, password_variable: str) -> Account | None:
    """Return the user's own server, if the environment names one."""
    url = os.environ.get(url_variable)
    if not url:
        return None
    parts = urlsplit(url)
    if (
        parts.scheme not in ("mysql", "mariadb")
        or not parts.hostname
        or not parts.username
        or parts.password
    ):
        raise ServiceError(
            f"{url_variable} is not of the form mysql://user@host:port",
            remedy=f"correct it; the password goes into {password_variable}.",
        )
    password = os.environ.get(password_variable, "")
    return Account(parts.hostname, parts.port or _DEFAULT_PORT, unquote(parts.username), password)


def checked_options(options: Sequence[str]) -> list[str]:
    """Refuse options that the server would misread."""
    for option in options:
        if not option.startswith("--"):
            raise ServiceError(
                f"The server option {option!r} does not begin with --.",
                remedy="write --name=value.",
            )
    return list(options)

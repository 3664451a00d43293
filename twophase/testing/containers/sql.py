"""MySQL and MariaDB in containers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from twophase.testing.containers.program import ContainerProgram
from twophase.testing.containers.server import ContainerServer
from twophase.testing.services.access import USER, Account, SqlAccess
from twophase.testing.services.service import Service
from twophase.testing.services.sql import SETTINGS, checked_options

MYSQL_IMAGE_VARIABLE = "TWOPHASE_MYSQL_IMAGE"
MARIADB_IMAGE_VARIABLE = "TWOPHASE_MARIADB_IMAGE"


class _SqlProgram(ContainerProgram):
    """A server whose image takes the password as a variable, and options as arguments."""

    inside_port = 3306
    password_variable: str
    own_settings: tuple[str, ...] = ()

    def __init__(self, image: str | None, local_infile: bool, options: Sequence[str]) -> None:
        super().__init__(image)
        self.password = secrets.token_hex(16)
        self._local_infile = local_infile
        self._options = options

    @property
    def account(self) -> Account:
        """The account with all privileges."""
        return Account(self.address.host, self.address.port, USER, self.password)

    @override
    def environment(self) -> dict[str, str]:
        return {self.password_variable: self.password}

    @override
    def command(self) -> list[str]:
        return [
            *SETTINGS,
            *self.own_settings,
            f"--local-infile={int(self._local_infile)}",
            *self._options,
        ]

    @override
    def probe(self) -> None:
        self.account.probe()


class _MySqlProgram(_SqlProgram):
    name = "MySQL"
    image_variable = MYSQL_IMAGE_VARIABLE
    public_image = "mysql:8.0"
    password_variable = "MYSQL_ROOT_PASSWORD"  # noqa: S105 - a name
    own_settings = ("--mysqlx=OFF",)


class _MariaDbProgram(_SqlProgram):
    name = "MariaDB"
    image_variable = MARIADB_IMAGE_VARIABLE
    public_image = "mariadb:10.11"
    password_variable = "MARIADB_ROOT_PASSWORD"  # noqa: S105 - a name


class SqlContainer(SqlAccess, Service):
    """A container that speaks MySQL's protocol: `MySqlContainer` or `MariaDbContainer`.

    Args:
        image: overrides the environment and the public image.
        local_infile: the server allows LOAD DATA LOCAL; MySQL's default is off.
        server_options: more server options, `--name=value`; they override ours.
        startup_timeout_s: how long a start may take once the image is present.
    """

    _program_type: ClassVar[type[_SqlProgram]]

    def __init__(
        self,
        *,
        image: str | None = None,
        local_infile: bool = False,
        server_options: Sequence[str] = (),
        startup_timeout_s: float = 120.0,
    ) -> None:
        self._program = self._program_type(image, local_infile, checked_options(server_options))
        super().__init__(ContainerServer(self._program, startup_timeout_s=startup_timeout_s))

    @property
    def image(self) -> str:
        """The name of the image."""
        return self._program.image

    @property
    @override
    def _account(self) -> Account:
        return self._program.account


class MySqlContainer(SqlContainer):
    """MySQL in a container: the image that TWOPHASE_MYSQL_IMAGE names, else mysql:8.0.

    No binary log, redo log flushed at every commit. The arguments are those of `SqlContainer`.
    """

    _program_type = _MySqlProgram


class MariaDbContainer(SqlContainer):
    """MariaDB in a container: the image that TWOPHASE_MARIADB_IMAGE names, else mariadb:10.11.

    No binary log, redo log flushed at every commit. The arguments are those of `SqlContainer`.
    """

    _program_type = _MariaDbProgram

"""The server as it describes itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from twophase.sinks.mysql.client.session import Session

_VARIABLES = (
    "server_uuid",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "local_infile",
    "max_connections",
    "max_user_connections",
    "max_allowed_packet",
    "wsrep_on",
    "binlog_format",
    "innodb_autoinc_lock_mode",
)


@dataclass(frozen=True)
class Server:
    """Version and settings.

    Attributes:
        text: the version as the server writes it.
        variables: global settings; those that the server does not have are absent.
    """

    text: str
    variables: Mapping[str, str]

    @property
    def is_mariadb(self) -> bool:
        """True for MariaDB, False for MySQL."""
        return "mariadb" in self.text.lower()

    @property
    def version(self) -> tuple[int, ...]:
        """The version as numbers."""
        # MariaDB may prefix its version for the sake of old replicas: 5.5.5-10.11.6-MariaDB.
        text = self.text.removeprefix("5.5.5-") if self.is_mariadb else self.text
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
        return tuple(map(int, found.groups())) if found else (0, 0, 0)

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.variables.get(name, "OFF").upper() in ("ON", "1", "YES")

    def number(self, name: str, default: int = 0) -> int:
        """Return a numeric setting."""
        text = self.variables.get(name, "")
        return int(text) if text.isdigit() else default


def read_server(session: Session) -> Server:
    """Ask the server for its version and settings."""
    [(text,)] = session.rows("SELECT VERSION()")
    rows = session.rows("SHOW GLOBAL VARIABLES WHERE Variable_name IN %s", (_VARIABLES,))
    return Server(str(text), {str(name).lower(): str(value) for name, value in rows})

"""The servers that are simulated, and the errors that they answer with."""

from __future__ import annotations

from dataclasses import dataclass

NOTA, RMFAIL, DUPLICATE_XID, ROLLED_BACK = 1397, 1399, 1440, 1402
LOCK_WAIT_TIMEOUT, DEADLOCK, DUPLICATE_ENTRY, UNKNOWN_THREAD, ACCESS_DENIED = (
    1205,
    1213,
    1062,
    1094,
    1227,
)


class ServerError(Exception):
    """The server's answer is an error of this number."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class SessionEndedError(Exception):
    """The server has ended the session: no answer comes."""


@dataclass(frozen=True)
class Dialect:
    """How servers differ.

    Attributes:
        version: as the server writes it.
        hands_over_at_prepare: others may commit a branch while the session that prepared it lives.
        keeps_shared_locks: XA PREPARE keeps the locks on rows that were only read.
        forgets_early: KILL does not find a session any more just before the engine
            lets go of its branch.
        forgotten_s: how long before that, at the most.
        shows_transactions: the account may see which sessions the engine connects
            with a transaction.
    """

    version: str
    hands_over_at_prepare: bool = False
    keeps_shared_locks: bool = True
    forgets_early: bool = False
    forgotten_s: float = 0.001
    shows_transactions: bool = False

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.version


DIALECTS = {
    "mysql-8.0.12": Dialect("8.0.12"),
    "mariadb-10.11": Dialect("10.11.19-MariaDB", keeps_shared_locks=False, forgets_early=True),
    "mysql-9.7": Dialect("9.7.0", hands_over_at_prepare=True),
}

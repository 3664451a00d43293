"""How rows get into a target of the simulated server: LOAD DATA LOCAL and multi-row INSERT."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from verification.simulation.branches import ServerSession
from verification.simulation.dialects import DUPLICATE_ENTRY, ServerError
from verification.simulation.engine import Transaction
from verification.simulation.server import Server

_LOAD = re.compile(
    r"LOAD DATA LOCAL INFILE '[^']+' INTO TABLE `shop`\.`(\w+)` .* \(`(\w+)`, `(\w+)`\)"
)
_INSERT = re.compile(r"INSERT INTO `shop`\.`(\w+)` \(`(\w+)`, `(\w+)`\) VALUES \((.*)\)")
_READ_BACK = re.compile(
    r"SELECT `checkpoint`, `id` FROM `shop`\.`(\w+)` WHERE \(`id` = %s\)(?: OR \(`id` = %s\))*"
)
_COLUMNS = {"checkpoint", "id"}


class Loads:
    """Stores rows in the session's transaction.

    Args:
        server: the server.
        keyed: whether `id` is the primary key of every target.
    """

    def __init__(self, server: Server, *, keyed: bool) -> None:
        self._server = server
        self._keyed = keyed
        self._last_row = 0
        self.warnings = 0

    def load(self, session: ServerSession, sql: str, data: bytes) -> int | None:
        """LOAD DATA LOCAL: skips duplicates with a warning, strict mode or not (H41). None:
        no such statement.
        """
        found = _LOAD.fullmatch(sql)
        if found is None:
            return None
        lines = [line.split("\t") for line in data.decode().splitlines()]
        return self._store(session, found[1], (found[2], found[3]), lines, ignoring=True)

    def insert(self, session: ServerSession, sql: str) -> int | None:
        """Multi-row INSERT: a duplicate ends it. None: no such statement."""
        found = _INSERT.fullmatch(sql)
        if found is None:
            return None
        lines = [row.split(",") for row in found[4].split("),(")]
        return self._store(session, found[1], (found[2], found[3]), lines, ignoring=False)

    def read_back(
        self, session: ServerSession, sql: str, ids: Sequence[int]
    ) -> list[tuple[Any, ...]] | None:
        """Rows of the session's branch by their primary key. None: no such statement."""
        found = _READ_BACK.fullmatch(sql)
        if found is None:
            return None
        own = dict(self._server.transaction_of(session).written(found[1]))
        return [own[number] for number in ids if number in own]

    def _store(
        self,
        session: ServerSession,
        table: str,
        columns: tuple[str, str],
        lines: list[list[str]],
        *,
        ignoring: bool,
    ) -> int:
        assert set(columns) == _COLUMNS
        transaction = self._server.transaction_of(session)
        begun = len(transaction.changes)
        self.warnings = 0
        try:
            for line in lines:
                value = dict(zip(columns, map(int, line), strict=True))
                row = (value["checkpoint"], value["id"])
                key = row[1] if self._keyed else self._new_key()
                self._server.wait_for_lock(session, (table, key), exclusive=True)
                self._server.engine.lock(transaction, (table, key), exclusive=True)
                if not self._exists(transaction, table, key):
                    transaction.changes.append(((table, key), row))
                elif ignoring:
                    self.warnings += 1
                else:
                    raise ServerError(DUPLICATE_ENTRY)
        except ServerError:
            del transaction.changes[begun:]  # the statement is rolled back, the branch is not (H7)
            raise
        return len(lines) - self.warnings

    def _exists(self, transaction: Transaction, table: str, key: int) -> bool:
        return key in self._server.engine.table(table) or any(
            key == own for own, _ in transaction.written(table)
        )

    def _new_key(self) -> int:
        self._last_row += 1
        return self._last_row

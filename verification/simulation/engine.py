"""The storage engine of a simulated server: rows, locks on rows, and transactions that
become visible at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Key = tuple[str, Any]
"""A row: its table and its primary key."""


class Transaction:
    """Changes that become visible together, and the locks held for them.

    Attributes:
        changes: the row and what it becomes; None deletes it.
        locks: the row, and whether nobody else may even read it with a lock.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[Key, Any]] = []
        self.locks: dict[Key, bool] = {}

    def written(self, table: str) -> Iterator[tuple[Any, Any]]:
        """What it has written to a table."""
        return ((key, value) for (name, key), value in self.changes if name == table)


class Engine:
    """Rows by table and key, as committed."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}
        self._holders: dict[Key, dict[Transaction, bool]] = {}

    def table(self, name: str) -> dict[Any, Any]:
        """The committed rows of a table."""
        return self.tables.setdefault(name, {})

    def is_free(self, transaction: Transaction, row: Key, *, exclusive: bool) -> bool:
        """Whether nobody else's lock is in the way."""
        holders = self._holders.get(row)
        if not holders:
            return True
        return all(
            other is transaction or not (exclusive or other_exclusive)
            for other, other_exclusive in holders.items()
        )

    def locked(self, table: str) -> list[Any]:
        """The keys of the rows of a table that anybody holds."""
        return [key for name, key in self._holders if name == table]

    def lock(self, transaction: Transaction, row: Key, *, exclusive: bool) -> None:
        """Take a lock that is free."""
        exclusive = exclusive or transaction.locks.get(row, False)
        transaction.locks[row] = exclusive
        self._holders.setdefault(row, {})[transaction] = exclusive

    def release_shared(self, transaction: Transaction) -> None:
        """Let go of what is only locked for reading."""
        for row in [row for row, exclusive in transaction.locks.items() if not exclusive]:
            self._release(transaction, row)

    def commit(self, transaction: Transaction) -> None:
        """Make the changes visible."""
        for (table, key), value in transaction.changes:
            if value is None:
                self.table(table).pop(key, None)
            else:
                self.table(table)[key] = value
        self.roll_back(transaction)

    def roll_back(self, transaction: Transaction) -> None:
        """Let go of everything."""
        transaction.changes.clear()
        for row in list(transaction.locks):
            self._release(transaction, row)

    def _release(self, transaction: Transaction, row: Key) -> None:
        del transaction.locks[row]
        holders = self._holders[row]
        del holders[transaction]
        if not holders:
            del self._holders[row]

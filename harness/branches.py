"""Prepared transactions on a MySQL or MariaDB server, whoever has left them."""

from __future__ import annotations

import time

import pymysql

from twophase.testing.services.access import SqlAccess

_XAER_NOTA = 1397
_FREE_TIMEOUT_S = 60
_POLL_S = 0.05


def branches(server: SqlAccess) -> list[str]:
    """Return the prepared transactions, in the syntax of XA COMMIT and XA ROLLBACK."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        rows = cursor.fetchall()
    return [_xid(format_id, _bytes(data), gtrid_bytes) for format_id, gtrid_bytes, _, data in rows]


def roll_back_branches(server: SqlAccess) -> None:
    """Roll back everything prepared. A branch whose session has just ended, such as a killed one,
    takes a moment to be free.
    """
    deadline_s = time.monotonic() + _FREE_TIMEOUT_S
    while left := branches(server):
        assert time.monotonic() < deadline_s, f"{left} are still prepared"
        for xid in left:
            _roll_back(server, xid)


def _xid(format_id: int, data: bytes, gtrid_bytes: int) -> str:
    return f"X'{data[:gtrid_bytes].hex()}', X'{data[gtrid_bytes:].hex()}', {format_id}"


def _bytes(data: bytes | str) -> bytes:
    """Return text: MariaDB returns bytes, MySQL text."""
    return data if isinstance(data, bytes) else data.encode()


def _roll_back(server: SqlAccess, xid: str) -> None:
    try:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"XA ROLLBACK {xid}")
    except pymysql.Error as error:
        if error.args[0] != _XAER_NOTA:
            raise
        time.sleep(_POLL_S)

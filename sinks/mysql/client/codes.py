"""The error numbers of MySQL and MariaDB that the sink distinguishes, grouped by meaning."""

from __future__ import annotations

import pymysql

from twophase.sinks.common.mysql_replies import CONNECTION_LOST, NOT_NOW

LOCK_WAIT_TIMEOUT = 1205
DEADLOCK = 1213
SERVER_LOST = 2013
UNKNOWN_THREAD = 1094
KILL_DENIED = 1095
DUPLICATE_ENTRY = 1062
NO_SUCH_TABLE = 1146
VALUE_TOO_LONG = 1301
"""Longer than `max_allowed_packet`, as MySQL stores a document."""
NO_DEFAULT = 1364
ROW_TOO_LONG = 1118
"""InnoDB keeps no more of a row than half a page beside the values that it stores elsewhere."""
NO_PARTITION = 1526
NO_NUMBER = 1467
"""AUTO_INCREMENT has given its last number; on MariaDB also: another transaction holds the counter.
Where MySQL gives the last one again, it is a duplicate.
"""
NUMBERS_USED_UP = 167
"""The same, as MariaDB says it of LOAD DATA: then it is the only meaning."""
DENIED = frozenset({1044, 1142, 1143, 1227, 1370})

LOCAL_FORBIDDEN = frozenset({1148, 3948, 4166})
"""The server does not take LOAD DATA LOCAL (`local_infile`)."""

XAER_NOTA = 1397
XAER_RMERR = 1401
XA_ROLLED_BACK = frozenset({1402, 1613, 1614})
"""The branch is known, and the server has rolled it back by itself."""

TRANSACTION_TOO_LARGE = frozenset({
    1197,        # max_binlog_cache_size
    1206,        # locks
    3100, 3231,  # group_replication_transaction_size_limit
})  # fmt: skip
"""The server has rolled the statement or transaction back; a smaller one may pass."""

LOCKS = "mysql locks"
"""The fingerprint of a wait for a lock."""

_DATA_STATES = "01", "22", "23", "45"
"""Classes of SQLSTATE: what strict mode refuses, data exceptions, constraints, a SIGNAL."""

_DATA_CODES = frozenset(
    {ROW_TOO_LONG, NO_DEFAULT, NO_PARTITION, VALUE_TOO_LONG}
    | {1300, 1366, 1411, 1425, 1426, 1518, 1525, 3156, 3819, 4038}
)
"""The data is at fault, and the SQLSTATE is the general one, HY000."""


def code_of(error: pymysql.Error) -> int:
    """Return the server's or the client's error number; -1 if there is none."""
    code = error.args[0] if error.args else -1
    return code if isinstance(code, int) else -1


def is_connection_lost(error: pymysql.Error) -> bool:
    """Return whether the connection can no longer be used."""
    return isinstance(error, pymysql.InterfaceError) or code_of(error) in CONNECTION_LOST


def is_data_fault(error: pymysql.Error) -> bool:
    """Return whether the rows are at fault: a retry would meet the same ones."""
    state = getattr(error, "sqlstate", None) or ""
    return state[:2] in _DATA_STATES or code_of(error) in _DATA_CODES


def fingerprint_of_reply(error: pymysql.Error) -> str:
    """Return the fingerprint of a reply, for `DeclinedError`; empty if it says that the server is
    not there, or not able to, for now.

    Who loses a deadlock and who waits too long is a matter of chance: both are the same.
    """
    code = code_of(error)
    if code in (LOCK_WAIT_TIMEOUT, DEADLOCK):
        return LOCKS
    return "" if is_connection_lost(error) or code in NOT_NOW else f"mysql {code}"

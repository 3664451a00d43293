"""The error numbers of MySQL and MariaDB that the sink distinguishes, grouped by meaning."""

from __future__ import annotations

import pymysql

LOCK_WAIT_TIMEOUT = 1205
DEADLOCK = 1213
UNKNOWN_THREAD = 1094
KILL_DENIED = 1095
DUPLICATE_ENTRY = 1062
ACCESS_DENIED_USER = 1045
ACCESS_DENIED_DATABASE = 1044
NO_PASSWORD_LOGIN = 1698
UNKNOWN_DATABASE = 1049
NO_SUCH_TABLE = 1146
NO_DEFAULT = 1364
DENIED = frozenset({1044, 1142, 1143, 1227, 1370})

XAER_NOTA = 1397
XAER_RMERR = 1401
XA_ROLLED_BACK = frozenset({1402, 1613, 1614})
"""The branch is known, and the server has rolled it back by itself."""

NOT_NOW = frozenset({
    1021, 1037, 1041, 1114,  # disk or memory full
    1040, 1203, 1226,        # too many connections
    1053, 1927, 1317,        # shutdown, killed
    1205,                    # blocked by a backup or FLUSH TABLES WITH READ LOCK
    1223, 1290, 1792, 1836,  # read-only (H37)
    1969, 3024,              # statement timeout
})  # fmt: skip
"""The server refuses for now: the branch is unchanged."""

TRANSACTION_TOO_LARGE = frozenset({
    1197,        # max_binlog_cache_size
    1206,        # locks
    3100, 3231,  # group_replication_transaction_size_limit
})  # fmt: skip
"""The server has rolled the statement or transaction back; a smaller one may pass."""

CONNECTION_LOST = frozenset(
    {
        0,
        2002,
        2003,
        2006,
        2013,
        2014,
        2026,
        2055,
        1040,
        1053,
        1129,
        1152,
        1158,
        1159,
        1160,
        1161,
        1927,
    }
)
"""The reply may be lost: the outcome of the statement is unknown (H4)."""

REJECTED_ROWS = frozenset({
    1048, 1062, 1138, 1169, 1216, 1217, 1261, 1262, 1263, 1264, 1265, 1292, 1300, 1364, 1365, 1366,
    1367, 1406, 1411, 1425, 1426, 1451, 1452, 1518, 1525, 1526, 1586, 1690, 1761, 1762, 3140, 3141,
    3156, 3157, 3819, 4025, 4038, 1644, 22007,
})  # fmt: skip
"""The data is at fault: a retry would meet the same rows."""


def code_of(error: pymysql.Error) -> int:
    """Return the server's or the client's error number; -1 if there is none."""
    code = error.args[0] if error.args else -1
    return code if isinstance(code, int) else -1


def is_connection_lost(error: pymysql.Error) -> bool:
    """Return whether the connection can no longer be used."""
    return isinstance(error, pymysql.InterfaceError) or code_of(error) in CONNECTION_LOST

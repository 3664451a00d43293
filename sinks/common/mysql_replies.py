"""What replies of MySQL and MariaDB mean, by their numbers, to whatever connects to them: a sink's
own sessions, and a catalog in a database.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

TOO_MANY_CONNECTIONS = 1040

NOT_NOW = frozenset({
    1021, 1037, 1041, 1114,  # disk or memory full
    1040, 1203, 1226,        # too many connections
    1053, 1927, 1317,        # shutdown, killed
    1205, 1213,              # a lock, or a backup or FLUSH TABLES WITH READ LOCK; a deadlock
    1223, 1290, 1792,        # read-only (H37)
    1836, 1874,              # the same, of InnoDB
    1969, 3024,              # statement timeout
    3032,                    # offline mode
})  # fmt: skip
"""The server refuses for now: what it was told has changed nothing."""

CONNECTION_LOST = frozenset({
    0, 2002, 2003, 2006, 2013, 2014, 2026, 2055,  # the client's
    1040, 1053, 1129, 1927,                       # too many connections, shutdown, killed
    1152, 1158, 1159, 1160, 1161,                 # the network
    3168, 3169, 4031,                             # not available, killed, idle
})  # fmt: skip
"""The reply may be lost: the outcome of the statement is unknown (H4)."""

_TLS_FAILED = 2026
_OPTION, _READ_ONLY = 1290, (1836, 1874)
_LIMITED = 1203, 1226


def is_tls_refused(error: BaseException) -> bool:
    """Return whether client and server disagree on TLS; not if the server has just died.

    Args:
        error: of PyMySQL.
    """
    cause = getattr(error, "original_exception", None)
    hung_up = isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return error.args[:1] == (_TLS_FAILED,) or (isinstance(cause, ssl.SSLError) and not hung_up)


def passes_by_itself(error: BaseException) -> bool:
    """Return whether a refusal that somebody could end also ends by itself: the server takes no
    writes, as a replica that may be the primary later, or the limit of the account is used up, as
    by sessions of a dead driver, or for an hour.

    Args:
        error: of PyMySQL. One number of a server that takes no writes stands for other options
            too, which somebody has to change.
    """
    code = error.args[0] if error.args else None
    return code in (*_READ_ONLY, *_LIMITED) or (
        code == _OPTION and "read-only" in str(error.args[-1])
    )


def remedies(address: str, tls: str = "") -> Mapping[int, str]:
    """Return what to do about refusals, by number.

    Args:
        address: the option that names the server.
        tls: the option that asks for TLS, if there is one.
    """
    return {
        **dict.fromkeys(
            (1044, 1142, 1143, 1227, 1370),
            "GRANT the user what the message names; if a role has the right, SET DEFAULT ROLE; or "
            f"correct {address}.",
        ),
        **dict.fromkeys(
            (1045, 1130, 1698),
            f"check the user in {address}, what password_env or password_file names, and whether "
            f"the account may log in from here or requires TLS{f' ({tls})' if tls else ''}.",
        ),
        **dict.fromkeys((3118, 4151), "have an administrator run: ALTER USER ... ACCOUNT UNLOCK."),
        **dict.fromkeys(
            (1820, 1862),
            "give the account a new password (ALTER USER), and put it where password_file or "
            "password_env says.",
        ),
        **dict.fromkeys(
            _LIMITED,
            "raise the account's limit (ALTER USER ... WITH MAX_USER_CONNECTIONS, or the variable "
            "that the message names), or run fewer tasks.",
        ),
        **dict.fromkeys(
            (_OPTION, 1792, *_READ_ONLY),
            f"name the primary server in {address}, or have an administrator end its read-only "
            "mode.",
        ),
        **dict.fromkeys(
            (1251, 1275, 2059),
            "give the account a plugin that the driver has: ALTER USER ... IDENTIFIED WITH.",
        ),
        1049: f"create the schema, or correct {address}.",
        1129: "have an administrator run FLUSH HOSTS, and find out what fails to log in so often.",
    }

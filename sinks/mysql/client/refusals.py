"""What an error of the server means to a job: the one place for those that leave a session.

Before the sink is open, a refusal ends the start: something has to be changed first. From then on
the same reply is a server that cannot be reached for now: decided checkpoints wait for it.
"""

from __future__ import annotations

import pymysql

from twophase.errors import PreflightError, TargetUnreachableError
from twophase.sinks.common.mysql_replies import (
    NOT_NOW,
    TOO_MANY_CONNECTIONS,
    is_tls_refused,
    passes_by_itself,
    remedies,
)
from twophase.sinks.mysql.client.codes import code_of, is_connection_lost
from twophase.sinks.mysql.options import Endpoint

_TLS = (
    "give the server a certificate for its name and name its authority in tls_ca{}; "
    "`tls=verify_ca`, `tls=insecure` and `tls=off` check less, at your own risk."
)
_LIST = "have an administrator run: GRANT XA_RECOVER_ADMIN ON *.* TO the user of the sink."
_OTHER_SERVER = (
    "connect to MySQL 8.0 or MariaDB 10.5 or newer itself: the sink needs XA transactions, which "
    "proxies and compatible servers may not have."
)
_BINLOG = "have an administrator run: SET GLOBAL binlog_format = 'ROW'."
_GENERIC = "look the number up in the server's manual, and change what the message names."
_BUSY = "remove what the message names; SHOW PROCESSLIST lists who may hold a lock."
_UNREACHABLE = "start the server, or correct host and port in url."
_FULL = "raise max_connections, or run fewer tasks; SHOW PROCESSLIST lists who is connected."

_REMEDIES = {
    **remedies("url", "tls"),
    **dict.fromkeys((1064, 1235, 1289), _OTHER_SERVER),
    1665: _BINLOG,
    3159: "set `tls=verify_identity`: the server refuses sessions without TLS.",
}


class BranchesHiddenError(pymysql.OperationalError):
    """The account may not list prepared branches; the number has other meanings elsewhere."""


def explain(
    endpoint: Endpoint, error: pymysql.Error, doing: str
) -> PreflightError | TargetUnreachableError:
    """Return the error to raise for one that ended the login, the settings or the use of a session.

    Args:
        endpoint: where the session was.
        error: of the server or the connection.
        doing: what failed, as the subject of the message.
    """
    code = code_of(error)
    what = f"{doing} {endpoint} failed: {error.args[-1] if error.args else ''} ({code})."
    if is_tls_refused(error):
        named = f" (it is {endpoint.tls_ca.file!r} now)" if endpoint.tls_ca else ""
        return refused(endpoint, what, remedy=_TLS.format(named))
    if isinstance(error, BranchesHiddenError):
        return refused(endpoint, what, remedy=_LIST)
    if passes_by_itself(error):
        return TargetUnreachableError(what, remedy=_REMEDIES[code])
    if code in _REMEDIES:
        return refused(endpoint, what, remedy=_REMEDIES[code])
    if is_connection_lost(error):
        is_full = code == TOO_MANY_CONNECTIONS
        return TargetUnreachableError(what, remedy=_FULL if is_full else _UNREACHABLE)
    if code in NOT_NOW:
        return TargetUnreachableError(what, remedy=_BUSY)
    return refused(endpoint, what, remedy=_GENERIC)


def refused(
    endpoint: Endpoint, what: str, *, remedy: str
) -> PreflightError | TargetUnreachableError:
    """Return the error for a server that does not let the sink work, by when it does so."""
    kind = TargetUnreachableError if endpoint.opened else PreflightError
    return kind(what, remedy=remedy)

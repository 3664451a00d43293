"""A connection that never reconnects, always has deadlines, and never sends a file.

`LOAD DATA LOCAL` lets the server ask the client for a file in reply to any statement, so a
malicious server can read any file of the client. This connection has no code that opens a file. It
answers a request with the bytes that were passed with the current statement, if the request names
exactly those; anything else ends the connection.
"""

from __future__ import annotations

import re
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NoReturn

import pymysql
from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CR
from pymysql.cursors import Cursor
from pymysql.protocol import MysqlPacket

from twophase.errors import PreflightError, StopJobError, TargetUnreachableError
from twophase.sinks.mysql.client.refusals import explain, refused
from twophase.sinks.mysql.options import Endpoint, Tls

if TYPE_CHECKING:
    _Connection = Connection[Cursor]
else:
    _Connection = Connection

PACKET_BYTES = 256 * 1024
_IDLE_S = 3.0
_HEADER_BYTES = 4
_GREETINGS = (0, 10), (0, 255)
"""The number of the first packet, and its first byte: the version of the protocol, or an error."""
_SHOWN_BYTES = 40
_PORT = "correct host and port in url: MySQL listens on 3306 unless it is told otherwise."
_SILENT = (
    "start or restart the server; if it runs, something else has that port (a proxy without a "
    "server behind it, another program): correct host and port in url."
)
_PACKAGE = (
    "install that package where the driver and the executors run, or give the account another "
    "plugin (ALTER USER ... IDENTIFIED WITH)."
)
_STRANGE = "find out which server answers at that address, and correct the url if it is another."
_REFUSED_PLUGINS = ("mysql_clear_password", "mysql_old_password", "dialog")

_NAME = re.compile("`(?:[^`]|``)*`")
_GARBLED = (struct.error, ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""What PyMySQL makes of bytes that no MySQL server sends."""

Row = tuple[Any, ...]


class SecurityError(pymysql.OperationalError):
    """The server asked for something that only a hostile server asks for."""


class NotMySqlError(pymysql.OperationalError):
    """Something else than a MySQL server answers."""


class SilentError(pymysql.OperationalError):
    """Something accepts connections and does not speak: it may be a server that hangs."""


@dataclass(frozen=True)
class Done:
    """The server's reply to a finished statement.

    Attributes:
        affected: rows changed.
        warnings: conditions raised, notes included.
    """

    affected: int
    warnings: int


@dataclass(frozen=True)
class _Stream:
    name: str
    chunks: Iterable[memoryview]


class Session(_Connection):
    """One session on the server, from its handshake to its end (H39).

    Args:
        endpoint: where to connect, with which deadlines.
        local_infile: whether LOAD DATA LOCAL may be used at all.
    """

    server_version: str
    _sock: socket.socket | None
    _next_seq_id: int
    _read_timeout: float | None
    _write_timeout: float | None
    if TYPE_CHECKING:
        _force_close: Callable[[], None]
        _rfile: BufferedReader
        _write_bytes: Callable[[bytes | memoryview], None]

    def __init__(self, endpoint: Endpoint, *, local_infile: bool = False) -> None:
        self._stream: _Stream | None = None
        self._handshake_done = False
        self._reply_is_due = False
        self._used_s = 0.0
        self._endpoint = endpoint
        super().__init__(
            host=endpoint.host,
            port=endpoint.port,
            unix_socket=endpoint.unix_socket,
            user=endpoint.user,
            password=endpoint.password.reveal().encode(),
            database=endpoint.schema,
            charset="utf8mb4",
            autocommit=None,
            local_infile=local_infile,
            connect_timeout=endpoint.connect_timeout_s,
            # For the handshake: a server that accepts the connection and then stays silent
            # counts as unreachable.
            read_timeout=endpoint.connect_timeout_s,
            write_timeout=endpoint.connect_timeout_s,
            auth_plugin_map=dict.fromkeys(_REFUSED_PLUGINS, _RefusePlugin),
            program_name="twophase",
            **_tls_arguments(endpoint),
        )
        self._handshake_done = True
        self._read_timeout = self._write_timeout = endpoint.io_timeout_s

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect once: a second session would not have the first one's branch (H39)."""
        if self._handshake_done:
            raise pymysql.InterfaceError(0, "a session is never opened again")
        super().connect(sock)

    def _get_server_information(self) -> None:
        """Read the greeting with which a MySQL server opens the conversation."""
        seen = self._first_bytes()
        if len(seen) > _HEADER_BYTES and (seen[3], seen[4]) not in _GREETINGS:
            raise NotMySqlError(CR.CR_MALFORMED_PACKET, f"it sent {seen!r}")
        try:
            super()._get_server_information()  # type: ignore[misc]
        except pymysql.OperationalError:
            raise  # a server that refuses, or is gone
        except (pymysql.Error, *_GARBLED):
            raise NotMySqlError(CR.CR_MALFORMED_PACKET, f"it sent {seen!r}") from None

    def _first_bytes(self) -> bytes:
        """Return the beginning of the greeting, without taking it."""
        waited_s = self._endpoint.connect_timeout_s
        assert self._sock is not None  # noqa: S101 - connected just now
        self._sock.settimeout(waited_s)
        try:
            seen: bytes = self._rfile.peek(_SHOWN_BYTES)[:_SHOWN_BYTES]
        except TimeoutError:
            raise SilentError(
                CR.CR_SERVER_LOST,
                f"something accepted the connection and said nothing within {waited_s:g} s",
            ) from None
        if not seen:
            raise SilentError(
                CR.CR_SERVER_LOST, "something accepted the connection and closed it at once"
            )
        return seen

    def is_alive(self) -> bool:
        """Return whether the session is alive: servers and firewalls forget idle ones.

        One that was not used for some seconds is asked for a sign of life, which the server has to
        give in the time that a login may take.
        """
        if not self.open or time.monotonic() - self._used_s < _IDLE_S:
            return self.open
        self._read_timeout = self._endpoint.connect_timeout_s
        try:
            self.ping()
        except pymysql.Error:
            return False
        finally:
            self._read_timeout = self._endpoint.io_timeout_s
        return True

    @property
    def id(self) -> int:
        """The server's number for this session."""
        return int(self.thread_id())  # type: ignore[no-untyped-call]

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB, not MySQL."""
        return "mariadb" in self.server_version.lower()

    def run(self, sql: str, arguments: Sequence[object] = ()) -> Done:
        """Run a statement whose rows, if any, do not matter."""
        with self.cursor() as cursor:
            affected = cursor.execute(_with_names(sql, arguments), tuple(arguments) or None)
        return Done(affected, self._warnings())

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> list[Row]:
        """Run a query and return its rows."""
        with self.cursor() as cursor:
            cursor.execute(_with_names(sql, arguments), tuple(arguments) or None)
            return list(cursor.fetchall())

    def raw_rows(self, sql: str) -> list[Row]:
        """Run a query whose text columns may hold any bytes, and return them as bytes."""
        self.use_unicode = False
        try:
            return self.rows(sql)
        finally:
            self.use_unicode = True

    def run_bytes(self, sql: bytes) -> Done:
        """Run a statement that is already encoded."""
        return Done(self.query(sql), self._warnings())

    def load(self, sql: str, chunks: Iterable[memoryview]) -> Done:
        """Run a LOAD DATA LOCAL statement with these bytes as its file.

        Args:
            sql: the statement, with `{file}` for the file's name.
            chunks: the content of that file.
        """
        # A new name each time: the server cannot ask for it before it has received the statement.
        name = f"twophase-{secrets.token_hex(8)}"
        self._stream = _Stream(name, chunks)
        try:
            return self.run_bytes(sql.replace("{file}", f"'{name}'", 1).encode())
        finally:
            self._stream = None

    def in_transaction(self) -> bool:
        """Return whether the server's last reply reported an open transaction."""
        return bool(self.server_status & 1)

    def end(self) -> None:
        """Close the connection, whatever its state."""
        if self.open:
            self.close()

    def _warnings(self) -> int:
        return self._result.warning_count if self._result is not None else 0

    def _read_query_result(self, unbuffered: bool = False) -> int:
        del unbuffered
        self._result = None
        result = _GuardedResult(self)
        result.read()
        self._result = result
        self._used_s = time.monotonic()
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows or 0

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._reply_is_due = True
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        packet: MysqlPacket = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        first, self._reply_is_due = self._reply_is_due, False
        # Only the first packet of a reply: later ones may begin with the same byte, which
        # is a NULL in a row.
        if first and self._stream is None and packet.is_load_local_packet():
            self._refuse_file(_file_name(packet))
        return packet

    def send_requested(self, name: bytes) -> None:
        """Answer a file request with the stream of the statement, or end the connection."""
        stream, self._stream = self._stream, None
        if stream is None or name != stream.name.encode():
            self._refuse_file(name)
        for chunk in stream.chunks:
            for start in range(0, len(chunk), PACKET_BYTES):
                self._write_view(chunk[start : start + PACKET_BYTES])
        self.write_packet(b"")

    def _refuse_file(self, name: bytes) -> NoReturn:
        self.refuse(f"the server asked for the file {name[:200]!r}; nothing was sent")

    def refuse(self, why: str) -> NoReturn:
        """End the connection to a server that violates the protocol."""
        self._force_close()
        raise SecurityError(CR.CR_MALFORMED_PACKET, why)

    def _write_view(self, payload: memoryview) -> None:
        # Header and payload apart: joining them, as write_packet does, would copy
        # every byte once more.
        self._write_bytes(len(payload).to_bytes(3, "little") + bytes([self._next_seq_id]))
        self._write_bytes(payload)
        self._next_seq_id = (self._next_seq_id + 1) % 256


class _GuardedResult(MySQLResult):
    """Reads a reply; a file request goes to the session's guard."""

    if TYPE_CHECKING:
        _read_ok_packet: Callable[[Any], None]

    def _read_load_local_packet(self, first_packet: Any) -> None:
        session = self.connection
        assert isinstance(session, Session)  # noqa: S101 - only a Session makes one
        session.send_requested(_file_name(first_packet))
        reply = session._read_packet()
        if not reply.is_ok_packet():
            session.refuse("the server went on with something else after the data")
        self._read_ok_packet(reply)


def _file_name(request: MysqlPacket) -> bytes:
    data: bytes = request.get_all_data()  # type: ignore[no-untyped-call]
    return data[1:]


class _RefusePlugin:
    """Replaces every authentication plugin that would send the password in the clear."""

    def __init__(self, connection: object) -> None:
        del connection

    def authenticate(self, packet: object) -> NoReturn:
        """Refuse."""
        del packet
        raise SecurityError(
            CR.CR_AUTH_PLUGIN_ERR, "the server asked for the password in the clear; it was not sent"
        )

    prompt = authenticate


def _tls_arguments(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.tls is Tls.OFF:
        return {"ssl_disabled": True}
    certificates = endpoint.tls_ca.reveal() if endpoint.tls_ca else None
    context = ssl.create_default_context(cadata=certificates)
    # Self-signed authorities made by MySQL lack fields that the strict check of
    # newer Pythons requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if endpoint.tls is not Tls.VERIFY_IDENTITY:
        context.check_hostname = False
    if endpoint.tls is Tls.INSECURE:
        context.verify_mode = ssl.CERT_NONE
    # With a context PyMySQL requires TLS; without one it would silently fall back to plain text.
    return {"ssl": context}


def _with_names(sql: str, arguments: Sequence[object]) -> str:
    """Return a statement whose quoted names may have a `%`: none of them is an argument's place."""
    if not arguments:
        return sql
    return _NAME.sub(lambda name: name[0].replace("%", "%%"), sql)


def connect(endpoint: Endpoint, *, local_infile: bool = False) -> Session:
    """Open a session.

    Raises:
        PreflightError: the server refuses the login, or is not the expected server.
        TargetUnreachableError: it does not answer, also if something accepts the connection and
            says nothing; or it refuses the login of a sink that is open.
    """
    try:
        return Session(endpoint, local_infile=local_infile)
    except SecurityError as error:
        raise PreflightError(
            f"Cannot connect to {endpoint}: {error.args[-1]}.",
            remedy="find out which server answers at that address.",
        ) from error
    except NotMySqlError as error:
        raise refused(
            endpoint,
            f"No MySQL server answers at {_address(endpoint)}: {error.args[-1]}.",
            remedy=_PORT,
        ) from error
    except SilentError as error:
        raise TargetUnreachableError(
            f"No MySQL server answers at {_address(endpoint)}: {error.args[-1]}.", remedy=_SILENT
        ) from error
    except pymysql.Error as error:
        raise explain(endpoint, error, "The login at") from error
    except RuntimeError as error:  # PyMySQL lacks a package for the account's plugin
        raise refused(
            endpoint, f"Cannot connect to {endpoint}: {error}.", remedy=_PACKAGE
        ) from error
    except (OSError, *_GARBLED) as error:  # a server that breaks the protocol
        what = f"Cannot connect to {endpoint}: {type(error).__name__}: {error}."
        raise refused(endpoint, what, remedy=_STRANGE) from error


def _address(endpoint: Endpoint) -> str:
    return endpoint.unix_socket or f"{endpoint.host}:{endpoint.port}"


def hostile(error: SecurityError) -> StopJobError:
    """Return the error that stops the job at a server that behaves as only a hostile one does."""
    return StopJobError(
        f"The job stops: {error.args[-1]}.",
        remedy="find out which server answers at the sink's address.",
    )

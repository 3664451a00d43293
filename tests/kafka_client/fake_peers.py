"""Servers on this machine that behave as brokers do, or as something else that listens."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Peer = Callable[[socket.socket], None]

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
_KNOWN = {_API_VERSIONS: (0, 0), _HANDSHAKE: (0, 1), _AUTHENTICATE: (0, 1), 3: (0, 1)}
_UNSUPPORTED_VERSION, _LOGIN_FAILED = 35, 58


@contextmanager
def listening() -> Iterator[Callable[[Peer], int]]:
    """Give a call that starts a server, and returns its port on 127.0.0.1."""
    sockets: list[socket.socket] = []

    def started(peer: Peer) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    peer(connection)
                except OSError:
                    return  # the client has gone

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # the test is over
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(server.getsockname()[1])

    yield started
    for server in sockets:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def says(answer: bytes, *, first: bool = False) -> Peer:
    """Return a peer that sends bytes, at once or after a request, and closes."""

    def serve(connection: socket.socket) -> None:
        if not first:
            connection.recv(4096)
        connection.sendall(answer)

    return serve


def says_nothing(connection: socket.socket) -> None:
    """Take all, as a broker that hangs does."""
    while connection.recv(4096):
        pass


def refuses_logins(connection: socket.socket) -> None:
    """Be a broker that says why it refuses a password, and closes in the same breath."""
    while True:
        key, version, correlation = _request(connection)
        if key == _AUTHENTICATE:
            why = b"Invalid username or password"
            body = struct.pack(f">hh{len(why)}si", _LOGIN_FAILED, len(why), why, 0)
            body += struct.pack(">q", 0) * (version > 0)
            # with the end in one packet
            connection.sendall(_framed(correlation, body), socket.MSG_MORE)
            return
        connection.sendall(_framed(correlation, _ANSWERS[key](version)))


def _versions(version: int) -> bytes:
    error = _UNSUPPORTED_VERSION if version else 0
    listed = (struct.pack(">hhh", key, *limits) for key, limits in _KNOWN.items())
    return struct.pack(">hi", error, len(_KNOWN)) + b"".join(listed)


def _mechanisms(_: int) -> bytes:
    return struct.pack(">hih5s", 0, 1, 5, b"PLAIN")


_ANSWERS = {_API_VERSIONS: _versions, _HANDSHAKE: _mechanisms}


def _request(connection: socket.socket) -> tuple[int, int, int]:
    """Return API, version and correlation of the next request."""
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    key, version, correlation = struct.unpack(">hhi", _exactly(connection, length)[:8])
    return key, version, correlation


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = connection.recv(length, socket.MSG_WAITALL)
    if len(found) < length:
        raise ConnectionError("the client has gone")
    return found


def _framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body

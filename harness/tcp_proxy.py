"""Proxies between a client and its servers: one cuts the connection at a chosen moment, one falls
silent, one keeps replies back, one changes statements, one switches to another server.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from typing import Self


class _Proxy:
    """Listens on its own port, and opens a connection to the server for each client.

    Args:
        host: of the server.
        port: of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                # it is down, as in a failover: the next connection may find another one
                _close(client)
                continue
            self._serve(client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Start to forward, in separate threads."""
        raise NotImplementedError


class CuttingProxy(_Proxy):
    """Forwards everything until a client sends `trigger`: that still reaches the server, but its
    reply does not come back.

    It cuts once; later connections are left alone.

    Attributes:
        trigger: what a client sends; it may be set later.
        then: called once, when that has been sent on.
        cuts: how often it has cut.
    """

    def __init__(self, host: str, port: int, trigger: bytes) -> None:
        self.trigger = trigger
        self.then: Callable[[], None] = lambda: None
        self.cuts = 0
        self._is_done = threading.Event()
        super().__init__(host, port)

    def join(self) -> None:
        """Wait until `then` has been called, if it has cut."""
        if self.cuts:
            self._is_done.wait()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        mute = threading.Event()
        threading.Thread(target=self._to_server, args=(client, server, mute), daemon=True).start()
        threading.Thread(target=self._to_client, args=(client, server, mute), daemon=True).start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, mute: threading.Event
    ) -> None:
        while data := _receive(client):
            is_cut = self.trigger in data and not self.cuts
            if is_cut:
                self.cuts += 1
                mute.set()
            try:
                server.sendall(data)
            except OSError:
                break
            if is_cut:
                self.then()
                self._is_done.set()
        _close(server)

    def _to_client(
        self, client: socket.socket, server: socket.socket, mute: threading.Event
    ) -> None:
        while data := _receive(server):
            if mute.is_set():
                break
            try:
                client.sendall(data)
            except OSError:
                break
        _close(client)
        _close(server)


class RewritingProxy(_Proxy):
    """Forwards everything, but replaces some bytes of a client by others, with spaces to the same
    length.

    The server then does not know a statement, as one of another kind would not, or answers
    something else than the client has asked.

    Args:
        host: of the server.
        port: of the server.
        found: a regular expression.
        instead: at most as long as what it matches.

    Attributes:
        instead: as given; None lets everything pass from now on.
    """

    def __init__(self, host: str, port: int, found: bytes, instead: bytes | None) -> None:
        self._found = re.compile(found)
        self.instead = instead
        super().__init__(host, port)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        def rewrite(data: bytes) -> bytes:
            instead = self.instead
            if instead is None:
                return data
            return self._found.sub(lambda found: instead.ljust(len(found[0])), data)

        threading.Thread(target=_forward, args=(client, server, rewrite), daemon=True).start()
        threading.Thread(target=_forward, args=(server, client), daemon=True).start()


class SilentProxy(_Proxy):
    """Forwards everything until it is silenced: then the bytes of every connection vanish, and the
    connections stay open. Later connections are served.
    """

    def __init__(self, host: str, port: int) -> None:
        self._silent: list[threading.Event] = []
        super().__init__(host, port)

    def silence(self) -> None:
        """Swallow all that the connections of now send from here on."""
        for silent in self._silent:
            silent.set()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        silent = threading.Event()
        self._silent.append(silent)

        def swallow(data: bytes) -> bytes:
            return b"" if silent.is_set() else data

        threading.Thread(target=_forward, args=(client, server, swallow), daemon=True).start()
        threading.Thread(target=_forward, args=(server, client), daemon=True).start()


class MuteProxy(_Proxy):
    """Forwards everything, and while it is mute only the beginning of replies: the connections stay
    open, as those of a server that hangs.

    Args:
        host: of the server.
        port: of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._passes: int | None = None
        self._trigger = b""
        self._reaches = True
        self._clients: list[socket.socket] = []
        super().__init__(host, port)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for client in self._clients:
            _close(client)

    def mute(self, passes: int, trigger: bytes = b"", *, reaches: bool = True) -> None:
        """From now on let so many bytes of replies through, in each connection.

        Args:
            passes: the bytes.
            trigger: only of the replies to what a client sends with it, and to all after that.
            reaches: whether the server gets that.
        """
        self._passes, self._trigger, self._reaches = passes, trigger, reaches

    def answer(self) -> None:
        """From now on connections are served again."""
        self._passes = None

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        self._clients.append(client)
        is_triggered = threading.Event()
        passed = 0

        def ask(data: bytes) -> bytes:
            if self._passes is not None and self._trigger in data:
                is_triggered.set()
            return b"" if is_triggered.is_set() and not self._reaches else data

        def reply(data: bytes) -> bytes:
            nonlocal passed
            passes = self._passes
            if passes is None or not is_triggered.is_set():
                return data
            kept = data[: max(0, passes - passed)]
            passed += len(kept)
            return kept

        for ends in ((client, server, ask), (server, client, reply)):
            threading.Thread(target=_forward, args=ends, daemon=True).start()


class Switchboard(_Proxy):
    """Forwards to one server until it is switched to another one, as a name or an address
    is after a failover.

    For clients that are idle during the switch.

    Args:
        host: of all servers.
        port: of the first one.
    """

    def __init__(self, host: str, port: int) -> None:
        self._clients: list[socket.socket] = []
        super().__init__(host, port)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._cut()

    def lead_to(self, port: int) -> None:
        """Cut every connection; later ones lead to another server."""
        self._server = (self._server[0], port)
        self._cut()

    def _cut(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            _close(client)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        self._clients.append(client)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=_forward, args=(source, sink), daemon=True).start()


def _forward(
    source: socket.socket,
    sink: socket.socket,
    change: Callable[[bytes], bytes] = lambda data: data,
) -> None:
    while data := _receive(source):
        try:
            sink.sendall(change(data))
        except OSError:
            break
    _close(sink)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

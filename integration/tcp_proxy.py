"""A proxy between a client and a server that cuts the line at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading


class CuttingProxy:
    """Forwards everything until a client sends `trigger`: that still reaches the server, its reply does not come back.

    It cuts once; later connections are left alone.
    """

    def __init__(self, host: str, port: int, trigger: bytes) -> None:
        self._server = (host, port)
        self._trigger = trigger
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            mute = threading.Event()
            threading.Thread(target=self._to_server, args=(client, server, mute), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, server, mute), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        while data := _receive(client):
            if self._trigger in data and not self.cuts:
                self.cuts += 1
                mute.set()
            try:
                server.sendall(data)
            except OSError:
                break
        _close(server)

    def _to_client(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        while data := _receive(server):
            if mute.is_set():
                break
            try:
                client.sendall(data)
            except OSError:
                break
        _close(client)
        _close(server)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

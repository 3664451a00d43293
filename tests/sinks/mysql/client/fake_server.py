"""A MySQL server that lies: raw sockets, scripted replies."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

_LONG_PASSWORD, _LOCAL_FILES, _PROTOCOL_41, _SSL = 0x1, 0x80, 0x200, 0x800
_TRANSACTIONS, _SECURE_CONNECTION, _PLUGIN_AUTH = 0x2000, 0x8000, 0x80000

PING = b"\x0e"
OK = b"\x00\x00\x00\x02\x00\x00\x00"


def file_request(name: str) -> bytes:
    return b"\xfb" + name.encode()


@dataclass
class FakeServer:
    """Serves one connection.

    Attributes:
        answer: gives the reply to a statement.
        after_login: what is sent instead of OK when the client has logged in.
        after_plugin: the reply to what the client sends by another plugin, if `after_login` asks
            for one.
        plugin: the way of logging in that the server asks for.
        tls: the server's certificate, if it offers TLS.
        received: every packet from the client after the handshake, without headers.
    """

    answer: Callable[[bytes], bytes] = lambda _: OK
    after_login: bytes = OK
    after_plugin: bytes | None = None
    plugin: bytes = b"mysql_native_password"
    tls: ssl.SSLContext | None = None
    received: list[bytes] = field(default_factory=list)

    def __enter__(self) -> FakeServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(5)

    def finish(self) -> None:
        """Wait until the client has hung up."""
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self._socket, _ = self._listener.accept()
            with self._socket:
                self._converse()
        except (OSError, EOFError):
            return

    def _converse(self) -> None:
        self._send(self._greeting(), 0)
        number, response = self._receive()
        if struct.unpack("<I", response[:4])[0] & _SSL:
            assert self.tls is not None
            self._socket = self.tls.wrap_socket(self._socket, server_side=True)
            number, response = self._receive()
        self.received.append(response)
        self._send(self.after_login, number + 1)
        if self.after_plugin is not None:
            number, response = self._receive()
            self.received.append(response)
            self._send(self.after_plugin, number + 1)
        while True:
            number, packet = self._receive()
            self.received.append(packet)
            if packet[:1] == b"\x01" and number == 0:
                return
            if packet[:1] == b"\x03" and number == 0:
                self._send(self.answer(packet[1:]), 1)
            elif packet in (b"", PING):
                self._send(OK, number + 1)

    def _greeting(self) -> bytes:
        flags = (
            _LONG_PASSWORD
            | _LOCAL_FILES
            | _PROTOCOL_41
            | _TRANSACTIONS
            | _SECURE_CONNECTION
            | _PLUGIN_AUTH
        )
        flags |= _SSL if self.tls else 0
        return (
            b"\x0a8.0.12\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<HBHHB",
                flags & 0xFFFF, 45, 2, flags >> 16, 21)
            + b"\0" * 10 + b"123456789012\0" + self.plugin + b"\0"
        )  # fmt: skip

    def _send(self, payload: bytes, number: int) -> None:
        self._socket.sendall(len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload)

    def _receive(self) -> tuple[int, bytes]:
        header = self._read(4)
        return header[3], self._read(int.from_bytes(header[:3], "little"))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


@dataclass
class OtherPeer:
    """Something that is no MySQL server: sends its bytes to whoever connects.

    Attributes:
        says: what it sends.
        stays: it waits for the client to hang up, instead of closing at once.
    """

    says: bytes
    stays: bool

    def __enter__(self) -> OtherPeer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(self.says)
                while self.stays and connection.recv(65536):
                    continue

"""Asks what answers at the bootstrap servers, once the client has given up, for a better error."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from twophase.kafka_client.access import AccessError, tls_remedy
from twophase.kafka_client.credentials import tls_context
from twophase.kafka_client.options import ConnectionOptions

_TIMEOUT_S = 2.0
_MOST_SERVERS = 3
_CORRELATION = 0x7470
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
"""The first request of every client, which every broker answers, before any login."""
_LENGTH = 8
_ADDRESS = (
    "set kafka.bootstrap.servers to the address of a broker's listener, and "
    "kafka.security.protocol to the protocol of that listener."
)
_WITH_TLS = "set kafka.security.protocol to SSL or SASL_SSL, or name another listener's port."
_WITHOUT_TLS = (
    "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name another listener's port."
)


@dataclass
class Peers:
    """What answers at the bootstrap servers.

    Attributes:
        broker: whether one of them is a broker.
        refusal: why none can be talked to, if something else answers; None otherwise.
        seen: of servers that take connections without an answer what they do, as a clause: of a
            broker that hangs, or behind a proxy that is there without it. Beside a broker also
            which servers take none.
    """

    broker: bool = False
    refusal: AccessError | None = None
    seen: str = ""


def look_at_peers(options: ConnectionOptions) -> Peers:
    """Ask the first few bootstrap servers what they are; a silent one takes some seconds.

    Raises:
        SecretError: a file that TLS needs cannot be read.
    """
    found, others = Peers(), []
    for host, port in _servers(options):
        try:
            problem, remedy = _problem(host, port, options)
        except (OSError, UnicodeError):  # nobody takes the connection, or it is no name of a host
            others.append(f"{host}:{port} takes no connections")
            continue
        if not problem:
            found.broker = True
        elif not remedy:
            found.seen = found.seen or f"{host}:{port} {problem}"
            others.append(f"{host}:{port} {problem}")
        elif found.refusal is None:
            what = f"No Kafka broker answers at {host}:{port}: {problem}."
            found.refusal = AccessError(what, remedy=remedy)
    return Peers(broker=True, seen=", ".join(others)) if found.broker else found


def _servers(options: ConnectionOptions) -> Iterator[tuple[str, int]]:
    for server in options.bootstrap_servers.split(",")[:_MOST_SERVERS]:
        host, _, port = server.rpartition(":")
        yield host.strip("[]"), int(port)


def _problem(host: str, port: int, options: ConnectionOptions) -> tuple[str, str]:
    """Return what is wrong, and its remedy: empty if it may pass, both if a broker answers."""
    with closing(socket.create_connection((host, port), _TIMEOUT_S)) as connection:
        if not options.tls:
            return _without_tls(host, port, _answer(connection))
        try:
            with tls_context(options).wrap_socket(connection, server_hostname=host) as secured:
                answer = _answer(secured, raises=ssl.SSLError)
        except OSError as error:  # of ssl too
            if remedy := tls_remedy(str(error)):
                return f"TLS fails: {error}", remedy
            if isinstance(error, TimeoutError):
                return _silence(None), ""
            answer = _plain_answer(host, port)
            if _is_kafka(answer):
                return "what answers there speaks Kafka without TLS", _WITHOUT_TLS
            if not answer:
                return _silence(answer), ""
            if _is_tls(answer) and "alert" not in str(error).lower():
                return f"ends the TLS handshake: {error}", ""
            return f"TLS fails: {error}; {_named(answer)}", _ADDRESS
    return _of(answer)


def _without_tls(host: str, port: int, answer: bytes | None) -> tuple[str, str]:
    if _is_tls(answer) or (not answer and _speaks_tls(host, port)):
        return "what answers there speaks TLS", _WITH_TLS
    return _of(answer)


def _of(answer: bytes | None) -> tuple[str, str]:
    if _is_kafka(answer):
        return "", ""
    return (_named(answer), _ADDRESS) if answer else (_silence(answer), "")


def _plain_answer(host: str, port: int) -> bytes | None:
    try:
        with closing(socket.create_connection((host, port), _TIMEOUT_S)) as connection:
            return _answer(connection)
    except OSError:
        return b""


def _answer(
    connection: socket.socket, *, raises: tuple[type[OSError], ...] | type[OSError] = ()
) -> bytes | None:
    """Return the first bytes of the answer to a request; None if there is no answer in time.

    Raises:
        OSError: one of `raises`; any other ends the answer.
    """
    got = b""
    try:
        connection.settimeout(_TIMEOUT_S)
        with suppress(OSError):  # it has closed the connection, and may have said why
            connection.sendall(_API_VERSIONS)
        while len(got) < _LENGTH and (more := connection.recv(_LENGTH)):
            got += more
    except raises:
        raise
    except TimeoutError:
        return got or None
    except OSError:
        return got
    return got


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether a server begins a handshake; nothing is sent over it, so nobody is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with closing(socket.create_connection((host, port), _TIMEOUT_S)) as connection:
            context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLError as error:
        return "alert" in str(error).lower()
    except OSError:
        return False
    return True


def _is_kafka(answer: bytes | None) -> bool:
    return answer is not None and answer[4:8] == struct.pack(">i", _CORRELATION)


def _is_tls(answer: bytes | None) -> bool:
    return answer is not None and answer[:2] == b"\x15\x03"


def _silence(answer: bytes | None) -> str:
    """Return what a server does that says nothing, as a clause without its subject."""
    if answer is None:
        return "takes connections, and answers nothing"
    return "closes each connection without an answer"


def _named(answer: bytes) -> str:
    """Return what a server is that does not speak Kafka, as a clause."""
    if answer.startswith(b"HTTP/"):
        return "an HTTP server answers there"
    if answer.startswith(b"SSH-"):
        return "an SSH server answers there"
    if answer[3:5] == b"\x00\x0a":
        return "a MySQL server answers there"
    return "what answers there does not speak Kafka"

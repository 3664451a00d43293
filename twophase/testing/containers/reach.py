"""Where a container is reached, and whether anyone is there."""

from __future__ import annotations

import socket
from dataclasses import dataclass

_CONNECT_TIMEOUT_S = 1.0
_CLOSED_WITHIN_S = 0.2


@dataclass(frozen=True)
class Address:
    """Where clients reach a container."""

    host: str
    port: int


def keeps_connections(address: Address) -> bool:
    """Whether the server behind a published port takes connections; says nothing about whether it is ready.

    The engine itself takes them from the first moment, and closes them at once as long as nothing listens inside.
    """
    try:
        connection = socket.create_connection((address.host, address.port), _CONNECT_TIMEOUT_S)
    except OSError:
        return False
    with connection:
        connection.settimeout(_CLOSED_WITHIN_S)
        try:
            return connection.recv(1) != b""  # MySQL speaks first
        except TimeoutError:
            return True  # Kafka waits for its client
        except OSError:
            return False

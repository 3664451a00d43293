"""The address of a container, and a check that somebody listens there."""

from __future__ import annotations

import socket
from dataclasses import dataclass

_CONNECT_TIMEOUT_S = 1.0
_CLOSED_WITHIN_S = 0.2


@dataclass(frozen=True)
class Address:
    """The address at which clients reach a container."""

    host: str
    port: int


def keeps_connections(address: Address) -> bool:
    """Return whether the server behind a published port accepts connections, ready or not.

    The engine itself accepts them from the first moment, and closes them at once as long as
    nothing listens inside.
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

"""Free loopback ports that stay free while a server is down for a restart."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from twophase.errors import ServiceError

LOOPBACK = "127.0.0.1"
_LOWEST_PORT = 15_000
_USUAL_EPHEMERAL_START = 32_768
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """Pick `count` ports that nobody listens on.

    They are below the range that the kernel gives to outgoing connections: a port from that range
    can be taken by any client while its server is down between kill and restart, even by a client
    connecting to itself.
    """
    top = _ephemeral_start()
    found: list[int] = []
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST_PORT, top)  # noqa: S311 - not a secret
        if port not in found and _can_bind(port):
            found.append(port)
        if len(found) == count:
            return found
    raise ServiceError(
        f"No {count} free ports between {_LOWEST_PORT} and {top} on "
        f"{LOOPBACK} after {_TRIES} tries.",
        remedy="end processes that listen there (`ss -ltn`).",
    )


def accepts_connections(port: int) -> bool:
    """Return whether something listens on the loopback port; it may not be ready yet."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        start = int(text.split()[0])
    except (OSError, ValueError, IndexError):
        start = _USUAL_EPHEMERAL_START
    return start if start > _LOWEST_PORT + 1_000 else _USUAL_EPHEMERAL_START

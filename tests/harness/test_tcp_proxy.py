"""The address that leads to another server after a failover: a server that does not answer ends one
line, not the address.
"""

from __future__ import annotations

import socket

from harness.tcp_proxy import Switchboard

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_a_server_that_does_not_answer_costs_one_line_only() -> None:
    with Switchboard(HOST, free_port()) as address, socket.create_server((HOST, 0)) as server:
        server.settimeout(10)
        with socket.create_connection((HOST, address.port), 10) as refused:
            assert refused.recv(1) == b""
        address.lead_to(server.getsockname()[1])
        with socket.create_connection((HOST, address.port), 10) as client:
            client.sendall(b"ping")
            reached, _ = server.accept()
            with reached:
                reached.settimeout(10)
                assert reached.recv(4) == b"ping"

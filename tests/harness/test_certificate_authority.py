"""What an authority of tests signs is accepted as strictly as Python 3.13 asks for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from harness.certificate_authority import FolderAuthority


@pytest.mark.parametrize("name", ["127.0.0.1", "broker"])
def test_a_certificate_has_the_extensions_that_a_strict_client_asks_for(
    tmp_path: Path, name: str
) -> None:
    authority = FolderAuthority(tmp_path)
    client = ssl.create_default_context(cafile=authority.file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    shake_hands(client, authority.server(name), name)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)

"""A token endpoint of OAuth on this machine, whose tokens are unsecured JWS: a broker without keys
accepts them until they expire.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

CLIENT = "etl"


class TokenEndpoint:
    """What it answers, and what it was asked.

    Attributes:
        life_s: of a token.
        status: of its answers.
        answer: instead of a token.
        redirect: where its answers lead, if anywhere.
        refused: so many of the next tokens have expired already.
        asked: the form and the account of each request.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/token"
        self.life_s = 3600
        self.status = 200
        self.answer: dict[str, Any] | None = None
        self.redirect = ""
        self.refused = 0
        self.asked: list[tuple[dict[str, list[str]], str]] = []

    @property
    def granted(self) -> int:
        """How many requests it has had."""
        return len(self.asked)

    def respond(self, body: bytes, account: str) -> dict[str, Any]:
        """Return the answer to one request."""
        self.asked.append((parse_qs(body.decode()), account))
        if self.answer is not None:
            return self.answer
        now = time.time()
        expires = now - 60 if self.refused > 0 else now + self.life_s
        self.refused -= 1
        claims = {"sub": CLIENT, "iat": now - 120, "exp": expires}
        parts = (base64.urlsafe_b64encode(json.dumps(one).encode()) for one in (_HEAD, claims))
        token = ".".join(part.decode().rstrip("=") for part in parts) + "."
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}


_HEAD = {"alg": "none"}


@contextmanager
def token_endpoint(tls: ssl.SSLContext | None = None) -> Iterator[TokenEndpoint]:
    """Run one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            scheme, _, account = self.headers["Authorization"].partition(" ")
            assert scheme == "Basic"
            answer = json.dumps(endpoint.respond(body, base64.b64decode(account).decode())).encode()
            self.send_response(endpoint.status)
            if endpoint.redirect:
                self.send_header("Location", endpoint.redirect)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = TokenEndpoint(server.server_port)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        endpoint.url = endpoint.url.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A gateway before a REST catalog: it asks for a login, speaks TLS, and loses or repeats what it is
told to, as the gateways and load balancers before real catalogs do.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

Reply = tuple[int, bytes]
Forward = Callable[[bytes], Reply]
_TOKENS = "/v1/oauth/tokens"
_CONFIG = "/v1/config"


class Gateway:
    """What it does, and what it was asked.

    Attributes:
        uri: for clients.
        tokens: those that it lets pass; it lets all pass if there are none.
        credential: `client_id:client_secret` of the client that gets the first of the tokens.
        on_commit: instead of forwarding a commit; it gets the body, and what forwards one.
        headers: of the last request.
        scope: that has to be asked for, if any.
        warehouse: that it knows; it knows all if there is none.
        prefix: that has to be in the paths, if any.
        wanted: headers that each request must have, by their names in lower case.
        tokens_at: the path where the client gets a token.
        refuses: the status with which it refuses everybody, and repeats the token; or 0.
        answers: what it says instead of the catalog of namespaces and tables, if anything.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.tokens: list[str] = []
        self.credential = ""
        self.on_commit: Callable[[bytes, Forward], Reply | None] | None = None
        self.headers: dict[str, str] = {}
        self.scope = ""
        self.warehouse = ""
        self.prefix = ""
        self.wanted: dict[str, str] = {}
        self.tokens_at = _TOKENS
        self.refuses = 0
        self.answers: Reply | None = None

    def refusal(self, target: str, body: bytes) -> Reply | None:
        """Return the reply to a request that goes no further."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if self.refuses and (self.refuses >= 500 or path != self.tokens_at):
            return error(self.refuses, "Refused", f"told {self.headers.get('authorization')}")
        if self.credential and path == self.tokens_at:
            form = parse_qs(body.decode())
            given = f"{form['client_id'][0]}:{form['client_secret'][0]}"
            if given != self.credential:
                said = {"error": "invalid_client", "error_description": f"no client {given}"}
                return 401, json.dumps(said).encode()
            if self.scope and form.get("scope") != [self.scope]:
                said = {"error": "invalid_scope", "error_description": "not this scope"}
                return 400, json.dumps(said).encode()
            answer = {"access_token": self.tokens[0], "token_type": "bearer"}
            return 200, json.dumps(answer).encode()
        found = self.headers.get("authorization", "")
        if self.tokens and found.removeprefix("Bearer ") not in self.tokens:
            return error(401, "NotAuthorizedException", f"unknown: {found}")
        if [name for name, value in self.wanted.items() if self.headers.get(name) != value]:
            return error(400, "BadRequestException", "no such tenant")
        if path == _CONFIG:
            is_known = not self.warehouse or query.get("warehouse") == [self.warehouse]
            return None if is_known else error(404, "NotFoundException", "no such warehouse")
        if self.prefix and not path.startswith(f"/v1/{self.prefix}/"):
            return error(404, "NotFoundException", "no such prefix")
        return self.answers

    def path(self, target: str) -> str:
        """Return where the catalog has what a request is for."""
        return target.replace(f"/v1/{self.prefix}/", "/v1/", 1) if self.prefix else target


def error(status: int, kind: str, message: str) -> Reply:
    """Return a reply as a catalog says that it refuses."""
    body = {"error": {"message": message, "type": kind, "code": status}}
    return status, json.dumps(body).encode()


@contextmanager
def gateway(uri: str, certificate: Path | None = None) -> Iterator[Gateway]:
    """Run one.

    Args:
        uri: of the catalog.
        certificate: of the gateway, with its key, PEM; without one it speaks no TLS.
    """
    server_address = urlsplit(uri).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.headers = {name.lower(): value for name, value in self.headers.items()}
            reply = made.refusal(self.path, body)
            is_commit = self.command == "POST" and "/tables/" in self.path
            if reply is None and is_commit and made.on_commit is not None:
                reply = made.on_commit(body, self.forward)
                if reply is None:  # lost
                    self.close_connection = True
                    return
            status, data = reply or self.forward(body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def forward(self, body: bytes) -> Reply:
            connection = http.client.HTTPConnection(server_address)
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() in ("content-type", "x-client-version")
            }
            connection.request(self.command, made.path(self.path), body, kept)
            reply = connection.getresponse()
            found = reply.status, reply.read()
            connection.close()
            return found

        do_GET = do_POST = do_DELETE = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    made = Gateway(f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

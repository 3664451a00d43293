"""Connection settings of the Kafka clients: TLS, SASL, timeouts."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.net.selector import NetworkSelector

from twophase.kafka_client.credentials import (
    SecretError,
    check_secrets,
    key_password,
    sasl_password,
    tls_context,
)
from twophase.kafka_client.oauth_tokens import Tokens, granted_tokens
from twophase.kafka_client.options import ConnectionOptions, SaslMechanism

CLIENT_ID = "twophase"
_LEAST_ATTEMPT_S = 3.0
_LAST_WORDS_S = 1.0


def for_kafka_python(options: ConnectionOptions) -> dict[str, Any]:
    """Return arguments for the clients of kafka-python, which read the secrets for each connection.

    Raises:
        SecretError: a secret cannot be read.
    """
    check_secrets(options)
    timeout_ms = int(options.request_timeout_s * 1000)
    settings: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers.split(","),
        "client_id": CLIENT_ID,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": options.security_protocol.value,
        "kafka_client": _client,
    }
    if options.tls:
        settings["ssl_context"] = _Tls(options)
    if (tokens := granted_tokens(options)) is not None:
        settings |= {
            "sasl_mechanism": SaslMechanism.OAUTHBEARER.value,
            "sasl_oauth_token_provider": _Provider(tokens),
        }
    elif options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl_mechanism": options.sasl_mechanism.value,
            "sasl_plain_username": options.sasl_username,
            "sasl_plain_password": _Password(options),
        }
    return settings


def for_librdkafka(options: ConnectionOptions) -> dict[str, Any]:
    """Return settings for the clients of librdkafka, with the passwords as they are now.

    Raises:
        SecretError: a password cannot be read.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": CLIENT_ID,
        "socket.timeout.ms": int(options.request_timeout_s * 1000),
        "reconnect.backoff.max.ms": 1000,
        "allow.auto.create.topics": False,  # a producer asks for that by default
        "security.protocol": options.security_protocol.value,
    }
    if options.tls:
        settings |= {
            "enable.ssl.certificate.verification": True,
            "ssl.endpoint.identification.algorithm": "https",
            "ssl.ca.location": options.ssl_ca,
            "ssl.certificate.location": options.ssl_certificate,
            "ssl.key.location": options.ssl_key,
            "ssl.key.password": key_password(options),
        }
    if (tokens := granted_tokens(options)) is not None:

        def granted(_: str) -> tuple[str, float]:
            token = tokens.token()
            return token.text, token.expires_at_s

        settings |= {"sasl.mechanism": SaslMechanism.OAUTHBEARER.value, "oauth_cb": granted}
    elif options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl.mechanism": options.sasl_mechanism.value,
            "sasl.username": options.sasl_username,
            "sasl.password": sasl_password(options),
        }
    return {name: value for name, value in settings.items() if value is not None}


def _client(**settings: Any) -> KafkaNetClient:
    """Return what kafka-python's clients are built on."""
    net = NetworkSelector(**settings)
    return KafkaNetClient(net, _Manager(net, **settings))


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Leaves time for the other brokers if one hangs, and reads why one closes a connection."""

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **more: Any) -> Any:
        """Return a connection; a bootstrap, which has a timeout, tries several brokers in it."""
        if timeout_ms is not None:
            most_s = _attempt_s(self.config["request_timeout_ms"] / 1000)
            timeout_ms = min(timeout_ms, most_s * 1000)
        return super().get_connection(node_id, timeout_ms=timeout_ms, **more)

    async def _build_transport(self, *arguments: Any, **more: Any) -> Any:
        transport = await super()._build_transport(*arguments, **more)
        receive, send = transport._sock_recv, transport._sock_send

        def received() -> tuple[bytes, Exception | None]:
            # kafka-python drops what arrives together with the end: why a broker refuses a login
            data, error = receive()
            return data, None if data else error  # the end is there the next time too

        def sent() -> tuple[int, Exception | None]:
            # nor does it read what a broker said before it closed: an alert of TLS
            count, error = send()
            if error is not None:
                self._net.call_later(_LAST_WORDS_S, lambda: transport.abort(error))
            return count, None

        transport._sock_recv, transport._sock_send = received, sent
        return transport


def _attempt_s(request_timeout_s: float) -> float:
    """Return how long a connection may take to open, while others may be better."""
    return min(request_timeout_s, max(_LEAST_ATTEMPT_S, request_timeout_s / 3))


class _Tls:
    """Stands for an `ssl.SSLContext`: kafka-python takes nothing of it but a new socket."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options

    def wrap_socket(self, *arguments: Any, **more: Any) -> ssl.SSLSocket:
        """Return a socket with TLS, by the files as they are now."""
        try:
            context = tls_context(self._options)
        except SecretError as error:
            raise KafkaConnectionError(str(error)) from error
        context.sslsocket_class = _TlsSocket
        secured = context.wrap_socket(*arguments, **more)
        secured.limit_handshake(_attempt_s(self._options.request_timeout_s))  # type: ignore[attr-defined]
        return secured


class _TlsSocket(ssl.SSLSocket):
    """Ends a handshake that takes too long: kafka-python would wait for ever."""

    _limit: threading.Timer | None = None
    _late = ""

    def limit_handshake(self, timeout_s: float) -> None:
        """Shut the socket down after some time, which the handshake finds, unless it is over."""
        self._limit = threading.Timer(timeout_s, self._give_up, [timeout_s])
        self._limit.daemon = True
        self._limit.start()

    def do_handshake(self, block: bool = False) -> None:
        """Take the next step."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:  # kafka-python does not close the socket
            self._unlimit()
            if self._late:
                raise TimeoutError(self._late) from None
            raise
        self._unlimit()

    def close(self) -> None:
        """Close the socket, and nobody waits for it any more."""
        self._unlimit()
        super().close()

    def _unlimit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _give_up(self, after_s: float) -> None:
        self._late = f"it has taken more than {after_s:g} s"
        with suppress(OSError):  # it is closed
            socket.socket.shutdown(self, socket.SHUT_RDWR)  # not TLS's, which is in use elsewhere


class _Password:
    """Stands for a password, which is read when a connection authenticates."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options

    def read(self) -> str | None:
        """Return the password as it is now."""
        try:
            return sasl_password(self._options)
        except SecretError as error:
            raise KafkaConnectionError(str(error)) from error


class _Plain(SaslMechanismPlain):  # type: ignore[misc]
    def __init__(self, **settings: Any) -> None:
        super().__init__(**_with_password(settings))


class _Scram(SaslMechanismScram):  # type: ignore[misc]
    def __init__(self, **settings: Any) -> None:
        super().__init__(**_with_password(settings))


def _with_password(settings: dict[str, Any]) -> dict[str, Any]:
    given = settings.get("sasl_plain_password")
    read = given.read() if isinstance(given, _Password) else given
    return settings | {"sasl_plain_password": read}


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives kafka-python a token, whenever it authenticates a connection."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        """Return a token that has not expired."""
        return self._tokens.token().text

    def refused(self) -> None:
        """Get another one for the next connection."""
        self._tokens.refused()


class _Bearer(SaslMechanismOAuth):  # type: ignore[misc]
    """Says when a broker has refused a token: kafka-python answers, and loses the connection."""

    def receive(self, auth_bytes: bytes) -> None:
        """Take the broker's answer: empty, or why it refuses."""
        if auth_bytes and isinstance(self.token_provider, _Provider):
            self.token_provider.refused()
            raise SaslAuthenticationFailedError(auth_bytes.decode(errors="replace"))
        super().receive(auth_bytes)


for _mechanism, _class in (
    (SaslMechanism.OAUTHBEARER, _Bearer),
    (SaslMechanism.PLAIN, _Plain),
    (SaslMechanism.SCRAM_SHA_256, _Scram),
    (SaslMechanism.SCRAM_SHA_512, _Scram),
):
    register_sasl_mechanism(_mechanism.value, _class, overwrite=True)

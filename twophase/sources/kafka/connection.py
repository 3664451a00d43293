"""Connection settings of the Kafka clients: TLS, SASL, timeouts."""

from __future__ import annotations

from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

from twophase.sources.kafka.oauth_tokens import Tokens, granted_tokens
from twophase.sources.kafka.options import KafkaOptions, SaslMechanism
from twophase.sources.kafka.passwords import key_password, sasl_password

CLIENT_ID = "twophase"


def for_kafka_python(options: KafkaOptions) -> dict[str, Any]:
    """Return arguments for the clients of kafka-python.

    Raises:
        ConfigError: a secret cannot be read.
    """
    timeout_ms = int(options.request_timeout_s * 1000)
    settings: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers.split(","),
        "client_id": CLIENT_ID,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": options.security_protocol.value,
    }
    if options.tls:
        settings |= {
            "ssl_check_hostname": True,
            "ssl_cafile": options.ssl_ca,
            "ssl_certfile": options.ssl_certificate,
            "ssl_keyfile": options.ssl_key,
            "ssl_password": key_password(options),
        }
    if (tokens := granted_tokens(options)) is not None:
        settings |= {
            "sasl_mechanism": SaslMechanism.OAUTHBEARER.value,
            "sasl_oauth_token_provider": _Provider(tokens),
        }
    elif options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl_mechanism": options.sasl_mechanism.value,
            "sasl_plain_username": options.sasl_username,
            "sasl_plain_password": sasl_password(options),
        }
    return settings


def for_librdkafka(options: KafkaOptions) -> dict[str, Any]:
    """Return settings for the clients of librdkafka.

    Raises:
        ConfigError: a secret cannot be read.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": CLIENT_ID,
        "socket.timeout.ms": int(options.request_timeout_s * 1000),
        "reconnect.backoff.max.ms": 1000,
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


register_sasl_mechanism(SaslMechanism.OAUTHBEARER.value, _Bearer, overwrite=True)

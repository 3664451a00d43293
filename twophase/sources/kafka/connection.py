"""Connection settings of the Kafka clients: TLS, SASL, timeouts."""

from __future__ import annotations

from typing import Any

from twophase.sources.kafka.options import KafkaOptions
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
    if options.sasl and options.sasl_mechanism is not None:
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
    if options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl.mechanism": options.sasl_mechanism.value,
            "sasl.username": options.sasl_username,
            "sasl.password": sasl_password(options),
        }
    return {name: value for name, value in settings.items() if value is not None}

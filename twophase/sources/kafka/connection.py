"""Connection settings of the Kafka clients: TLS, SASL, timeouts.

Only here are the passwords read that the options name by environment variable or file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twophase.errors import ConfigError
from twophase.sources.kafka.offsets import WHERE
from twophase.sources.kafka.options import KafkaOptions

CLIENT_ID = "twophase"
_MAX_SECRET_BYTES = 64 * 1024


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
            "ssl_password": _key_password(options),
        }
    if options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl_mechanism": options.sasl_mechanism.value,
            "sasl_plain_username": options.sasl_username,
            "sasl_plain_password": _sasl_password(options),
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
            "ssl.key.password": _key_password(options),
        }
    if options.sasl and options.sasl_mechanism is not None:
        settings |= {
            "sasl.mechanism": options.sasl_mechanism.value,
            "sasl.username": options.sasl_username,
            "sasl.password": _sasl_password(options),
        }
    return {name: value for name, value in settings.items() if value is not None}


def _sasl_password(options: KafkaOptions) -> str | None:
    """Return the password of SASL; None if the options name none.

    Raises:
        ConfigError: it cannot be read.
    """
    return _secret("kafka.sasl.password", options.sasl_password_env, options.sasl_password_file)


def _key_password(options: KafkaOptions) -> str | None:
    """Return the password of the client's TLS key; None if the options name none.

    Raises:
        ConfigError: it cannot be read.
    """
    return _secret(
        "kafka.ssl.key.password", options.ssl_key_password_env, options.ssl_key_password_file
    )


def _secret(key: str, variable: str | None, path: str | None) -> str | None:
    if variable is not None:
        value = os.environ.get(variable)
        if value is None:
            raise ConfigError(
                f"{WHERE}: option {key + '.env'!r} names the environment variable {variable!r}, "
                "which is not set.",
                remedy="set it for the driver and, with spark.executorEnv, for the executors.",
            )
        return value
    if path is not None:
        try:
            with Path(path).open("rb") as file:
                return file.read(_MAX_SECRET_BYTES).decode().rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{WHERE}: option {key + '.file'!r} names {path!r}, which cannot be read: "
                f"{type(error).__name__}.",
                remedy="put the file on the driver and on every executor, "
                "readable for Spark's user only.",
            ) from None
    return None

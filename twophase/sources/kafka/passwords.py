"""The passwords that the options name by environment variable or file. They are read only here."""

from __future__ import annotations

import os
from pathlib import Path

from twophase.errors import ConfigError
from twophase.sources.kafka.offsets import WHERE
from twophase.sources.kafka.options import KafkaOptions

_MAX_BYTES = 64 * 1024


def sasl_password(options: KafkaOptions) -> str | None:
    """Return the password of SASL, or the secret of OAuth's client; None if the options name none.

    Raises:
        ConfigError: it cannot be read.
    """
    return _secret("kafka.sasl.password", options.sasl_password_env, options.sasl_password_file)


def key_password(options: KafkaOptions) -> str | None:
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
                return file.read(_MAX_BYTES).decode().rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{WHERE}: option {key + '.file'!r} names {path!r}, which cannot be read: "
                f"{type(error).__name__}.",
                remedy="put the file on the driver and on every executor, "
                "readable for Spark's user only.",
            ) from None
    return None

"""The admin client of kafka-python, with better failures."""

from __future__ import annotations

import logging
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors

_LOGGER = "kafka.net"


class Admin(KafkaAdminClient):  # type: ignore[misc]
    """Reports why no broker accepts the connection, and ends its thread, unlike kafka-python.

    Raises:
        SaslAuthenticationFailedError: the user or password is wrong.
        KafkaTimeoutError: no broker accepts the connection; the message has the last failure.
    """

    def __init__(self, **settings: Any) -> None:
        failures = _Failures()
        logging.getLogger(_LOGGER).addHandler(failures)
        try:
            super().__init__(**settings)
        except BaseException as error:
            if hasattr(self, "_net"):
                self._net.stop()
            if failures.found and isinstance(error, kafka_errors.KafkaTimeoutError):
                raise failures.worst() from None
            raise
        finally:
            logging.getLogger(_LOGGER).removeHandler(failures)


class _Failures(logging.Handler):
    """Collects exceptions that kafka-python only logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        failures = (item for item in arguments if isinstance(item, kafka_errors.KafkaError))
        self.found += [
            item for item in failures if not isinstance(item, kafka_errors.KafkaTimeoutError)
        ]

    def worst(self) -> Any:
        """Return the clearest failure: a wrong password, the last failed handshake, or the last."""
        for failure in self.found:
            if isinstance(failure, kafka_errors.SaslAuthenticationFailedError):
                return failure
        handshakes = [failure for failure in self.found if "Handshake failed" in str(failure)]
        failure = (handshakes or self.found)[-1]
        return kafka_errors.KafkaTimeoutError(
            f"no broker took the connection; last failure: {failure}"
        )

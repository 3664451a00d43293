"""Writes records outside of any transaction, with librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from twophase.errors import TargetUnreachableError
from twophase.kafka_client.connection import for_librdkafka
from twophase.kafka_client.options import ConnectionOptions
from twophase.sinks.kafka.clients import KeptClient


class RecordWriter:
    """Writes to the ledger with one producer, which is kept open.

    Args:
        options: of the connection.
        topic: the ledger's.
    """

    def __init__(self, options: ConnectionOptions, topic: str) -> None:
        self._options = options
        self._topic = topic
        self._failures: list[str] = []
        self._kept: KeptClient[Any] = KeptClient(options, self._producer, _let_go)

    def write(self, records: Mapping[str, bytes | None], partition: int) -> None:
        """Write records, and return when all replicas have them.

        Args:
            records: values by key; None deletes what is there.
            partition: of the ledger.

        Raises:
            TargetUnreachableError: not all of them are there, as far as is known.
        """
        try:
            with self._kept.use() as producer:
                self._failures.clear()
                for key, value in records.items():
                    producer.produce(self._topic, value, key.encode(), partition)
                left = producer.flush(2 * self._options.request_timeout_s)
                if left or self._failures:
                    raise self._not_written(self._failures[0] if self._failures else "no answer")
        except KafkaException as error:
            raise self._not_written(error.args[0].str()) from error

    def close(self) -> None:
        """Close the producer."""
        self._kept.close()

    def _producer(self) -> Any:
        settings = for_librdkafka(self._options) | {
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
            "message.timeout.ms": int(self._options.request_timeout_s * 1000),
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: self._failures.append(error.str()),
        }
        return Producer(settings)

    def _not_written(self, why: str) -> TargetUnreachableError:
        return TargetUnreachableError(
            f"Records of the ledger {self._topic!r} could not be written: {why}.",
            remedy="check that its brokers run, that enough replicas are in sync, and that the "
            "account may write to it.",
        )


def _let_go(producer: Any) -> None:
    """Drop what was not sent: it must not arrive later. Without a reference a producer ends."""
    producer.purge()
    producer.flush(0)

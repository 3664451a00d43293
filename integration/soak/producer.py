"""Writes orders all the time, also while the broker dies: what is delivered is
in the topic once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from harness import workload

_CHUNK = 100
_PAUSE_S = 0.02
_FLUSH_TIMEOUT_S = 60
_PARTITIONS = 2


class SoakProducer:
    """A thread that keeps a number of records ahead of the job.

    As a context manager it starts on entry and stops on exit.

    Args:
        servers: of Kafka.
        topic: where to.
        written: how many records the job has written.
        ahead: how many more there are to be.

    Attributes:
        produced: records that the broker has acknowledged.
    """

    def __init__(self, servers: str, topic: str, written: Callable[[], int], ahead: int) -> None:
        self.produced = 0
        self._topic = topic
        self._written = written
        self._ahead = ahead
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        # Idempotent: what is sent again after a broken connection is in the topic
        # once all the same.
        settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 2,
        }
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, name="soak-producer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def stop(self) -> int:
        """Stop, and return how many records are in the topic.

        Raises:
            RuntimeError: not all that were sent have arrived.
        """
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        if left:
            raise RuntimeError(
                f"{left} records did not reach {self._topic} within {_FLUSH_TIMEOUT_S} s"
            )
        self.check()
        return self.produced

    def check(self) -> None:
        """Raise what made the thread end."""
        if self._failure is not None:
            raise RuntimeError(f"the producer failed: {self._failure}") from self._failure

    def _run(self) -> None:
        sent = 0
        try:
            while not self._stopping.is_set() and self._failure is None:
                self._producer.poll(0)
                if sent - self._written() >= self._ahead:
                    self._stopping.wait(_PAUSE_S)
                    continue
                for order in workload.orders(sent, _CHUNK):
                    partition = int(str(order["id"])) % _PARTITIONS
                    value = json.dumps(order).encode()
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                sent += _CHUNK
        except BaseException as error:  # noqa: BLE001 raised by `check` in the main thread
            self._failure = error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.produced += 1
        else:
            self._failure = RuntimeError(
                f"a record for {message.topic()} was not delivered: {error}"
            )

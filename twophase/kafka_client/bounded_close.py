"""Closing consumers of librdkafka, which may never end.

A consumer that is closed waits for its own threads, and once in a while one of those does not end
(confluentinc/librdkafka#4519). What it has read is not concerned, but the task would wait for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 30.0

_log = logging.getLogger(__name__)


def close(consumer: Any) -> None:
    """Close a consumer, or leave it behind with its threads if that takes longer than
    `PATIENCE_S`.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            consumer.close()
        except BaseException as error:  # noqa: BLE001 raised by the caller
            failures.append(error)

    closing = threading.Thread(target=run, name="twophase-close", daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    if closing.is_alive():
        _log.warning(
            "a consumer of librdkafka has not been closed in %g s; it is left behind with its "
            "threads and connections. Nothing that was read is lost.",
            PATIENCE_S,
        )
    for error in failures:
        raise error


@contextmanager
def closing_in_time(consumer: Any) -> Iterator[Any]:
    """Give a consumer, and close it in the end; see `close`."""
    try:
        yield consumer
    finally:
        close(consumer)

"""The end of a query: Spark ends one that it stops before the thread of its micro-batch ends."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.engine.test_run import WAIT_S, WatchedLock
from twophase.errors import StopJobError
from twophase.spark.batch.batch import ForeachBatch, SparkQuery


def test_a_query_has_ended_when_its_micro_batch_has() -> None:
    began, lock = threading.Event(), WatchedLock()

    def handle(*_: object) -> None:
        began.set()
        assert lock.awaited.wait(WAIT_S), "nobody waits for the micro-batch"
        raise StopJobError("the rest of its tasks has ended")

    handler = ForeachBatch(mock.MagicMock(), handle, threading.Event())
    handler._under_way = lock  # type: ignore[assignment]
    stopped: Any = SimpleNamespace(awaitTermination=lambda _: True)

    def called_by_spark() -> None:
        with suppress(StopJobError):
            handler(None, 0)  # type: ignore[arg-type]

    thread = threading.Thread(target=called_by_spark, daemon=True)
    thread.start()
    assert began.wait(WAIT_S)
    with pytest.raises(StopJobError, match="the rest of its tasks has ended"):
        SparkQuery(stopped, handler, "orders", None).wait()  # type: ignore[arg-type]
    thread.join(WAIT_S)

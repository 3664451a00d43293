"""The end of a query: Spark ends one that it stops before the thread of its micro-batch ends."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JNetworkError

from tests.engine.test_run import WAIT_S, WatchedLock
from twophase.errors import DeclinedError, StopJobError
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


def no_answer(*_: object) -> bool:
    raise Py4JNetworkError("Answer from Java side is empty")


class Context:
    """Spark's, whose JVM has died, or in which `spark.stop()` was called."""

    def __init__(self, has_jvm: bool) -> None:
        self._jsc = SimpleNamespace(sc=self.answer if has_jvm else no_answer)

    def answer(self) -> object:
        return SimpleNamespace(isStopped=lambda: True)


@pytest.mark.parametrize("has_jvm", [True, False])
def test_a_micro_batch_whose_spark_is_lost_waits_for_no_sink(has_jvm: bool) -> None:
    began, stopping = threading.Event(), threading.Event()

    def waits_for_a_sink(*_: object) -> None:
        began.set()
        assert stopping.wait(WAIT_S), "the micro-batch still waits"

    handler = ForeachBatch(mock.MagicMock(), waits_for_a_sink, stopping)
    thread = threading.Thread(target=handler, args=(None, 0), daemon=True)
    thread.start()
    assert began.wait(WAIT_S)
    query: Any = SimpleNamespace(
        awaitTermination=(lambda _: False) if has_jvm else no_answer, stop=lambda: None
    )
    session: Any = SimpleNamespace(sparkContext=Context(has_jvm))
    with pytest.raises(DeclinedError):
        SparkQuery(query, handler, "orders", session).wait()
    assert stopping.is_set()
    thread.join(WAIT_S)

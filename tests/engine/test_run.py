"""A run of a query, with a host that does nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver
from twophase.engine.run import Run
from twophase.testing.memory import MemoryTarget

WAIT_S = 30


class StoppedQuery:
    """Is active until it is stopped."""

    def __init__(self) -> None:
        self.is_active = True

    def stop(self) -> None:
        self.is_active = False


def test_a_stop_with_a_savepoint_stops_the_query_although_its_folder_cannot_be_read(
    tmp_path: Path,
) -> None:
    """Otherwise the job would live on with a closed gate until the next micro-batch."""

    def unreadable() -> int:
        raise OSError(5, "Input/output error")

    driver = Driver(tmp_path / JOB, {"facts": MemoryTarget()}).recover()
    driver.run(0)
    query = StoppedQuery()
    host: Any = SimpleNamespace(thread=lambda *_: None, snapshot=lambda *_: {}, clock=driver.clock)
    run: Any = Run(host, driver.coordinator.context, threading.Event())
    run.coordinator, run.folder, run._query = (
        driver.coordinator,
        SimpleNamespace(finished=unreadable),
        query,
    )
    with pytest.raises(OSError, match="Input/output error"):
        run.stop_after_batch()
    assert not query.is_active


class WatchedLock:
    """A lock that tells when somebody has to wait for it.

    Attributes:
        awaited: set then.
    """

    def __init__(self) -> None:
        self.awaited = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.awaited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_stop_with_a_savepoint_waits_for_a_micro_batch_that_begins_while_the_query_is_started(
    tmp_path: Path,
) -> None:
    driver = Driver(tmp_path / JOB, {"facts": MemoryTarget()}).recover()
    lock, began, waits = WatchedLock(), threading.Event(), threading.Event()
    decided_when_stopped: list[bool] = []

    class Started(StoppedQuery):
        def stop(self) -> None:
            decided_when_stopped.append(driver.coordinator.newest() is not None)
            super().stop()
            waits.set()

    def micro_batch() -> None:
        with run.gate.batch(0):
            began.set()
            assert waits.wait(WAIT_S), "neither the gate is closed nor the query stopped"
            driver.run(0)

    def start(*_: object) -> Started:
        for thread, goes_on in ((batch, began), (stop, lock.awaited)):
            thread.start()
            assert goes_on.wait(WAIT_S)
        return Started()

    host: Any = SimpleNamespace(
        thread=lambda *_: None, snapshot=lambda *_: {}, clock=driver.clock, start=start
    )
    run: Any = Run(host, driver.coordinator.context, threading.Event())
    run.coordinator, run.take_over, run._lock = driver.coordinator, lambda: True, lock
    run.folder, run.plan = SimpleNamespace(finished=lambda: 0), None
    close = run.gate.close

    def closed() -> None:
        close()
        waits.set()

    run.gate.close = closed
    batch = threading.Thread(target=micro_batch)
    stop = threading.Thread(target=run.stop_after_batch)
    run.start()
    for thread in (stop, batch):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert decided_when_stopped == [True]

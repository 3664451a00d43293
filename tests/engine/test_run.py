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

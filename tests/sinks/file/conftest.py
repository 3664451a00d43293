"""A piece in the partitioned folder of `tests/sinks/conftest.py`, and a way for commits to die."""

from __future__ import annotations

import pytest

from harness.staged_sink_harness import FileHarness, Interrupt, orders
from twophase.contract.committable import Committable
from twophase.internals.failpoints import FailpointError
from twophase.sinks.common.staging import committer
from twophase.sinks.common.staging.open_sink import OpenStagedSink


@pytest.fixture
def piece(table: FileHarness, sink: OpenStagedSink) -> Committable:
    """Three rows in three partitions."""
    return table.write(sink, orders(range(3)))


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    def arrange(point: str) -> None:
        def failpoint(name: str) -> None:
            if name == point:
                raise FailpointError(name)

        monkeypatch.setattr(committer, "failpoint", failpoint)

    return arrange

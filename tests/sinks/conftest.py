"""A partitioned folder, and the file sink that writes into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.staged_sink_harness import FileHarness
from twophase.sinks.common.staging.open_sink import OpenStagedSink


@pytest.fixture
def table(tmp_path: Path) -> FileHarness:
    return FileHarness(tmp_path / "orders", partition_by=["name"])


@pytest.fixture
def sink(table: FileHarness) -> OpenStagedSink:
    return table.opened()

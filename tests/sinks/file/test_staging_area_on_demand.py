"""A folder opened without rows to come: nothing is made in it until something is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.contract.sink import SinkContext
from twophase.ids import Attempt
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.file import FileSink
from twophase.testing.harness import JOB, SINK


def opened(folder: Path) -> OpenStagedSink:
    return FileSink(path=str(folder), format="json").open(
        SinkContext(JOB, SINK, None, parallelism=0)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "table"
    found.mkdir()
    return found


def test_what_only_looks_or_clears_up_makes_nothing(folder: Path) -> None:
    sink = opened(folder)
    assert sink.history().committed == {}
    assert [*sink.in_doubt(), *sink.committed_pieces("lineage", 1), *sink.other_names()] == []
    sink.check_rewind({})
    sink.rewind({}, Attempt(1, 0))
    sink.abort([])
    sink.subsume("lineage", 1)
    assert [*folder.iterdir()] == []


def test_a_fence_makes_the_area_and_holds(folder: Path) -> None:
    sink = opened(folder)
    sink.fence(Attempt(3, 0))
    assert sink.history().generation == opened(folder).history().generation == 3

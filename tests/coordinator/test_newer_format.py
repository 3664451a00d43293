"""A start, and a repair, over a job's folder that a newer version of twophase has written to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import Driver, decided, visible
from harness.newer_version import renew, renew_body
from tests.operations.repair.test_adopt import repair
from tests.state.conftest import snapshot
from twophase.errors import NewerFormatError
from twophase.testing.memory import MemoryTarget

Another = Callable[..., Driver]
Targets = dict[str, MemoryTarget]


def newest(folder: Path) -> Path:
    """The newest record of the log."""
    return max((folder / "log").iterdir())


@pytest.fixture
def waiting(driver: Driver, folder: Path) -> Driver:
    """Checkpoint 0 is committed, 1 decided."""
    driver.run(0)
    decided(driver, 1)
    return driver


def test_a_start_over_a_newer_log_writes_nothing_and_the_newer_version_goes_on(
    waiting: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    record = newest(folder)
    old = renew(record)
    before = snapshot(folder)
    with pytest.raises(
        NewerFormatError, match=f"log/{record.name} was written by a newer twophase"
    ):
        another().recover()
    assert snapshot(folder) == before
    assert {name: sink.history().generation for name, sink in waiting.sinks.items()} == {
        "facts": 1,
        "lake": 1,
    }
    record.write_bytes(old)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_a_start_over_a_newer_decided_body_aborts_nothing_of_it(
    waiting: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    [body] = folder.glob("chk/*-1-*/_metadata")
    before = renew_body(folder, body)
    with pytest.raises(NewerFormatError, match="_metadata was written by a newer twophase"):
        another().recover()
    for path, content in before.items():
        path.write_bytes(content)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize("newer", ["log", "body"])
def test_an_adoption_gives_up_nothing_that_a_newer_version_has_written(
    waiting: Driver, folder: Path, targets: Targets, newer: str
) -> None:
    path = newest(folder) if newer == "log" else next(folder.glob("chk/*-1-*/_metadata"))
    if newer == "log":
        renew(path)
    else:
        renew_body(folder, path)
    content, chk = path.read_bytes(), snapshot(folder / "chk")
    with pytest.raises(NewerFormatError):
        repair(folder, targets).plan()
    assert path.read_bytes() == content
    assert snapshot(folder / "chk") == chk

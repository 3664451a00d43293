"""A job without Spark over memory targets, as fixtures; see `harness.memory_driver`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import Driver, decided, lose
from twophase.testing.memory import MemoryTarget


@pytest.fixture
def targets() -> dict[str, MemoryTarget]:
    return {"facts": MemoryTarget(), "lake": MemoryTarget()}


@pytest.fixture
def driver(tmp_path: Path, targets: dict[str, MemoryTarget]) -> Driver:
    return Driver(tmp_path / "job", targets).recover()


@pytest.fixture
def another(tmp_path: Path, targets: dict[str, MemoryTarget]) -> Callable[..., Driver]:
    """Another driver of the same job: a restart, or a rival."""

    def make(**options: Any) -> Driver:
        return Driver(tmp_path / "job", targets, **options)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def broken(
    driver: Driver, targets: dict[str, MemoryTarget], request: pytest.FixtureRequest
) -> Driver:
    """Checkpoint 0 is committed, 1 decided; of 1 the pieces that the test names
    are lost in `facts`.
    """
    driver.run(0)
    decided(driver, 1)
    lose(targets["facts"], 1, *request.param)
    return driver


in_part = pytest.mark.parametrize("broken", [(1,)], indirect=True, ids=["one piece"])
each = pytest.mark.parametrize(
    "broken", [(1,), (0, 1)], indirect=True, ids=["one piece", "all pieces"]
)

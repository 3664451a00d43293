"""The example of a function with state counts right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import Driver, offsets
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import DeclinedError
from twophase.testing.memory import MemoryTarget

pytestmark = pytest.mark.part("runtime")

_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "functions-with-state.md"


def announced() -> Any:
    """Return a function of the class in the first code block of the page."""
    [block, *_] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(_PAGE), "exec"), names)
    return names["Announced"]()


def failing_once(driver: Driver) -> Callable[[PendingCheckpoint], None]:
    errors = [DeclinedError("a worker died")]

    def write(pending: PendingCheckpoint) -> None:
        if errors:
            raise errors.pop()
        driver.write(pending)

    return write


def test_the_example_counts_once_when_an_attempt_is_tried_again(tmp_path: Path) -> None:
    """I took the example from the page, and an attempt at checkpoint 10 failed and was tried again
    in place: the checkpoint is announced once.
    """
    function = announced()
    options = {"checkpoint.tolerable_failures": 1}
    targets = {"facts": MemoryTarget()}
    driver = Driver(tmp_path / "job", targets, options, functions={"announced": function}).recover()
    for number in range(11):
        write = failing_once(driver) if number == 10 else driver.write
        driver.coordinator.classify(number, offsets(number))
        driver.coordinator.checkpoint(number, offsets(number), write)
    assert function.numbers.get() == [0, 10]
    restarted = announced()
    Driver(tmp_path / "job", driver.targets, options, functions={"announced": restarted}).recover()
    assert restarted.numbers.get() == [0, 10]

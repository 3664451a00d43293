"""The example of docs/writing-a-source.md keeps the contract, and Spark reads it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twophase.protocol.source import Source
from twophase.testing.contract import SourceContract, SourceHarness
from twophase.testing.contract import source as suite

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-source.md"
EXAMPLE: dict[str, Any] = {"__name__": "twophase_events"}
for _block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
    exec(compile(_block, str(PAGE), "exec"), EXAMPLE)


class TestEventsSource(SourceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceHarness:
        """The example, as if its package were installed."""
        installed = SimpleNamespace(load=lambda: EXAMPLE["EventsSource"])
        monkeypatch.setattr(suite, "entry_points", lambda group, name: [installed])
        made: SourceHarness = EXAMPLE["EventsHarness"](tmp_path / "events.db")
        return made


def test_its_reader_reads_what_is_between_two_lines(tmp_path: Path) -> None:
    harness = EXAMPLE["EventsHarness"](tmp_path / "events.db")
    reader = EXAMPLE["Events"](harness.leg.options).streamReader(None)
    start = reader.initialOffset()
    harness.append()
    [part] = reader.partitions(start, reader.latestOffset())
    assert [*reader.read(part)] == [(1, "a"), (2, "b")]
    middle = reader.latestOffset()
    harness.append()
    [part] = reader.partitions(middle, reader.latestOffset())
    assert [*reader.read(part)] == [(3, "a"), (4, "b")]


def test_the_suite_of_the_page_is_this_one() -> None:
    assert issubclass(EXAMPLE["TestEventsSource"], SourceContract)
    assert issubclass(EXAMPLE["EventsSource"], Source)

"""A job gets a sink, loses one, or gives one another name, between two starts or at a restore."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import Driver, completed_of, restoring, visible
from twophase.errors import ConfigError
from twophase.testing.memory import MemoryTarget

Targets = dict[str, MemoryTarget]
Begin = Callable[..., Driver]


@pytest.fixture(params=["start", "restore"])
def begin(request: pytest.FixtureRequest, driver: Driver, tmp_path: Path) -> Begin:
    """How the job goes on after its first checkpoint."""
    driver.run(0)

    def start(targets: Targets, **options: Any) -> Driver:
        return Driver(tmp_path / "job", targets, options).recover()

    def restore(targets: Targets, **options: Any) -> Driver:
        restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
        restored = Driver(tmp_path / "restored", targets, options)
        restored.coordinator.recover(restore=restore)
        restored.coordinator.begin_lineage(restore.lineage)
        return restored

    return start if request.param == "start" else restore


def test_a_sink_that_is_added_gets_the_rows_from_there_on(begin: Begin, targets: Targets) -> None:
    more = MemoryTarget()
    begin({**targets, "more": more}).run(1)
    assert visible(targets["facts"]) == [*range(20)]
    assert visible(more) == [*range(10, 20)]


def test_a_sink_that_leaves_gets_no_more_rows_and_that_is_said(
    begin: Begin, targets: Targets, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "twophase"):
        begin({"facts": targets["facts"]}).run(1)
    assert (visible(targets["facts"]), visible(targets["lake"])) == ([*range(20)], [*range(10)])
    assert "sink 'lake', whose last rows in memory:" in caplog.text
    assert "are those of checkpoint 0, has left the job" in caplog.text


def test_a_sink_with_another_name_is_refused_before_anything_is_written(
    begin: Begin, targets: Targets
) -> None:
    fences = {name: dict(target.fences) for name, target in targets.items()}
    with pytest.raises(ConfigError, match=r"sink 'pond' writes to .* as sink 'lake' did") as caught:
        begin({"facts": targets["facts"], "pond": targets["lake"]})
    assert caught.value.remedy.startswith("name the sink 'lake' again")
    assert {name: target.fences for name, target in targets.items()} == fences
    begin(targets).run(1)
    assert [visible(target) for target in targets.values()] == [[*range(20)], [*range(20)]]


def test_a_sink_gets_another_name_if_that_is_allowed(
    begin: Begin, targets: Targets, caplog: pytest.LogCaptureFixture
) -> None:
    renamed = {"facts": targets["facts"], "pond": targets["lake"]}
    with pytest.raises(ConfigError):
        begin(renamed)
    with caplog.at_level(logging.WARNING, "twophase"):
        begin(renamed, **{"restore.allow_non_restored_state": True}).run(1)
    assert [visible(target) for target in targets.values()] == [[*range(20)], [*range(20)]]
    assert "is sink 'pond' from now on" in caplog.text


def test_a_sink_that_takes_the_place_of_another_one_at_another_target_is_a_new_one(
    begin: Begin, targets: Targets
) -> None:
    pond = MemoryTarget()
    begin({"facts": targets["facts"], "pond": pond}).run(1)
    assert (visible(targets["lake"]), visible(pond)) == ([*range(10)], [*range(10, 20)])

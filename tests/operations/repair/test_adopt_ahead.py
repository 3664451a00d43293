"""An adoption while a checkpoint is in some sinks only: each way on that its refusals name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import (
    NOTE,
    Driver,
    completed_of,
    dying,
    frozen,
    offsets,
    restoring,
    visible,
)
from tests.operations.repair.test_adopt import Another, Targets
from twophase.errors import StopJobError
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.options.job_options import SinkAhead

AHEAD = {"checkpoint.mode": "at_least_once", "checkpoint.num_retained": 9}
Step = Callable[[], None]


@pytest.fixture
def driver(another: Another) -> Driver:
    """Checkpoint 0 is committed in both sinks, 1 in `facts` only."""
    driver = another(options=AHEAD).recover()
    driver.run(0)
    dying("A02", lambda: driver.run(1))
    return driver


def adopt(another: Another, options: dict[str, object] | None = None) -> None:
    """`twophase repair adopt-from-target`."""
    context = another(options=AHEAD if options is None else options).coordinator.context
    repairing = AdoptionRepair(context, frozen)
    repairing.adopt(repairing.plan(), NOTE)


def delete_by_hand(targets: Targets) -> None:
    """The rows of checkpoint 1 and their proofs, in `facts`."""
    facts = targets["facts"]
    facts.visible = [row for row in facts.visible if row["id"] < 10]
    facts.ledger = {key for key in facts.ledger if key[3] == 0}


@pytest.mark.parametrize("way", ["restore", "rewind", "delete"])
def test_a_log_that_has_a_sink_ahead_and_a_damaged_folder_goes_on(
    driver: Driver, targets: Targets, another: Another, folder: Path, way: str
) -> None:
    kept = restoring(completed_of(folder, 0), committed=True)
    shutil.move(folder / "chk", folder.with_name("backup"))
    with pytest.raises(StopJobError, match="sink 'facts' is ahead: its log has checkpoint 1"):
        adopt(another)
    match way:
        case "restore":
            shutil.move(folder.with_name("backup"), folder / "chk")
        case "rewind":
            rewinding = another(options=AHEAD)
            rewind = replace(kept, sink_ahead=SinkAhead.REWIND)
            rewinding.coordinator.recover(None, rewind)
            rewinding.coordinator.begin_lineage(rewind.lineage)
        case "delete":
            delete_by_hand(targets)
            adopt(another)
    another(options=AHEAD).recover().run(1)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize("way", ["it has the rows", "it has none for them", "it lacks them"])
def test_without_a_log_the_other_sinks_are_looked_at(
    driver: Driver, targets: Targets, another: Another, folder: Path, way: str
) -> None:
    """Nothing tells whether the checkpoint was decided, so I say it, once I have looked."""
    if way == "it has the rows":
        targets["lake"].visible += [row for row in targets["facts"].visible if row["id"] >= 10]
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    for _ in range(2):
        with pytest.raises(StopJobError, match="committed in facts and not in lake") as caught:
            adopt(another)
    assert "run the command with `checkpoint.mode=exactly_once`" in caught.value.remedy
    if way == "it lacks them":
        delete_by_hand(targets)
        adopt(another)
        number = 1
    else:
        adopt(another, {"checkpoint.mode": "exactly_once"})
        number = 2
    restarted = another(options=AHEAD).recover()
    assert restarted.coordinator.lineage.start == offsets(number - 1).end
    ids = [*range(10 * number, 10 * number + 10)]
    restarted.run(1, lambda pending: restarted.write_rows(pending, ids[0]))
    lacks = {*range(10, 20)} if way == "it has none for them" else set()
    assert visible(targets["facts"]) == [*range(ids[-1] + 1)]
    assert visible(targets["lake"]) == [one for one in range(ids[-1] + 1) if one not in lacks]

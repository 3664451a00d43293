"""What a start costs does not grow with the number of beginnings before it."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from harness.beginning_world import BeginningWorld
from harness.folder_sink import OpenFolderSink
from harness.savepoint_world import killed, restoring
from twophase.contract.sink import SinkHistory
from twophase.coordinator.recovery.plan import (
    GoOn,
    Observed,
    ObservedSink,
    StartPlan,
    plan_start,
)
from twophase.ids import Attempt
from twophase.state.files import codec
from twophase.state.journal.entries import CommittedRecord, Decision, Lineage, Proof
from twophase.state.journal.history import History, SubsumedRecord, record_from_json
from twophase.state.journal.log import LogEntry

pytestmark = pytest.mark.part("runtime")

FEW, MANY = 8, 32
BYTES = 1000
"""Of a restore in each record that names all of them: its lineage, with its proofs."""
RECORDS = 4
"""Records that may wait for the next fold, each of which names all lineages."""


class Restored:
    """What there is after so many restores, each of the newest savepoint."""

    def __init__(self, root: Path, restores: int, *, moves: bool) -> None:
        self.world = world = BeginningWorld(root)
        world.sinks = ("facts",)
        folder = "job"
        world.drive(1)
        for number in range(restores):
            path = world.make(f"saved-{number}", folder)
            folder = f"job-{number}" if moves else folder
            world.drive(number + 2, folder, **restoring(path, "refuse"))
        self.folder = folder
        self.saved = world.make("last", folder)
        records = [*map(_size, (root / folder / "log").iterdir())]
        self.log, self.largest = sum(records), max(records)


@pytest.mark.parametrize("moves", [False, True], ids=["one folder", "a new folder each"])
def test_a_restore_adds_the_same_whatever_was_restored_before(tmp_path: Path, moves: bool) -> None:
    """My job is restored from its newest savepoint each night, for years: a line in the log for
    each restore, and no more.
    """
    few = Restored(tmp_path / "few", FEW, moves=moves)
    many = Restored(tmp_path / "many", MANY, moves=moves)
    more = MANY - FEW
    assert (many.largest - few.largest) / more < BYTES
    assert (_size(many.saved / "_savepoint") - _size(few.saved / "_savepoint")) / more < BYTES
    assert many.log - few.log < RECORDS * BYTES * more


class Folding(OpenFolderSink):
    """Counts the requests to fold a lineage."""

    asked: ClassVar[list[str]] = []

    def subsume(self, lineage: str, checkpoint: int) -> None:
        self.asked.append(lineage)
        super().subsume(lineage, checkpoint)


@pytest.mark.parametrize("restores", [FEW, MANY])
@pytest.mark.parametrize("moves", [False, True], ids=["one folder", "a new folder each"])
def test_a_start_asks_the_same_of_a_sink_whatever_was_restored_before(
    tmp_path: Path, restores: int, moves: bool
) -> None:
    restored = Restored(tmp_path, restores, moves=moves)
    world, folder = restored.world, restored.folder
    world.drive(restores + 2, folder)  # the second checkpoint since the last restore
    world.kinds = {"facts": Folding}
    Folding.asked.clear()
    world.drive(restores + 3, folder)
    [*older, parent] = lineage(world, folder).ancestors
    assert len(older) == restores - 1
    assert Folding.asked == [parent]


class Dying(Folding):
    """Its driver dies before a lineage is folded."""

    at: ClassVar[str]

    def subsume(self, lineage: str, checkpoint: int) -> None:
        if lineage == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        super().subsume(lineage, checkpoint)


def test_a_start_folds_all_ancestors_until_a_driver_has_done_so(tmp_path: Path) -> None:
    world = BeginningWorld(tmp_path)
    world.sinks = ("facts",)
    world.drive(1)
    world.drive(2, **restoring(world.make("first"), "refuse"))
    restore = restoring(world.make("second"), "refuse")
    Dying.at = lineage(world).id
    world.kinds = {"facts": Dying}
    assert killed("", lambda: world.drive(3, **restore))  # committed, and that is on record
    assert killed("", lambda: world.drive(4))
    world.kinds = {"facts": Folding}
    Folding.asked.clear()
    world.drive(4)
    ancestors = [*lineage(world).ancestors]
    assert len(ancestors) == 2
    assert Folding.asked == ancestors
    world.is_exact("job", 4)


def lineage(world: BeginningWorld, folder: str = "job") -> Lineage:
    found = world.history(folder).lineage
    assert found is not None
    return found


def _size(path: Path) -> int:
    return path.stat().st_size


ONE_TENTH, ALL = 200, 2_000
SINKS = "facts", "lake"


def restored_so_often(restores: int) -> History:
    """What the log says after so many restores, each of the newest checkpoint, and a fold."""
    history, ancestors = History(1), dict[str, int]()
    for number in range(restores):
        proofs = tuple(Proof(sink, f"lineage-{number}", 1, f"table of {sink}") for sink in SINKS)
        before = history.decisions[-1].proofs if number else ()
        name = f"lineage-{number}"
        history = history.apply(
            Lineage(name, f"/saved-{number}", 1, ("end",), {**ancestors}, before, (), "0" * 64)
        ).apply(Decision(name, 1, Attempt(1, 1), "0" * 64, "0" * 64, False, proofs))
        history = history.apply(CommittedRecord(name, 1))
        if number % FEW == FEW - 1:
            history = history.retaining(history.decisions[-1:])
        ancestors[name] = 1
    return history


def calls(work: Callable[[], object]) -> int:
    """How many functions something calls, built-in ones too."""
    called = Counter[str]()

    def note(frame: object, event: str, _: object) -> None:
        del frame
        called[event] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called["call"] + called["c_call"]


def decoded(data: bytes) -> object:
    entry = codec.decode(SubsumedRecord.kind, data, "log/1", LogEntry)
    return record_from_json(SubsumedRecord.kind, entry.record, "log/1")


def test_a_plan_and_a_record_cost_ten_times_as_much_after_ten_times_as_many_restores() -> None:
    costs: list[tuple[int, int, int]] = []
    for restores in (ONE_TENTH, ALL):
        history = restored_so_often(restores)
        kept = {one.id: 1 for one in history.lineages}
        sinks = {
            sink: ObservedSink(f"table of {sink}", SinkHistory(1, kept), True) for sink in SINKS
        }
        seen = Observed("orders", history, sinks)
        assert isinstance(plan_start(seen, GoOn()), StartPlan)
        entry = LogEntry("orders", 1, "0" * 32, SubsumedRecord(history))
        data = codec.encode(SubsumedRecord.kind, entry)
        assert decoded(data) == entry.record
        costs.append(
            (
                len(data),
                calls(partial(plan_start, seen, GoOn())),
                calls(partial(decoded, data)),
            )
        )
    few, many = costs
    assert many[0] < ALL * BYTES
    for less, more in zip(few, many, strict=True):
        assert more < 1.1 * ALL / ONE_TENTH * less

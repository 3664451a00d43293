"""The log takes over what the targets have proof of: nothing decided is lost, nothing is guessed, a
death in between is safe.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    ManualClock,
    completed_of,
    decided,
    dying,
    frozen,
    lose,
    nothing,
    offsets,
    remove_body,
    restoring,
    visible,
)
from tests.coordinator.recovery.test_restored_target import restore_target
from tests.operations.repair.test_accept_loss import repair as accept_loss
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    CheckpointMissingError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
)
from twophase.events import Observers
from twophase.ids import Attempt, Subtask
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError
from twophase.operations.repair import adopt as adopt_module
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.adoption_plan import Frozen
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Adoption
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


def repair(
    folder: Path, targets: Targets, found: Frozen = frozen, is_stuck: bool = False
) -> AdoptionRepair:
    sinks = {name: OpenMemorySink(target, JOB, name) for name, target in targets.items()}
    options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
    context = JobContext(JOB, LocalStorage(folder), sinks, options, Observers(), ManualClock())
    return AdoptionRepair(context, found, lambda _: is_stuck)


@pytest.fixture
def behind(driver: Driver, targets: Targets, folder: Path) -> Driver:
    """The folder is that of checkpoint 0; `facts` has committed 1 whole, `lake` one
    of its two pieces.
    """
    driver.run(0)
    backup = folder.with_name("backup")
    shutil.copytree(folder, backup)
    decided(driver, 1)
    facts, lake = driver.sinks["facts"], driver.sinks["lake"]
    facts.commit([CommitRequest(piece) for piece in facts.in_doubt()])
    lake.commit([CommitRequest(lake.in_doubt()[0])])
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    return driver


def adopt(folder: Path, targets: Targets, found: Frozen = frozen) -> None:
    repairing = repair(folder, targets, found)
    repairing.adopt(repairing.plan(), NOTE)


def test_what_a_target_has_proof_of_is_committed_in_the_others_and_the_job_goes_on(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    with pytest.raises(CheckpointMissingError) as caught:
        another().recover()
    assert caught.value.remedy.endswith("twophase repair adopt-from-target JOB.yaml")
    adopt(folder, targets)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    driver = another().recover()
    assert driver.coordinator.lineage.start == offsets(1).end
    assert driver.coordinator.lineage.first_checkpoint == 1
    (found,) = driver.coordinator.context.log.history.repairs
    assert isinstance(found, Adoption)
    assert (found.note, found.lineage) == (NOTE, driver.coordinator.lineage)
    assert not targets["lake"].prepared


def test_a_plan_writes_nothing(behind: Driver, targets: Targets, folder: Path) -> None:
    before = JobLog(LocalStorage(folder), JOB).read()
    plan = repair(folder, targets).plan()
    assert (plan.checkpoint, plan.end) == (1, offsets(1).end)
    assert [len(plan.sinks[name].commits) for name in ("facts", "lake")] == [0, 1]
    assert JobLog(LocalStorage(folder), JOB).read() == before
    assert len(targets["lake"].prepared) == 1


@pytest.mark.parametrize("point", ["R01", "R02", "R03"])
def test_a_repair_that_dies_is_run_again(
    behind: Driver, targets: Targets, another: Another, folder: Path, point: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
        patch.setattr(failpoints, "_hits", {})
        with pytest.raises(FailpointError):
            adopt(folder, targets)
    if point != "R03":
        with pytest.raises(CheckpointMissingError):
            another().recover()
        adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_what_a_driver_commits_while_it_is_adopted_is_not_left_out(
    driver: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the simulation: its commit is under way when the targets are looked at, so that no
    target has its pieces, committed or in doubt.
    """
    driver.run(0)
    decided(driver, 1)
    remove_body(folder, 1)
    under_way = {name: dict(target.prepared) for name, target in targets.items()}
    for target in targets.values():
        target.prepared.clear()

    def reached(point: str) -> None:
        if point == "R01":
            for name, target in targets.items():
                target.prepared.update(under_way[name])
                sink = driver.sinks[name]
                sink.commit([CommitRequest(piece) for piece in sink.in_doubt()])

    monkeypatch.setattr(adopt_module, "failpoint", reached)
    with pytest.raises(StopJobError, match="has changed since the plan was shown"):
        adopt(folder, targets)
    monkeypatch.undo()
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_where_the_end_is_not_known_the_source_says_where_to_begin(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets, nothing)
    lineage = another().recover().coordinator.lineage
    assert (lineage.start, lineage.first_checkpoint) == ((), 0)


def test_the_targets_must_have_from_then_on_what_was_adopted(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets)
    restore_target(targets["lake"], MemoryTarget())
    with pytest.raises(TargetChangedError, match="checkpoint 1 of lineage"):
        another().recover()


def test_another_driver_that_goes_on_in_the_lost_folder_is_noticed(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets)
    facts = behind.sinks["facts"]
    transaction = next(key for key in targets["facts"].ledger if key[3] == 1)
    targets["facts"].ledger.add((*transaction[:3], 2, *transaction[4:]))
    assert facts.history().committed[transaction[2]] == 2
    with pytest.raises(CheckpointMissingError):
        another().recover()


def test_pieces_after_the_proven_ones_are_aborted_by_the_next_start(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    sink = behind.sinks["facts"]
    transaction = next(iter(targets["lake"].prepared.values()))[0].transaction
    ahead = type(transaction)(
        JOB, transaction.lineage, 2, transaction.attempt, "facts", transaction.offsets_hash
    )
    sink.write_direct(ahead, Subtask(0, 900), [{"id": 20}])
    plan = repair(folder, targets).plan()
    assert [piece.transaction.checkpoint for piece in plan.sinks["facts"].aborts] == [2]
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == list(range(20))
    assert not targets["facts"].prepared


def test_a_piece_that_was_neither_prepared_nor_committed_when_the_folder_was_lost_is_not_missed(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """No target knows of it, and the body that listed it is gone."""
    lost = next(iter(targets["lake"].prepared))
    rows = {row["id"] for row in targets["lake"].prepared.pop(lost)[1]}
    adopt(folder, targets)
    another().recover().run(1)  # the rows of this number once more, in the new lineage
    assert len(rows) == 5
    assert visible(targets["facts"]) == sorted([*range(20), *range(10, 20)])
    assert visible(targets["lake"]) == sorted([*({*range(20)} - rows), *range(10, 20)])


def test_a_superseded_task_attempt_is_not_committed(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Of a task that has another piece committed in the same sink."""
    transaction = next(iter(targets["lake"].prepared.values()))[0].transaction
    behind.sinks["lake"].write_direct(transaction, Subtask(0, 900), [{"id": 10}])
    adopt(folder, targets)
    another().recover()
    assert visible(targets["lake"]) == list(range(20))


def test_two_pieces_of_one_task_of_which_neither_is_proven_are_not_guessed_at(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    transaction = next(iter(targets["lake"].prepared.values()))[0].transaction
    behind.sinks["lake"].write_direct(transaction, Subtask(1, 900), [{"id": 15}])
    with pytest.raises(StopJobError, match="nothing tells which of them is decided") as caught:
        repair(folder, targets).plan()
    assert len(targets["lake"].prepared) == 2
    assert "look at their rows, and end the superseded ones by hand" in caught.value.remedy
    rows = {key: [row["id"] for row in rows] for key, (_, rows) in targets["lake"].prepared.items()}
    [superseded] = [key for key, ids in rows.items() if ids == [15]]
    del targets["lake"].prepared[superseded]
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_a_change_since_the_plan_was_shown_stops_it(
    behind: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    plan = repairing.plan()
    lake = behind.sinks["lake"]
    lake.commit([CommitRequest(lake.in_doubt()[0])])
    with pytest.raises(StopJobError, match="has changed since the plan was shown"):
        repairing.adopt(plan, NOTE)
    assert not JobLog(LocalStorage(folder), JOB).read().repairs
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_a_piece_that_is_lost_while_it_is_adopted_is_told_and_left_out_the_next_time(
    behind: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody rolls it back when the job has been taken over, before it is committed."""

    def roll_back(point: str) -> None:
        if point == "R01":
            targets["lake"].prepared.clear()

    with monkeypatch.context() as patch:
        patch.setattr(adopt_module, "failpoint", roll_back)
        with pytest.raises(LostCommittableError, match="Nothing was adopted") as caught:
            adopt(folder, targets)
    assert caught.value.remedy == "run the command again: it shows what is there now."
    with pytest.raises(CheckpointMissingError):
        another().recover()
    assert not repair(folder, targets).plan().sinks["lake"].commits
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == list(range(20))
    assert visible(targets["lake"]) == list(range(15))


def test_a_rewind_that_has_begun_is_given_up_before_the_folder_is_adopted(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """The body of the newest checkpoint is gone, so the rewind is not the only thing in the way."""
    driver.run(0)
    kept = restoring(completed_of(folder, 0), committed=True)
    driver.run(1)
    rewind = replace(kept, sink_ahead=SinkAhead.REWIND)
    dying("S11", lambda: another().coordinator.recover(None, rewind))
    remove_body(folder, 1)
    with pytest.raises(StopJobError, match=r"a rewind to .* has begun, and a sink") as caught:
        adopt(folder, targets)
    assert "twophase repair abandon-rewind JOB.yaml. Then run this command again" in (
        caught.value.remedy
    )
    giving_up = RewindRepair(another().coordinator.context, {})
    giving_up.abandon(giving_up.plan(), NOTE)
    adopt(folder, targets)
    last = another().recover()
    assert last.coordinator.lineage.start == offsets(1).end
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_where_the_folder_knows_everything_there_is_nothing_to_adopt(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    driver.run(0)
    decided(driver, 1)
    with pytest.raises(StopJobError, match="there is nothing to adopt"):
        repair(folder, targets).plan()


def test_a_target_that_lacks_something_is_not_adopted_from(
    behind: Driver, targets: Targets, folder: Path
) -> None:
    restore_target(targets["lake"], MemoryTarget())
    with pytest.raises(TargetChangedError, match="sink 'lake'"):
        repair(folder, targets).plan()


@pytest.mark.parametrize(
    "is_loser", [False, True], ids=["the lost one", "another attempt of its task"]
)
@pytest.mark.parametrize("dies", ["", "R03"], ids=["committed", "not committed yet"])
def test_a_piece_whose_loss_was_accepted_is_not_adopted_when_it_comes_back(
    driver: Driver, targets: Targets, another: Another, folder: Path, dies: str, is_loser: bool
) -> None:
    """Its rows may have been written again by hand."""
    driver.run(0)
    decided(driver, 1)
    before = dict(targets["facts"].prepared)
    lose(targets["facts"], 1, 1)
    accepting = accept_loss(folder, targets)
    plan = accepting.plan(1, "facts")
    if dies:
        dying(dies, lambda: accepting.accept(plan, NOTE))
    else:
        accepting.accept(plan, NOTE)
    for key, (piece, rows) in before.items():
        if key[5].index == 1:
            subtask = Subtask(1, 900) if is_loser else piece.subtask
            targets["facts"].prepared[*key[:5], subtask] = (replace(piece, subtask=subtask), rows)
    remove_body(folder, 1)
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == list(range(15))
    assert visible(targets["lake"]) == list(range(20))
    assert not targets["facts"].prepared


def two_decided(driver: Driver) -> None:
    """Checkpoint 0 is committed, 1 and 2 are decided, as with `checkpoint.max_concurrent`."""
    driver.run(0)
    decided(driver, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.coordinator, "_make_room", lambda number: None)
        decided(driver, 2)


def test_what_an_adoption_has_left_for_the_next_start_to_abort_no_second_one_commits(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """The first had the body, which lists the decided pieces; it has given it up."""
    driver.run(0)
    decided(driver, 1)
    transaction = next(iter(targets["lake"].prepared.values()))[0].transaction
    driver.sinks["lake"].write_direct(transaction, Subtask(7, 900), [{"id": 10}])
    for _ in range(2):
        repairing = repair(folder, targets, nothing, is_stuck=True)
        plan = repairing.plan()
        assert [piece.subtask.index for piece in plan.sinks["lake"].aborts] == [7]
        assert plan.end == offsets(1).end
        repairing.adopt(plan, NOTE)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_decisions_after_a_checkpoint_without_body_are_adopted_with_it(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    two_decided(driver)
    remove_body(folder, 1)
    with pytest.raises(CheckpointMissingError, match="adopt-from-target"):
        another().recover()
    adopt(folder, targets)
    lineage = another().recover().coordinator.lineage
    assert lineage.start == offsets(2).end
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def test_a_checkpoint_without_body_of_which_no_target_has_anything_is_written_again(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """As after a rewind in another folder that was given up: adopting it would lose its rows."""
    driver.run(0)
    decided(driver, 1)
    for target in targets.values():
        lose(target, 1, 0, 1)
    remove_body(folder, 1)
    adopt(folder, targets)
    last = another().recover()
    assert last.coordinator.lineage.start == offsets(0).end
    last.run(1)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_a_body_that_can_be_read_tells_a_superseded_task_attempt(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Of the checkpoint behind one whose body is gone."""
    two_decided(driver)
    transaction = next(
        key[0].transaction
        for key in targets["lake"].prepared.values()
        if key[0].transaction.checkpoint == 2
    )
    driver.sinks["lake"].write_direct(transaction, Subtask(0, 900), [{"id": 20}])
    remove_body(folder, 1)
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


@pytest.mark.parametrize("found", [frozen, nothing], ids=["Spark's folder", "no folder of Spark's"])
def test_a_log_that_has_missed_only_a_driver_goes_on_in_its_own_lineage(
    driver: Driver, another: Another, folder: Path, found: Frozen
) -> None:
    """A checkpoint that is decided in it is committed, and one whose rows were all filtered out is
    not written again.
    """

    def filtered(pending: PendingCheckpoint) -> None:
        for name in driver.sinks:
            pending.acknowledge(name, [])

    driver.run(0, filtered)
    decided(driver, 1)
    backup = shutil.copytree(folder, folder.with_name("backup"))
    fenced = another()
    for sink in fenced.sinks.values():
        sink.fence(Attempt(2, 0))
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with pytest.raises(CheckpointMissingError, match="has seen generation 2"):
        another().recover()
    plan = repair(folder, driver.targets, found).plan()
    assert (plan.missed, plan.lineage, plan.checkpoint) == (2, driver.coordinator.lineage.id, 1)
    assert [len(sink.commits) for sink in plan.sinks.values()] == [2, 2]
    assert repair(folder, driver.targets, found).adopt(plan, NOTE) is None
    recovered = another().recover()
    assert recovered.coordinator.lineage == driver.coordinator.lineage
    assert recovered.coordinator.context.history.repairs == (Adoption(NOTE, None),)
    assert visible(driver.targets["facts"]) == visible(driver.targets["lake"]) == [*range(10, 20)]


def test_a_checkpoint_of_a_newer_folder_that_is_restored_after_an_older_one_went_on_is_not_noticed(
    driver: Driver, another: Another, folder: Path
) -> None:
    """A rewind has taken it back, so the older folder lacks nothing; it uses the number again."""
    driver.run(0)
    backup = shutil.copytree(folder, folder.with_name("backup"))
    first = completed_of(folder, 0)
    driver.run(1)
    newer = completed_of(folder, 1)
    rewind = replace(restoring(first, committed=True), sink_ahead=SinkAhead.REWIND)
    Driver(folder.with_name("restored"), driver.targets).coordinator.recover(None, rewind)
    assert visible(driver.targets["facts"]) == [*range(10)]
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    adopt(folder, driver.targets)
    another().recover().run(1)
    elsewhere = Driver(folder.with_name("newer"), driver.targets).coordinator
    elsewhere.recover(None, restoring(newer, committed=True))
    assert visible(driver.targets["facts"]) == [*range(20)]


def test_a_lineage_without_checkpoints_goes_on_where_it_began(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    driver.run(0)
    restore = restoring(completed_of(folder, 0), committed=True)
    restored = another()
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    for target in targets.values():  # the job has begun in other targets, say
        restore_target(target, MemoryTarget())
        target.fences[JOB, "facts"] = Attempt(7, 1)
    log = JobLog(LocalStorage(folder), JOB)
    lineage = replace(log.read().lineages[-1], proofs=())
    forgets = [replace(one, committed=True, proofs=()) for one in log.history.decisions]
    log.fold(replace(log.history, lineages=(lineage,), decisions=tuple(forgets)))
    repairing = repair(folder, targets, nothing)
    assert repairing.adopt(repairing.plan(), NOTE) is None
    assert another().recover().coordinator.lineage == lineage


def test_of_a_checkpoint_of_which_only_a_mark_is_left_nothing_more_is_committed(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """A superseded task attempt that pre-commits when its checkpoint is committed and
    the ledger collapsed.
    """
    driver.run(0)
    newest = completed_of(folder, 0)
    facts = driver.sinks["facts"]
    facts.write_direct(newest.committables["facts"][0].transaction, Subtask(0, 900), [{"id": 0}])
    facts.subsume(newest.lineage, 0)
    shutil.rmtree(folder)
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))
    assert not targets["facts"].prepared

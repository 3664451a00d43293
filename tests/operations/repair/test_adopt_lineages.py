"""An adoption by targets that know several lineages, as those of every job do that was ever
restored: a mark stays for ever.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    completed_of,
    decided,
    frozen,
    lose,
    nothing,
    offsets,
    restoring,
    visible,
)
from tests.coordinator.recovery.test_restored_target import backup, restore_target
from tests.operations.repair.test_accept_loss import repair as accept_loss
from tests.operations.repair.test_adopt import Another, Targets, adopt, repair
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import CheckpointMissingError, StopJobError, TargetChangedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.operations.repair.adoption_plan import Frozen
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import AcceptedLoss, Lineage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

OLD, NEW, NEWEST = "ffffffff-0000", "00000000-1111", "88888888-2222"
"""Nothing can be inferred from an id: the oldest lineage has the greatest."""


def only(lineage: str) -> Frozen:
    """Of Spark's folders that of one lineage is left."""
    return lambda one, batch: offsets(batch) if one == lineage else None


def begun(another: Another) -> Driver:
    driver = another()
    driver.coordinator.recover()
    driver.coordinator.begin_lineage(Lineage(OLD))
    return driver


def restored(another: Another, folder: Path, number: int, lineage: str) -> Driver:
    """A driver that has restored the job from one of its checkpoints, as `load_restore` has it."""
    continued = JobLog(LocalStorage(folder), JOB).read().lineages[-1].ancestors
    restore = restoring(completed_of(folder, number), committed=True)
    begins = replace(
        restore.lineage, id=lineage, ancestors={**continued, **restore.lineage.ancestors}
    )
    driver = another()
    driver.coordinator.recover(restore=replace(restore, lineage=begins))
    driver.coordinator.begin_lineage(begins)
    return driver


def commit_in(driver: Driver, sink: str) -> None:
    found = driver.sinks[sink]
    found.commit([CommitRequest(piece) for piece in found.in_doubt()])


@pytest.fixture
def in_commit(another: Another, folder: Path) -> Driver:
    """Restored once, killed with checkpoint 2 committed in `facts` and pre-committed in `lake`;
    then the log is gone.
    """
    begun(another).run(0)
    driver = restored(another, folder, 0, NEW)
    driver.run(1)
    decided(driver, 2)
    commit_in(driver, "facts")
    shutil.rmtree(folder / "log")
    return driver


@pytest.mark.parametrize(
    "found", [frozen, only(NEW)], ids=["both of Spark's folders", "that of the newer one"]
)
@pytest.mark.parametrize(
    "names", [True, False], ids=["pieces are named", "only numbers are proven"]
)
def test_what_waits_is_committed_and_the_job_goes_on_where_spark_s_folder_says(
    in_commit: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Frozen,
    names: bool,
) -> None:
    if not names:
        monkeypatch.setattr(OpenMemorySink, "committed_pieces", lambda *_: ())
    adopt(folder, targets, found)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))
    lineage = another().recover().coordinator.lineage
    assert lineage.start == offsets(2).end
    assert lineage.ancestors == {OLD: 0, NEW: 2}
    assert visible(targets["lake"]) == list(range(30))


def test_what_waits_is_committed_where_spark_s_folder_is_gone_too(
    in_commit: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets, nothing)
    driver = another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))
    assert driver.coordinator.lineage.start == ()


def test_spark_s_offsets_that_are_not_those_of_the_pieces_are_not_taken(
    in_commit: Driver, targets: Targets, folder: Path
) -> None:
    plan = repair(folder, targets, lambda _, batch: offsets(batch + 7)).plan()
    assert (plan.lineage, plan.end) == (NEW, ())
    assert len(plan.sinks["lake"].commits) == 2


@pytest.mark.parametrize(
    "found", [only(NEW), only(OLD), frozen, nothing], ids=["newer", "older", "both", "none"]
)
def test_of_marks_alone_nothing_tells_which_is_newer_not_even_the_only_folder_of_spark_s(
    targets: Targets, another: Another, folder: Path, found: Frozen
) -> None:
    begun(another).run(0)
    driver = restored(another, folder, 0, NEW)
    driver.run(1)
    for sink in driver.sinks.values():
        sink.subsume(NEW, 1)
    shutil.rmtree(folder)
    plan = repair(folder, targets, found).plan()
    assert (plan.lineage, plan.checkpoint, plan.end) == ("", -1, ())
    assert plan.ancestors == {OLD: 0, NEW: 1}


def test_nothing_is_written_twice_where_a_backup_has_spark_s_folder_of_an_older_lineage_only(
    targets: Targets, another: Another, folder: Path
) -> None:
    """It is of the end of the second of three lineages, and its log is damaged: the targets have
    checkpoint 2 of the third.
    """
    begun(another).run(0)
    restored(another, folder, 0, NEW).run(1)
    old = folder.with_name("backup")
    shutil.copytree(folder, old)
    driver = restored(another, folder, 1, NEWEST)
    driver.run(1)
    driver.run(2)
    for sink in driver.sinks.values():
        sink.subsume(NEWEST, 2)
    shutil.rmtree(folder)
    shutil.copytree(old, folder)
    shutil.move(folder / "log", folder / "log.damaged")
    plan = repair(folder, targets, only(NEW)).plan()
    assert plan.ancestors == {OLD: 0, NEW: 1, NEWEST: 2}
    assert (plan.lineage, plan.end) == ("", ())


@pytest.mark.parametrize("left", [only(NEW), nothing], ids=["the newest lineage", "nothing"])
def test_where_what_waits_and_spark_s_folder_say_something_else_nothing_is_guessed(
    in_commit: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: Frozen,
) -> None:
    """As with the folder that the job was restored from elsewhere: it has no more than
    the older lineage.
    """
    monkeypatch.setattr(OpenMemorySink, "committed_pieces", lambda *_: ())
    in_doubt = len(targets["lake"].prepared)
    with pytest.raises(StopJobError, match="nothing tells which of the lineages") as caught:
        repair(folder, targets, only(OLD)).plan()
    assert NEW in caught.value.what
    assert "below spark/; in the plugin form `offsets` beside `metadata`" in caught.value.remedy
    assert len(targets["lake"].prepared) == in_doubt == 2
    adopt(folder, targets, left)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def prepare(target: MemoryTarget, sink: str, lineage: str, number: int, attempt: Attempt) -> None:
    """A piece with one row is pre-committed, whatever the fence says: it has come back, or its
    driver is in another folder.
    """
    transaction = TransactionId(JOB, lineage, number, attempt, sink, offsets(number).hash)
    piece = Committable(transaction, Subtask(0, 900), f"memory:{target.name}", 1)
    target.prepared[JOB, sink, lineage, number, attempt, piece.subtask] = (
        piece,
        [{"id": number * 10}],
    )


def test_a_piece_of_a_lineage_that_a_newer_one_has_followed_is_not_committed(
    in_commit: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """All that was decided of the older one is committed; otherwise no target would
    know the newer one.
    """
    targets["facts"].high_water[JOB, "facts", OLD] = 3
    prepare(targets["lake"], "lake", OLD, 3, Attempt(1, 9))
    plan = repair(folder, targets).plan()
    assert [piece.transaction.lineage for piece in plan.sinks["lake"].aborts] == [OLD]
    adopt(folder, targets)
    another().recover()
    assert visible(targets["lake"]) == list(range(30))
    assert not targets["lake"].prepared


def test_what_another_driver_has_decided_beyond_an_adopted_end_is_committed(
    in_commit: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """It went on in the folder that was thought to be lost. The log knows both lineages."""
    adopt(folder, targets)
    another().recover()
    attempt = in_commit.coordinator.generation, 9
    targets["facts"].ledger.add((JOB, "facts", NEW, 3, Attempt(*attempt), Subtask(0, 900)))
    prepare(targets["lake"], "lake", NEW, 3, Attempt(*attempt))
    with pytest.raises(CheckpointMissingError):
        another().recover()
    plan = repair(folder, targets).plan()
    assert (len(plan.sinks["lake"].commits), plan.end) == (1, ())
    adopt(folder, targets)
    another().recover()
    assert visible(targets["lake"]) == list(range(31))


def test_what_a_body_that_is_gone_had_decided_before_a_restore_is_committed(
    another: Another, folder: Path, targets: Targets
) -> None:
    """The lineage has begun, and the one before it waits for its commit: that
    is the older one's.
    """
    old = begun(another)
    old.run(0)
    decided(old, 1)
    commit_in(old, "facts")
    history = JobLog(LocalStorage(folder), JOB)
    history.read()
    history.append(Lineage(NEW, first_checkpoint=1, ancestors={OLD: 1}))
    (
        folder
        / next(one for one in history.history.decisions if one.checkpoint == 1).folder
        / "_metadata"
    ).unlink()
    with pytest.raises(CheckpointMissingError):
        another().recover()
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize("last", range(1, 6))
def test_what_waits_in_several_sinks_is_committed_oldest_first_though_the_repair_is_killed_in_between(  # noqa: E501
    in_commit: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    last: int,
) -> None:
    """`facts` waits for the newer of two checkpoints, `lake` was restored from a backup and waits
    for both; another sink has proof of them.
    """
    targets["archive"] = MemoryTarget()
    targets["archive"].high_water[JOB, "archive", NEW] = 4
    for sink, numbers in (("facts", [4]), ("lake", [3, 4])):
        for number in numbers:
            prepare(
                targets[sink], sink, NEW, number, Attempt(in_commit.coordinator.generation, number)
            )
    commit, done = OpenMemorySink.commit, []

    def killed(sink: OpenMemorySink, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = commit(sink, requests)
        done.append(sink)
        if len(done) == last:
            raise KeyboardInterrupt
        return outcomes

    with monkeypatch.context() as patch:
        patch.setattr(OpenMemorySink, "commit", killed)
        with contextlib.suppress(KeyboardInterrupt):
            adopt(folder, targets)
    assert len(done) == min(last, 4)
    if last <= 4:
        adopt(folder, targets)
    another().recover()
    assert visible(targets["lake"]) == [*range(30), 30, 40]
    assert not targets["lake"].prepared


def test_pieces_of_a_lineage_with_a_mark_alone_are_committed_though_an_older_version_left_a_ledger_before_it(  # noqa: E501
    in_commit: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """What waits has a generation, and that tells the order, not the ledger."""
    in_commit.sinks["facts"].subsume(NEW, 2)
    targets["facts"].ledger.add((JOB, "facts", OLD, 0, Attempt(1, 1), Subtask(0, 100)))
    plan = repair(folder, targets, nothing).plan()
    assert (plan.lineage, plan.checkpoint, plan.sinks["lake"].aborts) == (NEW, 2, ())
    adopt(folder, targets)
    another().recover()
    assert visible(targets["lake"]) == list(range(30))


# -- what the targets have to have from then on ----------------------------------------------------


def into_facts(driver: Driver, number: int) -> None:
    """A checkpoint without rows in the lake."""

    def write(pending: PendingCheckpoint) -> None:
        rows = [{"id": number * 10 + step} for step in range(10)]
        piece = driver.sinks["facts"].write_direct(
            pending.transaction("facts"), Subtask(0, 900), rows
        )
        assert piece is not None
        pending.acknowledge("facts", [piece])
        pending.acknowledge("lake", [])

    driver.run(number, write)


@pytest.fixture
def of_three(targets: Targets, another: Another, folder: Path) -> MemoryTarget:
    """`facts` has three lineages, `lake` the first two; the folder is gone. Returns the lake as it
    was with the first.
    """
    begun(another).run(0)
    old = backup(targets["lake"])
    restored(another, folder, 0, NEW).run(1)
    into_facts(restored(another, folder, 1, NEWEST), 1)
    shutil.rmtree(folder)
    return old


@pytest.mark.parametrize(
    "lake_tells", [True, False], ids=["the lake tells its newer lineage", "the lake has two marks"]
)
def test_a_target_must_have_its_newest_lineage_from_then_on(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path, lake_tells: bool
) -> None:
    mark = (JOB, "lake", NEW)
    assert not targets["lake"].ledger
    if lake_tells:  # as if the driver had died before it collapsed the ledger
        del targets["lake"].high_water[mark]
        targets["lake"].ledger.add((*mark, 1, Attempt(2, 1), Subtask(0, 201)))
    adopt(folder, targets)
    driver = another().recover()
    required = {
        proof.lineage for proof in driver.coordinator.lineage.proofs or () if proof.sink == "lake"
    }
    assert required == ({NEW} if lake_tells else {OLD, NEW})
    into_facts(driver, 1)  # a checkpoint without rows in the lake carries what the lake has to have
    restore_target(targets["lake"], of_three)
    with pytest.raises(TargetChangedError, match=f"checkpoint 1 of lineage {NEW}"):
        another().recover()


def test_the_loss_of_either_of_two_lineages_can_be_accepted(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets)
    into_facts(another().recover(), 1)
    restore_target(targets["lake"], of_three)
    accepting = accept_loss(folder, targets)
    plan = accepting.plan(1, "lake")
    assert plan.lineage == NEW
    accepting.accept(plan, NOTE)
    driver = another().recover()
    driver.run(2)
    assert visible(targets["lake"]) == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("lacked", [NEW, OLD], ids=["the newer", "the older"])
def test_either_of_two_lineages_is_missed_in_a_target_restored_under_the_running_job(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path, lacked: str
) -> None:
    """The commit behind them would hide for ever what the target lacks."""
    adopt(folder, targets)
    driver = another().recover()
    right = backup(targets["lake"])
    del targets["lake"].high_water[JOB, "lake", lacked]
    with pytest.raises(
        TargetChangedError, match=f"of lineage {lacked} is committed, .*Checkpoint 1 is decided"
    ):
        driver.run(1)
    assert visible(targets["lake"]) == list(range(20))
    restore_target(targets["lake"], right)
    another().recover()
    assert visible(targets["lake"]) == sorted([*range(20), *range(10, 20)])


def test_of_two_lineages_that_a_lineage_continues_the_one_that_the_target_has_is_named(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    """The rows behind it are what is missing."""
    adopt(folder, targets)
    another().recover().run(1)
    restore_target(targets["lake"], of_three)
    plan = accept_loss(folder, targets).plan(1, "lake")
    assert [(proof.lineage, proof.checkpoint) for proof in plan.before] == [(OLD, 0)]


def decided_and_lost(driver: Driver, targets: Targets) -> None:
    """Checkpoint 1, the first behind the adoption, is decided, and all its pieces in the lake are
    rolled back by hand.
    """
    decided(driver, 1)
    lose(targets["lake"], 1, 0, 1)


def kept_as_they_were(driver: Driver, targets: Targets) -> MemoryTarget:
    """Checkpoint 1 is committed, and then the lake is restored to just before it. Returns
    the lake as it was.
    """
    right = backup(targets["lake"])
    driver.run(1)
    restore_target(targets["lake"], right)
    return right


@pytest.mark.parametrize("lacked", [NEW, OLD], ids=["the newer", "the older"])
@pytest.mark.parametrize(
    "lost", [decided_and_lost, kept_as_they_were], ids=["pieces", "all since a backup"]
)
@pytest.mark.parametrize("running", [False, True], ids=["at a start", "under the running job"])
def test_after_an_accepted_loss_either_of_two_lineages_is_missed_in_a_restored_target(
    of_three: MemoryTarget,
    targets: Targets,
    another: Another,
    folder: Path,
    lacked: str,
    lost: Callable[[Driver, Targets], object],
    running: bool,
) -> None:
    """What is to be proven in place of the lost checkpoint is both, as it
    was for the lost one.
    """
    adopt(folder, targets)
    lost(another().recover(), targets)
    accepting = accept_loss(folder, targets)
    plan = accepting.plan(1, "lake")
    assert {(proof.lineage, proof.checkpoint) for proof in plan.before} == {(OLD, 0), (NEW, 1)}
    accepting.accept(plan, NOTE)
    driver = another().recover()
    if not running:
        into_facts(driver, 2)  # a fold or a restart later it is still known
        driver = another()
    del targets["lake"].high_water[JOB, "lake", lacked]
    with pytest.raises(TargetChangedError, match=f"of lineage {lacked} is committed"):
        driver.run(2) if running else driver.recover()
    assert visible(targets["lake"]) == list(range(20))


def test_of_two_lineages_that_a_lineage_continues_what_the_target_lacks_is_given_up_by_name(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    """Otherwise its pieces would be committed if the backup has them prepared; they may have been
    written by hand since.
    """
    adopt(folder, targets)
    another().recover().run(1)
    restore_target(targets["lake"], of_three)
    accepting = accept_loss(folder, targets)
    plan = accepting.plan(1, "lake")
    assert f"are missing in it, as are checkpoints up to 1 of the older lineage {NEW}. " in plan.gap
    accepting.accept(plan, NOTE)
    repairs = another().recover().coordinator.context.log.history.repairs
    assert isinstance(repairs[-1], AcceptedLoss)
    assert repairs[-1].covers(NEW, 1)


def test_of_a_target_that_lacks_two_lineages_both_are_named(
    of_three: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    adopt(folder, targets)
    another().recover().run(1)
    restore_target(targets["lake"], MemoryTarget())
    plan = accept_loss(folder, targets).plan(1, "lake")
    assert {proof.lineage for proof in plan.lacks[1:]} == {OLD, NEW}
    assert plan.before == []

"""Lost pieces are written again: the checkpoint is exact after it, whenever the repair dies, and
nothing is doubled.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.loss_world import FIRST, RereadRows
from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    ManualClock,
    completed_of,
    decided,
    dying,
    lose,
    rows,
    visible,
)
from tests.coordinator.conftest import each, in_part
from tests.coordinator.recovery.test_restored_target import (
    backup,
    restore_target,
    restore_target_in_commit,
)
from tests.operations.repair.test_accept_loss import Another, Targets
from tests.operations.repair.test_accept_loss import repair as accepting
from tests.operations.repair.test_adopt import adopt
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.context import JobContext
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    DeclinedError,
    FencedError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
)
from twophase.events import Observers
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.operations.repair import rewrite as rewrite_module
from twophase.operations.repair.rewrite import RewriteRepair
from twophase.options.job_options import JobOptions
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Rewrite
from twophase.state.journal.log import JobLog
from twophase.testing.memory import OpenMemorySink


def repair(folder: Path, targets: Targets, reread: RereadRows | None = None) -> RewriteRepair:
    sinks = {name: OpenMemorySink(target, JOB, name) for name, target in targets.items()}
    options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
    reread = reread or RereadRows()
    reread.sinks = sinks
    return RewriteRepair(
        JobContext(JOB, LocalStorage(folder), sinks, options, Observers(), ManualClock()), reread
    )


def rewrite(folder: Path, targets: Targets, reread: RereadRows | None = None) -> None:
    repairing = repair(folder, targets, reread)
    repairing.rewrite(repairing.plan(1, "facts"), NOTE)


def history(folder: Path) -> tuple[object, ...]:
    return JobLog(LocalStorage(folder), JOB).read().repairs


def exact(targets: Targets, another: Another) -> None:
    """The next driver goes on; both sinks have everything once, and nothing is left prepared."""
    another().recover().run(2)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))
    assert not targets["facts"].prepared
    assert not targets["lake"].prepared


@each
def test_what_is_lost_is_written_again_and_nothing_else(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    with pytest.raises(LostCommittableError, match="twophase repair rewrite"):
        another().recover()
    old = completed_of(folder, 1)
    rewrite(folder, targets)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    (found,) = history(folder)
    assert isinstance(found, Rewrite)
    assert (found.note, found.sink, found.replaced) == (NOTE, "facts", old.attempt)
    assert found.rows == 5 * len(found.pieces)
    exact(targets, another)


@each
@pytest.mark.parametrize("point", ["R01", "R02", "C04", "C05", "R04", "R05", "R03", "C19"])
def test_a_rewrite_that_dies_is_run_again(
    broken: Driver, targets: Targets, another: Another, folder: Path, point: str
) -> None:
    dying(point, lambda: rewrite(folder, targets))
    if not history(folder):
        with pytest.raises(LostCommittableError):
            another().recover()
        rewrite(folder, targets)
        assert not targets["facts"].prepared, "what the dead one has left would hold its locks"
    exact(targets, another)
    assert len(history(folder)) == 1


@in_part
def test_once_it_is_recorded_it_is_not_written_a_second_time(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    dying("R03", lambda: rewrite(folder, targets))
    with pytest.raises(StopJobError, match="nothing of checkpoint 1 is lost in sink 'facts'"):
        rewrite(folder, targets)
    exact(targets, another)


def test_what_is_lost_of_the_newest_committed_checkpoint_is_written_again(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Spark repeats its micro-batch, which asks for its pieces once more."""
    driver.run(0)
    driver.run(1)
    facts = targets["facts"]
    facts.ledger = {key for key in facts.ledger if key[3] != 1 or key[5].index == 0}
    facts.visible = [row for row in facts.visible if row["id"] < 15]
    again = another().recover()
    with pytest.raises(LostCommittableError, match="twophase repair rewrite"):
        again.coordinator.replay(again.history.decisions[-1], None)
    rewrite(folder, targets)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    again = another().recover()
    again.coordinator.replay(again.history.decisions[-1], None)
    exact(targets, another)


@each
def test_the_new_pieces_may_be_lost_too(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    dying("R03", lambda: rewrite(folder, targets))
    for key in [key for key in targets["facts"].prepared if key[5].task_attempt >= FIRST]:
        del targets["facts"].prepared[key]
    with pytest.raises(LostCommittableError):
        another().recover()


@in_part
def test_a_piece_of_another_sink_that_is_prepared_again_is_committed_again(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Its attempt is not the one that the checkpoint has after the rewrite."""
    dying("R03", lambda: rewrite(folder, targets))
    next_driver = another()
    restore_target_in_commit(next_driver.sinks["lake"], targets["lake"])
    next_driver.recover()
    exact(targets, another)


@in_part
def test_a_lost_piece_that_comes_back_is_aborted_as_an_orphan(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    transaction = completed_of(folder, 1).committables["facts"][1].transaction
    dying("R03", lambda: rewrite(folder, targets))
    fence, targets["facts"].fences[JOB, "facts"] = (
        targets["facts"].fences[JOB, "facts"],
        transaction.attempt,
    )
    assert (
        broken.sinks["facts"].write_direct(transaction, Subtask(1, 201), [{"id": 15}]) is not None
    )
    targets["facts"].fences[JOB, "facts"] = fence
    exact(targets, another)


@in_part
def test_the_old_body_goes_and_the_new_one_is_kept(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    dying("R05", lambda: rewrite(folder, targets))  # its body is in no decision
    rewrite(folder, targets)
    another().recover()
    (body,) = [path.name for path in (folder / "chk").iterdir() if "-1-" in path.name]
    assert body.endswith(f"-1-{completed_of(folder, 1).attempt}")


@in_part
def test_a_target_restored_after_it_is_noticed(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    old = backup(targets["facts"])
    rewrite(folder, targets)
    driver = another().recover()
    driver.run(2)
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError):
        another().recover()


@in_part
def test_rows_that_were_given_up_before_are_not_written_again(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    losing = accepting(folder, targets)
    plan = losing.plan(1, "facts")
    dying("R03", lambda: losing.accept(plan, NOTE))
    targets["facts"].ledger = {key for key in targets["facts"].ledger if key[3] != 1}
    targets["facts"].visible = [row for row in targets["facts"].visible if row["id"] < 10]
    reread = RereadRows()
    rewrite(folder, targets, reread)
    another().recover()
    assert visible(targets["facts"]) == list(range(15))
    assert reread.gone == {1}, "a new piece of the same task would be given up with it"


@each
def test_an_adoption_knows_the_attempt_that_the_other_pieces_have(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """The body of the rewritten checkpoint is gone before `lake` has committed: its pieces are
    of the old attempt.
    """
    dying("R03", lambda: rewrite(folder, targets))
    attempt = JobLog(LocalStorage(folder), JOB).read().decisions[-1]
    shutil.rmtree(folder / attempt.folder)
    with pytest.raises(CheckpointMissingError):
        another().recover()
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@in_part
@pytest.mark.parametrize(
    "is_loser", [False, True], ids=["the lost one", "another attempt of its task"]
)
def test_an_adoption_does_not_take_a_lost_piece_that_is_back(
    broken: Driver, targets: Targets, another: Another, folder: Path, is_loser: bool
) -> None:
    lost = completed_of(folder, 1).committables["facts"][1]
    back = Subtask(lost.subtask.index, 900) if is_loser else lost.subtask
    dying("C19", lambda: rewrite(folder, targets))
    decision = JobLog(LocalStorage(folder), JOB).read().decisions[-1]
    shutil.rmtree(folder / decision.folder)
    fence, targets["facts"].fences[JOB, "facts"] = (
        targets["facts"].fences[JOB, "facts"],
        lost.transaction.attempt,
    )
    assert broken.sinks["facts"].write_direct(lost.transaction, back, [{"id": 15}]) is not None
    targets["facts"].fences[JOB, "facts"] = fence
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@in_part
def test_a_piece_that_is_lost_once_more_is_known_by_the_attempt_of_its_rewrite(
    broken: Driver, targets: Targets, folder: Path
) -> None:
    dying("R03", lambda: rewrite(folder, targets))
    new = completed_of(folder, 1)
    (piece,) = [one for one in new.committables["facts"] if one.transaction.attempt == new.attempt]
    lose(targets["facts"], 1, piece.subtask.index)
    plan = repair(folder, targets).plan(1, "facts")
    assert plan.lost.pieces == [piece]
    assert plan.lost.rewritten == {new.attempt}


@each
@pytest.mark.parametrize("names_pieces", [True, False], ids=["names its pieces", "does not"])
def test_what_a_newer_copy_of_the_folder_has_written_again_is_not_written_twice(
    broken: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names_pieces: bool,
) -> None:
    """Found by the simulation: the folder was restored as it was before the repair, and adopted; of
    the checkpoint it knows only the first attempt, whose piece is still lost.
    """
    if not names_pieces:
        monkeypatch.setattr(rewrite_module, "NamesPieces", type("Nobody", (), {}))
    shutil.copytree(folder, tmp_path / "before")
    rewrite(folder, targets)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "before", folder)
    with pytest.raises(CheckpointMissingError):
        another().recover()
    adopt(folder, targets)
    with pytest.raises(LostCommittableError):
        another().recover()
    with pytest.raises(StopJobError, match=r"newer copy of the job's folder.*accept-loss"):
        rewrite(folder, targets)
    accepted = accepting(folder, targets)
    accepted.accept(accepted.plan(1, "facts"), NOTE)
    exact(targets, another)


# -- refused ---------------------------------------------------------------------------------------


def test_where_nothing_is_lost_there_is_nothing_to_write(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    driver.run(0)
    decided(driver, 1)
    with pytest.raises(StopJobError, match="nothing of checkpoint 1 is lost"):
        rewrite(folder, targets)
    assert not history(folder)


@in_part
@pytest.mark.parametrize(("checkpoint", "sink"), [(7, "facts"), (0, "facts"), (1, "elsewhere")])
def test_what_is_not_there_is_named_and_nothing_is_touched(
    broken: Driver, targets: Targets, folder: Path, checkpoint: int, sink: str
) -> None:
    before = JobLog(LocalStorage(folder), JOB).read()
    with pytest.raises(ConfigError):
        repair(folder, targets).plan(checkpoint, sink)
    assert JobLog(LocalStorage(folder), JOB).read() == before


@pytest.mark.parametrize("restores", [True, False])
def test_a_restored_target_has_not_lost_pieces(
    driver: Driver, targets: Targets, another: Another, folder: Path, restores: bool
) -> None:
    driver.run(0)
    old = backup(targets["facts"])
    driver.run(1)
    newest = backup(targets["facts"])
    restore_target(targets["facts"], old)
    with pytest.raises(StopJobError, match="Checkpoints from 1 to 1 are missing") as caught:
        rewrite(folder, targets)
    assert not history(folder)
    assert "restore the target to its previous state, or see what" in caught.value.remedy
    if restores:
        restore_target(targets["facts"], newest)
    else:
        accepted = accepting(folder, targets)
        plan = accepted.plan(1, "facts")
        assert "Checkpoints from 1 to 1 are missing" in plan.gap
        accepted.accept(plan, NOTE)
    another().recover().run(2)
    lacks = set() if restores else {*range(10, 20)}
    assert visible(targets["facts"]) == [one for one in range(30) if one not in lacks]


@in_part
def test_other_rows_than_were_lost_are_not_recorded(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    with pytest.raises(
        StopJobError,
        match=r"5 rows of checkpoint 1 are lost in sink 'facts', and reading .* gave 4",
    ):
        rewrite(folder, targets, RereadRows(fewer=1))
    assert not history(folder)
    assert not targets["facts"].prepared
    rewrite(folder, targets)
    exact(targets, another)


@in_part
def test_as_many_other_rows_are_not_noticed(broken: Driver, targets: Targets, folder: Path) -> None:
    """Another plan than the one that wrote the checkpoint: the rows that were lost are known by
    their number only.
    """
    rewrite(folder, targets, RereadRows(others=100))
    assert visible(targets["facts"]) == [*range(15), *range(115, 120)]
    assert history(folder)


@in_part
def test_a_driver_that_has_stood_in_its_commit_since_before_the_repair_commits_a_piece_that_came_back(  # noqa: E501
    broken: Driver, targets: Targets, folder: Path
) -> None:
    """Nothing in a target tells this commit from a rightful one, as long as no start has
    aborted the piece.
    """
    lost = completed_of(folder, 1).committables["facts"][1]
    rewrite(folder, targets)
    fence, targets["facts"].fences[JOB, "facts"] = (
        targets["facts"].fences[JOB, "facts"],
        lost.transaction.attempt,
    )
    back = broken.sinks["facts"].write_direct(
        lost.transaction, lost.subtask, [{"id": 15 + step} for step in range(5)]
    )
    assert back == lost
    targets["facts"].fences[JOB, "facts"] = fence
    assert broken.sinks["facts"].commit([CommitRequest(lost)]) == [Committed()]
    assert visible(targets["facts"]) == sorted([*range(20), *range(15, 20)]), "twice"


@each
def test_a_rewrite_that_fails_leaves_nothing_prepared(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    with pytest.raises(DeclinedError):
        rewrite(folder, targets, RereadRows(fails=True))
    assert not targets["facts"].prepared
    rewrite(folder, targets)
    exact(targets, another)


@in_part
def test_pieces_of_a_later_checkpoint_wait_for_what_is_lost(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """As with `checkpoint.max_concurrent`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broken.coordinator, "_make_room", lambda number: None)
        decided(broken, 2)
    with pytest.raises(StopJobError, match="checkpoint 2 is decided too") as caught:
        rewrite(folder, targets)
    assert not history(folder)
    assert "go on without the lost pieces of 1 (twophase repair accept-loss)" in caught.value.remedy
    give_up_and_write_by_hand(folder, targets)
    another().recover().run(3)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(40))


def give_up_and_write_by_hand(folder: Path, targets: Targets) -> None:
    """The lost piece of checkpoint 1: what is refused to be written again."""
    losing = accepting(folder, targets)
    plan = losing.plan(1, "facts")
    assert plan.rows == 5
    losing.accept(plan, NOTE)
    targets["facts"].visible += rows(range(15, 20))


def test_pieces_that_a_sink_commits_ahead_of_the_others_are_written_again_by_hand(
    targets: Targets, another: Another, folder: Path
) -> None:
    ahead = {"checkpoint.mode": "at_least_once"}
    driver = another(options=ahead).recover()
    driver.run(0)
    dying("A01", lambda: driver.run(1))
    lose(targets["facts"], 1, 1)
    with pytest.raises(StopJobError, match="commits checkpoint 1 ahead of the others") as caught:
        rewrite(folder, targets)
    assert "go on without the lost pieces (twophase repair accept-loss)" in caught.value.remedy
    give_up_and_write_by_hand(folder, targets)
    another(options=ahead).recover().run(1)
    exact(targets, another)


@in_part
def test_a_driver_that_starts_while_the_operator_thinks_fences_the_repair_out(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    with pytest.raises(LostCommittableError):
        another().recover()
    with pytest.raises(FencedError):
        repairing.rewrite(plan, NOTE)
    assert not history(folder)
    assert not targets["facts"].prepared
    rewrite(folder, targets)
    exact(targets, another)


@in_part
def test_a_rewrite_that_was_taken_for_dead_records_nothing(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Two operators: the second one takes over while the first one writes."""
    repairing = repair(folder, targets, RereadRows(meanwhile=lambda *_: rewrite(folder, targets)))
    plan = repairing.plan(1, "facts")
    with pytest.raises(FencedError):
        repairing.rewrite(plan, NOTE)
    assert len(history(folder)) == 1
    exact(targets, another)


@in_part
def test_a_rewrite_that_another_folder_has_overtaken_takes_no_mark_for_its_proof(
    broken: Driver, targets: Targets, folder: Path
) -> None:
    """Found by the simulation: a job restored elsewhere gave the rows up while they were written
    again, aborted them, and raised the mark of the target above their checkpoint.
    """

    def overtake(transaction: TransactionId, written: list[Committable]) -> None:
        other = OpenMemorySink(targets["facts"], JOB, "facts")
        other.fence(Attempt(9, 0))
        other.abort(written)
        other.subsume(transaction.lineage, 1)

    repairing = repair(folder, targets, RereadRows(meanwhile=overtake))
    plan = repairing.plan(1, "facts")
    with pytest.raises(FencedError):
        repairing.rewrite(plan, NOTE)
    assert JobLog(LocalStorage(folder), JOB).read().uncommitted(), "it would tell what is untrue"

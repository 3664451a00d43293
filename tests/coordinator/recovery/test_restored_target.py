"""A target that was restored from a backup, or is another one: it knows less than the
log calls committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import JOB, Driver, completed_of, dying, restoring, rows, visible
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, OpenSink, SinkHistory
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    ConfigError,
    DeclinedError,
    FencedError,
    FenceLostError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.options.job_options import SinkAhead
from twophase.state.journal.entries import CommittedRecord
from twophase.state.journal.history import Record
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


def restore_target(target: MemoryTarget, old: MemoryTarget) -> None:
    """As a backup would: rows, ledger, marks and fence together."""
    target.visible, target.ledger = list(old.visible), set(old.ledger)
    target.high_water, target.fences = dict(old.high_water), dict(old.fences)
    target.written = dict(old.written)


def backup(target: MemoryTarget) -> MemoryTarget:
    copy = MemoryTarget()
    restore_target(copy, target)
    return copy


def test_a_restored_target_stops_the_job(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    old = backup(targets["lake"])
    driver.run(1)
    driver.run(2)
    restore_target(targets["lake"], old)
    records = len(driver.history.decisions)
    again = another()
    with pytest.raises(
        TargetChangedError, match=r"checkpoint 2 .* sink 'lake' .* knows up to 0 of that lineage"
    ):
        again.recover()
    assert (again.coordinator.generation, len(again.history.decisions)) == (
        0,
        records,
    )


def test_an_empty_target_in_place_of_the_old_one_stops_the_job(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    restore_target(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError, match="knows none of that lineage"):
        another().recover()


def test_a_restart_of_the_same_driver_notices_it_too(driver: Driver, targets: Targets) -> None:
    driver.run(0)
    restore_target(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError):
        driver.coordinator.recover(driver.coordinator.generation)


def test_a_proof_that_was_folded_is_one(driver: Driver, targets: Targets, another: Another) -> None:
    driver.run(0)
    for sink in driver.sinks.values():
        sink.subsume(driver.coordinator.lineage.id, 0)
    assert not targets["facts"].ledger
    another().recover()


def no_rows_for(name: str, driver: Driver) -> Callable[[PendingCheckpoint], None]:
    """All sinks but one get rows."""

    def pre_commit(pending: PendingCheckpoint) -> None:
        with mock.patch.object(pending, "acknowledge") as acknowledge:
            driver.write(pending)
        for sink, pieces in (call.args for call in acknowledge.call_args_list):
            pending.acknowledge(sink, () if sink == name else pieces)
        driver.sinks[name].abort(driver.sinks[name].in_doubt())

    return pre_commit


def test_a_sink_without_rows_in_the_newest_checkpoint_is_missed_too(
    driver: Driver, targets: Targets, another: Another
) -> None:
    old = backup(targets["facts"])
    driver.run(0)
    driver.run(1, no_rows_for("facts", driver))
    restore_target(targets["facts"], old)
    with pytest.raises(
        TargetChangedError,
        match=r"checkpoint 0 .* sink 'facts' .* knows none .* Checkpoints up to 0",
    ):
        another().recover()


def test_what_a_sink_had_long_ago_outlives_every_fold_and_driver(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twophase.state.checkpoints.store._FOLD_AT", 3)
    old = backup(targets["facts"])
    driver.run(0)
    for number in range(1, 9):
        driver.run(number, no_rows_for("facts", driver))
        if number % 3 == 0:
            driver = another().recover()
    assert driver.context.log.length() <= 3
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError, match=r"checkpoint 0 of lineage"):
        another().recover()


def test_a_sink_that_never_had_rows_proves_nothing(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0, no_rows_for("facts", driver))
    restore_target(targets["facts"], MemoryTarget())
    another().recover().run(1)
    assert visible(targets["facts"]) == list(range(10, 20))


def test_a_folder_and_its_targets_that_are_gone_together_are_a_fresh_start(
    driver: Driver, tmp_path: Path
) -> None:
    """Nothing is left that remembers the job: only an operator knows, and sets
    restore.error_if_no_checkpoint.
    """
    driver.run(0)
    empty = {"facts": MemoryTarget(), "lake": MemoryTarget()}
    afresh = Driver(tmp_path / "empty", empty).recover()
    afresh.run(0)
    assert (afresh.coordinator.generation, visible(empty["facts"])) == (1, list(range(10)))


def test_a_fresh_start_is_refused_before_any_target_knows_of_it(tmp_path: Path) -> None:
    """The mount of the job's folder is missing, and no record has come yet. The start is refused,
    as I have asked for; when the mount is back, the job has missed no driver.
    """
    world = BeginningWorld(tmp_path)
    only_on = {"restore.error_if_no_checkpoint": "true"}
    world.drive(0)
    with refused(tmp_path) as caught:
        world.drive(1, "unmounted", **only_on)
    assert isinstance(caught.value, ConfigError)
    assert "has no checkpoint, and restore.error_if_no_checkpoint is set" in caught.value.what
    assert "leave restore.error_if_no_checkpoint out" in caught.value.remedy
    world.drive(1, **only_on)
    world.is_exact("job", 1)


def test_a_sink_that_left_the_job_is_not_asked_and_is_missed_when_it_returns(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restore_target(targets["lake"], MemoryTarget())
    Driver(tmp_path / "job", {"facts": targets["facts"]}).recover().run(1)
    with pytest.raises(TargetChangedError, match=r"checkpoint 0 .* sink 'lake' .* knows none"):
        Driver(tmp_path / "job", targets).recover()


def test_a_target_restored_under_a_running_driver_gets_nothing_more(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    old = backup(targets["facts"])
    driver.run(1)
    driver.run(2)
    restore_target(targets["facts"], old)
    with pytest.raises(
        TargetChangedError,
        match=r"Checkpoints from 1 to 2 are missing in it\. .*offsets/0 "
        r".*next\\?\":30.*Checkpoint 3 is decided",
    ):
        driver.run(3)
    assert visible(targets["facts"]) == list(range(10)), (
        "3 would hide for ever that 1 and 2 are gone"
    )
    assert visible(targets["lake"]) == list(range(40)), "the others commit"
    with pytest.raises(TargetChangedError, match=r"checkpoint 2 .* knows up to 0"):
        another().recover()


@pytest.mark.parametrize("tolerable", [0, 1])
@pytest.mark.parametrize("lacks", [True, False])
def test_a_backup_of_before_the_drivers_fence_is_nobodys_takeover(
    driver: Driver, targets: Targets, another: Another, lacks: bool, tolerable: int
) -> None:
    """A driver that ends as if a newer one went on is not started again: nobody runs the job.
    Nor is it tried again in place: the others would commit what this target may not get.
    """
    driver.run(0)
    old = backup(targets["facts"])
    newer = another(options={"checkpoint.tolerable_failures": tolerable}).recover()
    if lacks:
        newer.run(1)
    restore_target(targets["facts"], old)
    with pytest.raises(FenceLostError, match=r"has the fence 1\.\d, but not its driver's"):
        newer.run(1 + lacks)
    assert visible(targets["facts"]) == list(range(10))
    assert visible(targets["lake"]) == list(range(10 + 10 * lacks)), "nothing was decided"
    if lacks:
        with pytest.raises(TargetChangedError, match=r"checkpoint 1 .* knows up to 0"):
            newer.recover()
    else:
        newer.recover().run(1)
        assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_the_driver_that_folds_proofs_gives_none_to_a_restored_target(
    driver: Driver, targets: Targets, another: Another
) -> None:
    """Checkpoint 15, in which the sinks are let collapse their proofs, has no rows: no commit looks
    for a predecessor.
    """
    run_all(driver, 0, 13)
    old = backup(targets["facts"])
    run_all(driver, 13, 15)
    restore_target(targets["facts"], old)

    def without_rows(pending: PendingCheckpoint) -> None:
        for name in targets:
            pending.acknowledge(name, [])

    driver.run(15, without_rows)
    with pytest.raises(TargetChangedError, match="Checkpoints from 13 to 14 are missing"):
        driver.run(16)
    assert visible(targets["facts"]) == list(range(130))
    with pytest.raises(TargetChangedError, match=r"checkpoint 14 .* knows up to 12"):
        another().recover()


def test_it_goes_on_when_the_target_is_as_it_was_again(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    old = backup(targets["facts"])
    driver.run(1)
    right = backup(targets["facts"])
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError):
        driver.run(2)
    restore_target(targets["facts"], right)
    again = another().recover()
    again.run(3)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(40))


def test_a_failover_to_a_lagging_replica_under_a_running_driver_is_one_too(
    tmp_path: Path, targets: Targets
) -> None:
    """As MariaDB's is: the same target by its name. The replica has the prepared branch of 2, and
    not the commit of 1.
    """
    driver = Driver(tmp_path / "job", targets).recover()
    driver.run(0)
    replica = backup(targets["facts"])
    driver.run(1)

    def fails_over(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_target(targets["facts"], replica)

    with pytest.raises(TargetChangedError, match="Checkpoints from 1 to 1 are missing"):
        driver.run(2, fails_over)
    assert visible(targets["facts"]) == list(range(10))


@pytest.mark.parametrize(
    "why", [OSError("no such folder"), TargetUnreachableError("no answer")], ids=repr
)
def test_a_sink_that_refuses_a_commit_and_cannot_be_asked_further_stops_the_job_by_what_it_said(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, why: Exception
) -> None:
    driver.run(0)
    sink = driver.sinks["facts"]
    monkeypatch.setattr(
        sink, "commit", mock.Mock(side_effect=TargetChangedError("the disk is away"))
    )
    monkeypatch.setattr(sink, "history", mock.Mock(side_effect=why))
    with pytest.raises(TargetChangedError, match="the disk is away"):
        driver.run(1)


def test_if_nothing_tells_what_the_target_lacks_the_next_start_does(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: the error of the sink names no command that goes on without it."""
    driver.run(0)
    before = backup(targets["facts"])
    unreachable = mock.Mock(side_effect=TargetUnreachableError("away"))

    def is_restored(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_target(targets["facts"], MemoryTarget())
        monkeypatch.setattr(driver.sinks["facts"], "history", unreachable)

    with pytest.raises(TargetChangedError) as found:
        driver.run(1, is_restored)
    assert "start the job again: if anything is still missing, its error" in str(found.value)
    with pytest.raises(TargetChangedError, match=r"accept-loss .* --checkpoint 0 --sink facts"):
        another().recover()
    restore_target(targets["facts"], before)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def run_all(driver: Driver, first: int, end: int) -> None:
    for number in range(first, end):
        driver.run(number)


def test_a_queued_commit_requires_its_predecessor_too(targets: Targets, tmp_path: Path) -> None:
    driver = Driver(tmp_path / "job", targets, options={"checkpoint.max_concurrent": 3}).recover()
    driver.run(0)
    driver.coordinator._commit_queue.wait(0)
    old = backup(targets["facts"])
    driver.run(1)
    driver.coordinator._commit_queue.wait(0)
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError):
        run_all(driver, 2, 6)
    driver.coordinator.close()
    assert visible(targets["facts"]) == list(range(10))


def test_a_declined_attempt_does_not_abort_what_is_prepared_again_in_a_restored_target(
    tmp_path: Path, targets: Targets
) -> None:
    driver = Driver(
        tmp_path / "job", targets, options={"checkpoint.tolerable_failures": 1}
    ).recover()
    driver.run(0)
    prepared = MemoryTarget()

    def backed_up(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_target(prepared, targets["facts"])
        prepared.prepared = dict(targets["facts"].prepared)

    def declined(pending: PendingCheckpoint) -> None:
        restore_target(targets["facts"], prepared)
        targets["facts"].prepared = dict(prepared.prepared)
        raise DeclinedError("no")

    driver.run(1, backed_up)
    with pytest.raises(TargetChangedError, match="Checkpoints from 1 to 1 are missing"):
        driver.run(2, declined)
    assert {key[3] for key in targets["facts"].prepared} == {1}, "it can still be committed by hand"


def test_the_predecessor_of_a_restored_lineage_is_in_the_one_that_it_continues(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    old = backup(targets["facts"])
    driver.run(0)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    moved = Driver(tmp_path / "moved", targets)
    moved.coordinator.recover(restore=restore)
    moved.coordinator.begin_lineage(restore.lineage)
    right = backup(targets["facts"])
    old.fences = dict(right.fences)
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError, match="knows none of that lineage"):
        Driver(tmp_path / "moved", targets).recover()  # nothing of the new lineage is committed yet
    with pytest.raises(TargetChangedError):
        moved.run(1)
    restore_target(targets["facts"], right)
    Driver(tmp_path / "moved", targets).recover().run(2)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


class Replaced(OpenMemorySink):
    """Its proofs are there, and the rows that they are of are in another table, which the next
    fence makes its own.
    """

    reason = "the table was dropped and created again"

    def history(self) -> SinkHistory:
        return replace(super().history(), replaced=self.reason)

    def fence(self, attempt: Attempt) -> None:
        super().fence(attempt)
        self.reason = ""


def test_proofs_without_the_rows_that_they_are_of_stop_the_job(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    Driver(
        tmp_path / "job", targets, sinks={"facts": Replaced(targets["facts"], JOB, "facts")}
    ).recover().run(0)
    with pytest.raises(
        TargetChangedError, match=r"sink 'facts' .* dropped and created again"
    ) as caught:
        Driver(
            tmp_path / "job", targets, sinks={"facts": Replaced(targets["facts"], JOB, "facts")}
        ).recover()
    assert caught.value.remedy.startswith("restore the table")
    Driver(tmp_path / "job", targets).recover().run(1)
    assert visible(targets["facts"]) == list(range(20))


def test_they_stop_it_too_if_the_driver_died_before_the_log_said_committed(
    driver: Driver, targets: Targets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: the log expected nothing of that sink, and a commit that is asked
    for again finds its proof.
    """
    append = driver.context.log.append

    def dies(record: Record) -> None:
        if isinstance(record, CommittedRecord):
            raise OSError("killed")
        append(record)

    monkeypatch.setattr(driver.context.log, "append", dies)
    with pytest.raises(OSError, match="killed"):
        driver.run(0)
    with pytest.raises(
        TargetChangedError, match=r"sink 'facts' .* checkpoint 0 .* dropped and created again"
    ):
        Driver(
            tmp_path / "job", targets, sinks={"facts": Replaced(targets["facts"], JOB, "facts")}
        ).recover()


def test_a_restore_says_that_another_table_is_meant(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    Driver(
        tmp_path / "moved", targets, sinks={"facts": Replaced(targets["facts"], JOB, "facts")}
    ).coordinator.recover(restore=restore)


def test_what_another_driver_commits_between_the_question_and_the_log_is_asked_for_again(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    class Overtaken(OpenMemorySink):
        asked = False

        def history(self) -> SinkHistory:
            said = super().history()
            if not self.asked:
                self.asked = True
                driver.run(1)
            return said

    driver.run(0)
    new = Driver(
        tmp_path / "job", targets, sinks={"facts": Overtaken(targets["facts"], JOB, "facts")}
    )
    new.recover()
    assert new.coordinator.generation == 2


def test_a_restore_may_go_to_another_target_but_not_to_one_restored_from_a_backup(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restored = completed_of(tmp_path / "job", 0)
    elsewhere = {"facts": MemoryTarget(), "lake": targets["lake"]}
    moved = Driver(tmp_path / "moved", elsewhere)
    restore = restoring(restored, committed=True)
    moved.coordinator.recover(restore=restore)
    moved.coordinator.begin_lineage(restore.lineage)
    Driver(tmp_path / "moved", elsewhere).recover()  # nothing of the new lineage is committed yet
    restore_target(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError):
        Driver(tmp_path / "new", targets).coordinator.recover(restore=restore)


@pytest.mark.parametrize("way", ["as it was", "a later one", "an empty one", "its own folder"])
def test_a_target_that_lacks_what_a_restore_needs_leads_on_in_each_way_that_is_named(
    driver: Driver, targets: Targets, tmp_path: Path, way: str
) -> None:
    old = backup(targets["facts"])
    driver.run(0)
    then = backup(targets["facts"])
    found = restoring(completed_of(tmp_path / "job", 0), committed=True)
    restore = replace(found, sink_ahead=SinkAhead.REWIND)
    driver.run(1)
    later = backup(targets["facts"])
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError) as caught:
        Driver(tmp_path / "new", targets).coordinator.recover(restore=restore)
    assert caught.value.remedy.startswith(
        "restore the target to its state at the restored checkpoint, or a later one; or give the "
        "sink an empty target"
    )
    if way == "its own folder":
        with pytest.raises(TargetChangedError, match=r"repair accept-loss JOB\.yaml"):
            Driver(tmp_path / "job", targets).recover()
        return  # what follows: `tests/operations/repair/test_accept_loss.py`
    if way == "an empty one":
        targets = targets | {"facts": MemoryTarget()}
    else:
        restore_target(targets["facts"], then if way == "as it was" else later)
    new = Driver(tmp_path / "new", targets)
    new.coordinator.recover(restore=restore)
    new.coordinator.begin_lineage(restore.lineage)
    new.run(1)
    assert visible(targets["facts"]) == [*range(10 if way == "an empty one" else 0, 20)]
    assert visible(targets["lake"]) == [*range(20)]


def restore_target_in_commit(sink: OpenSink, target: MemoryTarget) -> None:
    """Somebody puts the target back between two pieces of the sink's next commit: the first
    is prepared again.
    """
    commit = sink.commit

    def is_restored_after_one(requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        patched.stop()
        held, old = dict(target.prepared), backup(target)
        outcomes = commit(requests[:1])
        restore_target(target, old)
        target.prepared = held
        return [*outcomes, *commit(requests[1:])]

    patched = mock.patch.object(sink, "commit", is_restored_after_one)
    patched.start()


def test_a_piece_that_is_prepared_again_while_its_checkpoint_commits_is_committed_again_and_not_aborted(  # noqa: E501
    driver: Driver, targets: Targets
) -> None:
    """Found by the simulation: the target is restored from a backup between two pieces. The other
    one proves the checkpoint by its number.
    """
    target = targets["facts"]
    restore_target_in_commit(driver.sinks["facts"], target)
    driver.run(0)
    assert (visible(target), target.prepared) == (list(range(10)), {})


def snapshot_in_commit(sink: OpenSink, target: MemoryTarget) -> MemoryTarget:
    """Return what a snapshot of the server between two pieces of the sink's next commit has."""
    commit, image = sink.commit, MemoryTarget()

    def taken_after_one(requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        patched.stop()
        outcomes = commit(requests[:1])
        restore_target(image, target)
        image.prepared = dict(target.prepared)
        return [*outcomes, *commit(requests[1:])]

    patched = mock.patch.object(sink, "commit", taken_after_one)
    patched.start()
    return image


def restore_snapshot(target: MemoryTarget, image: MemoryTarget) -> None:
    restore_target(target, image)
    target.prepared = dict(image.prepared)


def test_a_piece_prepared_again_before_checkpoints_without_rows_is_committed_again(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation. The other piece proves the checkpoint; only its body tells that this
    one is in it, and no superseded attempt.
    """
    monkeypatch.setattr("twophase.state.checkpoints.store._FOLD_AT", 3)
    target = targets["facts"]
    image = snapshot_in_commit(driver.sinks["facts"], target)
    driver.run(0)
    for number in range(1, 5):
        driver.run(number, no_rows_for("facts", driver))
    restore_snapshot(target, image)
    another().recover()
    assert (visible(target), target.prepared) == (list(range(10)), {})


def test_a_piece_prepared_again_under_a_running_driver_is_committed_again_with_the_next_checkpoint(
    driver: Driver, targets: Targets
) -> None:
    target = targets["facts"]
    image = snapshot_in_commit(driver.sinks["facts"], target)
    driver.run(0)
    restore_snapshot(target, image)
    driver.run(1)
    assert (visible(target), target.prepared) == (list(range(20)), {})


def test_a_piece_prepared_again_is_committed_again_after_a_death_behind_the_next_checkpoint(
    driver: Driver, targets: Targets, another: Another
) -> None:
    target = targets["facts"]
    image = snapshot_in_commit(driver.sinks["facts"], target)
    driver.run(0)
    restore_snapshot(target, image)
    dying("C16", lambda: driver.run(1))
    another().recover()
    assert (visible(target), target.prepared) == (list(range(20)), {})


def test_a_piece_prepared_again_is_committed_again_by_the_next_driver_if_the_next_checkpoint_is_only_recorded(  # noqa: E501
    driver: Driver, targets: Targets, another: Another
) -> None:
    target = targets["facts"]
    image = snapshot_in_commit(driver.sinks["facts"], target)
    driver.run(0)
    restore_snapshot(target, image)
    completer = driver.context.completer
    with (
        mock.patch.object(completer, "abort_superseded_attempts", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        driver.run(1)
    another().recover()
    assert (visible(target), target.prepared) == (list(range(20)), {})


def snapshot_before_commit(
    driver: Driver, target: MemoryTarget
) -> tuple[MemoryTarget, Callable[[PendingCheckpoint], None]]:
    """A snapshot of the server when its pieces are prepared, and the pre-commit that takes it."""
    image = MemoryTarget()

    def pre_commit(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_snapshot(image, target)

    return image, pre_commit


@pytest.mark.parametrize("retained", [1, 3])
def test_what_is_prepared_again_of_a_subsumed_checkpoint_is_no_superseded_attempt(
    driver: Driver, targets: Targets, another: Another, retained: int
) -> None:
    """Found by the simulation. Its body is gone: what tells is that the target lacks its proof."""
    driver = another(options={"checkpoint.num_retained": retained}).recover()
    target = targets["facts"]
    image, pre_commit = snapshot_before_commit(driver, target)
    driver.run(0, pre_commit)
    for number in (1, 2, 3):
        driver.run(number)
    without_rows = no_rows_for("facts", driver)

    def is_restored(pending: PendingCheckpoint) -> None:
        without_rows(pending)
        restore_snapshot(target, image)

    with pytest.raises(
        TargetChangedError, match=r"checkpoint 3 of .* 'facts' .* Checkpoints up to 3 are missing"
    ) as found:
        driver.run(4, is_restored)
    assert "accept-loss JOB.yaml --checkpoint 3 --sink facts" in str(found.value)
    assert {key[3] for key in target.prepared} == {0}, "it can still be committed by hand"


def test_a_superseded_attempt_is_aborted_where_the_proof_is(
    driver: Driver, targets: Targets
) -> None:
    target, asked = targets["facts"], 0
    history = driver.sinks["facts"].history

    def counted() -> SinkHistory:
        nonlocal asked
        asked += 1
        return history()

    driver.run(0)
    with mock.patch.object(driver.sinks["facts"], "history", counted):
        driver.run(1)
        assert not asked, "nothing is in doubt"
        driver.run(2, with_superseded(driver, "facts"))
    assert (asked, target.prepared) == (1, {})
    assert visible(target) == list(range(30))


def with_superseded(driver: Driver, name: str) -> Callable[[PendingCheckpoint], None]:
    """A task is tried twice, and each try pre-commits."""

    def pre_commit(pending: PendingCheckpoint) -> None:
        writer = driver.sinks[name].writers()(pending.transaction(name), Subtask(0, 99))
        writer.write(pa.RecordBatch.from_pylist(rows(range(5)), schema=driver.schema))
        assert writer.pre_commit() is not None
        driver.write(pending)

    return pre_commit


def test_an_overtaken_driver_takes_no_rewind_for_a_loss(
    driver: Driver, targets: Targets, another: Another
) -> None:
    """It has recorded its commit, and aborts superseded attempts when rows are taken back."""
    driver.run(0)
    driver.run(1)
    sink = driver.sinks["facts"]
    in_doubt, history = sink.in_doubt, sink.history
    found: list[Committable] = []

    def overtaken() -> SinkHistory:
        another().recover()
        return replace(history(), committed={})

    def seen() -> Sequence[Committable]:
        found.extend(in_doubt())
        return found

    with (
        mock.patch.object(sink, "in_doubt", seen),
        mock.patch.object(sink, "history", overtaken),
        pytest.raises(FencedError),
    ):
        driver.run(2, with_superseded(driver, "facts"))


def test_a_backup_made_in_the_middle_of_a_commit_is_not_noticed(
    driver: Driver, targets: Targets, another: Another
) -> None:
    """Known limit: one piece proves its checkpoint. A dump has no prepared pieces, so that nothing
    is left to commit again.
    """
    target, sink = targets["facts"], driver.sinks["facts"]
    commit = sink.commit
    dumps: list[MemoryTarget] = []

    def is_dumped_after_one(requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        patched.stop()
        outcomes = commit(requests[:1])
        dumps.append(backup(target))
        return [*outcomes, *commit(requests[1:])]

    patched = mock.patch.object(sink, "commit", is_dumped_after_one)
    patched.start()
    driver.run(0)
    restore_target(target, dumps[0])
    another().recover()
    assert visible(target) == list(range(5))

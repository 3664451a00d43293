"""A loss is accepted: the job goes on without the lost pieces, the log says so for ever, and no
later hole is hidden by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    ManualClock,
    completed_of,
    decided,
    lose,
    offsets,
    restoring,
    visible,
)
from tests.coordinator.conftest import each, in_part
from tests.coordinator.recovery.test_restored_target import backup, no_rows_for, restore_target
from twophase.cli.main import main
from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    ConfigError,
    FencedError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
)
from twophase.events import Observers
from twophase.ids import Subtask
from twophase.operations.repair.accept_loss import LossPlan, LossRepair
from twophase.operations.savepoint.restore import load_restore
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import AcceptedLoss, FenceRecord, Lineage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


def repair(folder: Path, targets: Targets) -> LossRepair:
    sinks = {name: OpenMemorySink(target, JOB, name) for name, target in targets.items()}
    options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
    return LossRepair(
        JobContext(JOB, LocalStorage(folder), sinks, options, Observers(), ManualClock())
    )


whole = pytest.mark.parametrize("broken", [(0, 1)], indirect=True, ids=["all pieces"])


def survivors(plan: LossPlan) -> list[int]:
    return [
        10 * plan.number + 5 * piece.subtask.index + step
        for piece in plan.kept
        for step in range(5)
    ]


def test_nothing_of_an_older_lineage_is_given_up(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    """Its newest checkpoint is subsumed by those of the current one."""
    driver.run(0)
    restore = restoring(completed_of(folder, 0), committed=True)
    restored = Driver(folder, targets)
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    for number in (1, 2):
        restored.run(number)
    with pytest.raises(ConfigError, match="and later ones are decided"):
        repair(folder, targets).plan(0, "facts")


@each
def test_the_error_names_the_command_and_the_command_leads_out(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    with pytest.raises(LostCommittableError) as caught:
        another().recover()
    assert caught.value.remedy.endswith(
        "twophase repair accept-loss JOB.yaml --checkpoint 1 --sink facts"
    )
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    repairing.accept(plan, NOTE)
    driver = another().recover()
    driver.run(2)
    assert visible(targets["facts"]) == sorted([*range(10), *survivors(plan), *range(20, 30)])
    assert visible(targets["lake"]) == list(range(30))


@each
def test_the_record_says_what_is_lost_and_outlives_every_fold(
    broken: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    repairing.accept(plan, NOTE)
    monkeypatch.setattr("twophase.state.checkpoints.store._FOLD_AT", 3)
    driver = another().recover()
    for number in range(2, 6):
        driver.run(number)
    (found,) = JobLog(LocalStorage(folder), JOB).read().repairs
    assert isinstance(found, AcceptedLoss)
    assert (found.note, found.checkpoint, found.sink, found.rows) == (NOTE, 1, "facts", plan.rows)
    assert found.pieces == tuple(str(piece.subtask) for piece, _ in plan.lost)
    assert (found.start, found.end) == (('{"next":10}',), ('{"next":20}',))


@each
def test_spark_may_replay_the_checkpoint(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    rows = visible(targets["facts"])
    driver = another().recover()
    newest = driver.coordinator.newest()
    assert newest is not None
    assert newest.committed
    driver.coordinator.replay(newest, None)
    assert visible(targets["facts"]) == rows


@whole
def test_the_checkpoint_before_is_what_the_target_must_prove_from_then_on(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    restore_target(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError, match="checkpoint 0 of lineage"):
        another().recover()


@each
def test_a_target_restored_later_is_noticed(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    driver = another().recover()
    old = backup(targets["facts"])
    driver.run(2)
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError, match="checkpoint 2 of lineage"):
        another().recover()


@each
def test_a_checkpoint_that_was_decided_after_the_lost_one_commits(
    driver: Driver, targets: Targets, another: Another, folder: Path, broken: Driver
) -> None:
    """As with `checkpoint.max_concurrent`: its body, written before the loss, requires
    proof of the lost one.
    """
    coordinator = another().coordinator
    coordinator.context.log.read()
    broken.coordinator.context.log.read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broken.coordinator, "_make_room", lambda number: None)
        decided(broken, 2)
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    repairing.accept(plan, NOTE)
    assert visible(targets["facts"]) == sorted([*range(10), *survivors(plan), *range(20, 30)])
    another().recover().run(3)
    assert visible(targets["lake"]) == list(range(40))


def test_two_in_a_row_are_accepted_one_by_one(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    driver.run(0)
    decided(driver, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.coordinator, "_make_room", lambda number: None)
        decided(driver, 2)
    lose(targets["facts"], 1, 0, 1)
    lose(targets["facts"], 2, 0, 1)
    with pytest.raises(LostCommittableError, match="checkpoint 1 is decided"):
        repair(folder, targets).plan(2, "facts")
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    with pytest.raises(LostCommittableError, match="checkpoint 2 is decided"):
        repairing.accept(plan, NOTE)
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(2, "facts"), NOTE)
    another().recover().run(3)
    assert visible(targets["facts"]) == [*range(10), *range(30, 40)]
    assert visible(targets["lake"]) == list(range(40))


def test_a_loss_in_two_sinks_is_accepted_for_each(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    driver.run(0)
    decided(driver, 1)
    lose(targets["facts"], 1, 0)
    lose(targets["lake"], 1, 1)
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    with pytest.raises(LostCommittableError, match="--sink lake"):
        repairing.accept(plan, NOTE)
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "lake"), NOTE)
    another().recover()
    assert visible(targets["facts"]) == [*range(10), *range(15, 20)]
    assert visible(targets["lake"]) == list(range(15))


@whole
def test_a_restore_from_the_checkpoint_goes_on_too(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    log = JobLog(LocalStorage(folder), JOB)
    log.read()
    restore = restoring(completed_of(folder, 1), committed=True)
    driver = another()
    driver.coordinator.recover(restore=restore)
    driver.coordinator.begin_lineage(restore.lineage)
    driver.run(1)
    assert visible(targets["lake"]) == sorted([*range(20), *range(10, 20)])


@whole
@pytest.mark.parametrize("has_begun", [False, True], ids=["an empty log", "a lineage of its own"])
def test_a_restore_of_the_checkpoint_in_another_folder_goes_on_after_it(
    broken: Driver, targets: Targets, folder: Path, tmp_path: Path, has_begun: bool
) -> None:
    """The loss is recorded in the log of that folder, and not in that of the restored job."""
    [path], new = (folder / "chk").glob("*-1-*"), tmp_path / "new"
    if has_begun:
        log = JobLog(LocalStorage(new), JOB)
        log.read()
        for record in (FenceRecord(1), Lineage("of its own")):
            log.append(record)
    settings = {"restore.path": str(path), "restore.allow_non_restored_state": True}
    options = JobOptions.parse({"checkpointLocation": str(new), **settings}, "job")

    def start() -> Driver:
        driver = Driver(new, targets)
        restore = load_restore(JOB, str(path), LocalStorage(new), OperatorStates([], {}), options)
        driver.coordinator.recover(restore=restore)
        driver.coordinator.begin_lineage(restore.lineage)
        return driver

    with pytest.raises(LostCommittableError):
        start()
    repairing = LossRepair(Driver(new, targets, settings).coordinator.context, {})
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    start()
    assert visible(targets["facts"]) == [*range(10)]
    assert visible(targets["lake"]) == [*range(20)]


# -- refused where going on by itself is right -----------------------------------------------------


def test_where_nothing_is_lost_there_is_nothing_to_accept(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    driver.run(0)
    decided(driver, 1)
    with pytest.raises(StopJobError, match="nothing of checkpoint 1 is lost in sink 'facts'"):
        repair(folder, targets).plan(1, "facts")
    another().recover()
    assert not JobLog(LocalStorage(folder), JOB).read().repairs
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@in_part
@pytest.mark.parametrize(("checkpoint", "sink"), [(7, "facts"), (0, "facts"), (1, "elsewhere")])
def test_what_is_not_there_is_named_and_nothing_is_touched(
    broken: Driver, targets: Targets, folder: Path, checkpoint: int, sink: str
) -> None:
    before = JobLog(LocalStorage(folder), JOB).read()
    with pytest.raises(ConfigError):
        repair(folder, targets).plan(checkpoint, sink)
    assert JobLog(LocalStorage(folder), JOB).read() == before


@in_part
def test_what_the_refusals_name_is_given_up(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """I name a wrong sink, then a checkpoint that nobody has decided, then one that is committed:
    each time I am told where the right name is found.
    """

    def refusal(checkpoint: int, sink: str) -> str:
        with pytest.raises(ConfigError) as caught:
            repair(folder, targets).plan(checkpoint, sink)
        return caught.value.remedy

    [names] = re.findall("^name one of (.*)\\.$", refusal(1, "elsewhere"))
    [sink, _] = names.split(", ")
    assert refusal(7, sink).startswith("`twophase checkpoints FOLDER` lists the decided")
    shown = CliRunner().invoke(main, ["checkpoints", str(folder), "--json"]).stdout
    listed = [one["id"] for one in json.loads(shown)["checkpoints"]]
    assert listed == [0, 1]
    assert refusal(listed[0], sink) == "pass the checkpoint that the job's error names."
    with pytest.raises(LostCommittableError) as stopped:
        another().recover()
    [(checkpoint, sink)] = re.findall(
        r"accept-loss JOB\.yaml --checkpoint (\d+) --sink (\w+)", stopped.value.remedy
    )
    assert int(checkpoint) == listed[1]
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(int(checkpoint), sink), NOTE)
    another().recover().run(2)
    assert visible(targets["facts"]) == [*range(15), *range(20, 30)]


@in_part
def test_a_restored_target_is_not_repaired_away(
    broken: Driver, targets: Targets, folder: Path
) -> None:
    restore_target(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError):
        repair(folder, targets).plan(1, "facts")


# -- a target that was restored from a backup ------------------------------------------------------


@pytest.mark.parametrize("had", [0, 1], ids=["nothing", "the first checkpoint"])
@pytest.mark.parametrize("more", [0, 1], ids=["all committed", "one more decided"])
def test_what_a_restored_target_lacks_is_given_up(
    driver: Driver, targets: Targets, another: Another, folder: Path, had: int, more: int
) -> None:
    empty = backup(targets["facts"])
    driver.run(0)
    old = backup(targets["facts"]) if had else empty
    driver.run(1)
    driver.run(2)
    if more:
        decided(driver, 3)
    restore_target(targets["facts"], old)
    with pytest.raises(TargetChangedError) as caught:
        another().recover()
    assert caught.value.remedy.endswith(
        "twophase repair accept-loss JOB.yaml --checkpoint 2 --sink facts"
    )
    repairing = repair(folder, targets)
    plan = repairing.plan(2, "facts")
    assert f"Checkpoints {'from 1' if had else 'up'} to 2 are missing in it" in plan.gap
    repairing.accept(plan, NOTE)
    another().recover().run(3 + more)
    assert visible(targets["facts"]) == [*range(10 * had), *range(30, 40 + 10 * more)]
    assert visible(targets["lake"]) == list(range(40 + 10 * more))
    newest = backup(targets["facts"])
    another().recover().run(4 + more)
    restore_target(targets["facts"], newest)
    with pytest.raises(TargetChangedError):
        another().recover()


def test_what_was_given_up_does_not_return_with_the_branches_of_the_backup(
    targets: Targets, another: Another, folder: Path
) -> None:
    """They may have been written again by hand since."""
    kept = {"checkpoint.num_retained": 5}
    driver, image = another(options=kept).recover(), MemoryTarget()

    def backed_up(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_target(image, targets["facts"])
        image.prepared = dict(targets["facts"].prepared)

    driver.run(0)
    driver.run(1, backed_up)
    driver.run(2)
    restore_target(targets["facts"], image)
    targets["facts"].prepared = image.prepared
    repairing = repair(folder, targets)
    plan = repairing.plan(2, "facts")
    assert "Checkpoints from 1 to 2 are missing in it" in plan.gap
    repairing.accept(plan, NOTE)
    another(options=kept).recover().run(3)
    assert (visible(targets["facts"]), targets["facts"].prepared) == (
        [*range(10), *range(30, 40)],
        {},
    )


def test_rows_of_long_ago_are_given_up_too(
    driver: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twophase.state.checkpoints.store._FOLD_AT", 3)
    empty = backup(targets["facts"])
    driver.run(0)
    for number in range(1, 5):
        driver.run(number, no_rows_for("facts", driver))
    restore_target(targets["facts"], empty)
    with pytest.raises(TargetChangedError, match="checkpoint 0 of lineage"):
        another().recover()
    repairing = repair(folder, targets)
    plan = repairing.plan(0, "facts")
    assert sum(piece.rows for piece, _ in plan.lost) == 10
    assert plan.end == offsets(0).end
    repairing.accept(plan, NOTE)
    another().recover().run(5)
    assert visible(targets["facts"]) == list(range(50, 60))


def test_another_target_is_not_taken_for_a_restored_one(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    driver.run(0)
    with pytest.raises(TargetChangedError):
        repair(folder, {**targets, "facts": MemoryTarget()}).plan(0, "facts")


def test_a_checkpoint_that_another_driver_commits_meanwhile_is_not_taken_for_missing(
    driver: Driver,
    targets: Targets,
    another: Another,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is committed after the targets were asked and before the log is read."""
    driver.run(0)
    decided(driver, 1)
    repairing = repair(folder, targets)
    rivals, asked, history = [another()], [], OpenMemorySink.history

    def commit_when_all_are_asked(sink: OpenMemorySink) -> SinkHistory:
        found = history(sink)
        asked.append(sink)
        if len(asked) == len(targets):
            rivals.pop().recover()
        return found

    monkeypatch.setattr(OpenMemorySink, "history", commit_when_all_are_asked)
    with pytest.raises(StopJobError, match="nothing of checkpoint 1 is lost in sink 'facts'"):
        repairing.plan(1, "facts")
    assert not rivals
    assert visible(targets["facts"]) == list(range(20))


# -- one driver writes -----------------------------------------------------------------------------


@in_part
def test_a_driver_that_still_runs_is_fenced_out_before_anything_is_shown(
    broken: Driver, targets: Targets, folder: Path
) -> None:
    broken.coordinator.context.log.read()
    repair(folder, targets).plan(1, "facts")
    with pytest.raises(FencedError):
        broken.coordinator.context.log.append(FenceRecord(99))


@in_part
def test_a_driver_that_starts_while_the_operator_thinks_fences_the_repair_out(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    with pytest.raises(LostCommittableError):
        another().recover()
    with pytest.raises(FencedError):
        repairing.accept(plan, NOTE)
    assert not JobLog(LocalStorage(folder), JOB).read().repairs


@in_part
def test_a_lost_piece_that_comes_back_is_aborted_as_an_orphan(
    broken: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """A server that is failed back: its branch is in no decision any more."""
    sink = broken.sinks["facts"]
    transaction = completed_of(folder, 1).committables["facts"][1].transaction
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    targets["facts"].fences[(JOB, "facts")] = transaction.attempt
    assert sink.write_direct(transaction, Subtask(1, 201), [{"id": 15}]) is not None
    another().recover()
    assert not targets["facts"].prepared
    assert visible(targets["facts"]) == list(range(15))


def test_what_two_restored_targets_lack_is_accepted_one_after_the_other(
    driver: Driver, targets: Targets, another: Another, folder: Path
) -> None:
    """Two sinks in one server: its backup is that of both."""
    before = {name: backup(target) for name, target in targets.items()}
    driver.run(0)
    for name, target in targets.items():
        restore_target(target, before[name])
    for name in targets:
        with pytest.raises(
            TargetChangedError, match=f"accept-loss JOB.yaml --checkpoint 0 --sink {name}"
        ):
            another().recover()
        repairing = repair(folder, targets)
        repairing.accept(repairing.plan(0, name), NOTE)
    another().recover().run(1)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10, 20))


def test_what_waits_in_a_target_that_a_copy_has_taken_over_from_is_given_up(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    """A replica has all that was committed, and nothing of what the other server had prepared."""
    driver.run(0)
    copy = backup(targets["facts"])
    decided(driver, 1)
    now = targets | {"facts": copy}
    with pytest.raises(TargetChangedError) as caught:
        Driver(folder, now).recover()
    found = re.search(
        r"If this one has taken its place for good, go on without what waits there .*"
        r"accept-loss JOB\.yaml --checkpoint (\d+) --sink (\w+)",
        caught.value.remedy,
    )
    assert found is not None, caught.value.remedy
    repairing = repair(folder, now)
    repairing.accept(repairing.plan(int(found[1]), found[2]), NOTE)
    Driver(folder, now).recover().run(2)
    assert visible(copy) == [*range(10), *range(20, 30)]
    assert visible(targets["lake"]) == [*range(30)]

"""A savepoint is one that can be restored, or making it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import JOB, NOTE, frozen
from harness.savepoint_world import World, killed, older, restoring
from tests.beginnings.test_stop_with_savepoint import Down
from twophase.contract.committable import Committable
from twophase.contract.sink import CommitRequest, OpenArrowSink, OpenSink
from twophase.coordinator.commit import checkpoint_completion
from twophase.errors import (
    ConfigError,
    LostCommittableError,
    SavepointError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.ids import Subtask, TransactionId
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.rewrite import Lost, RewriteRepair
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.make import open_savepoint
from twophase.state.files.storage import LocalStorage

pytestmark = pytest.mark.part("runtime")

AHEAD = {"checkpoint.mode": "at_least_once"}


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def unfinished(world: BeginningWorld) -> Path:
    """Make a savepoint of checkpoint 1, which is decided and committed nowhere."""
    world.drive(1)
    world.copy("job", "older")
    assert killed("C11", lambda: world.drive(2))
    (world.spark() / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    assert not open_savepoint(str(path)).is_committed
    return path


def test_a_savepoint_is_not_finished_over_an_older_copy_of_the_folder(
    world: BeginningWorld,
) -> None:
    """I finished a savepoint while the job's folder was an older copy: that is refused, and the
    savepoint stays as it is. With the right folder it is finished.
    """
    path = unfinished(world)
    world.copy("job", "kept")
    world.copy("older", "job")
    with refused(world.root):
        world.finish(path)
    world.copy("kept", "job")
    world.finish(path)
    world.drive(4, "again", **restoring(path, "refuse"))
    world.is_exact("again", 4)


def test_a_savepoint_that_was_not_finished_over_an_older_copy_can_be_restored(
    world: BeginningWorld,
) -> None:
    """The same, and the right folder is gone: the restore of the savepoint commits it."""
    path = unfinished(world)
    world.copy("older", "job")
    with refused(world.root):
        world.finish(path)
    world.drive(4, "again", **restoring(path, "refuse"))
    world.is_exact("again", 4)


def test_over_an_older_copy_that_went_on_a_savepoint_is_finished_and_that_is_not_noticed(
    world: BeginningWorld,
) -> None:
    """The adoption that lets it go on says that such savepoints are not to be used any more: it
    has rolled back what waited, and the number of the checkpoint is that of another one now.
    """
    path = unfinished(world)
    world.copy("older", "job")
    repair = AdoptionRepair(world.context(), frozen)
    assert repair.adopt(repair.plan(), NOTE) is None
    world.drive(4)
    world.is_exact("job", 4)
    world.finish(path)
    assert open_savepoint(str(path)).is_committed


class CopiedAlive(BeginningWorld):
    """The job's folder is copied under the driver, after its first micro-batch."""

    def finished(self, number: int) -> None:
        if number == 0 and not (self.root / "older").exists():
            self.copy("job", "older")


def test_where_such_a_copy_went_on_another_job_begins_with_it_and_that_is_not_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy knows the newest driver, and no target has more than it: it goes on without an
    adoption. Until the proofs of its own checkpoint are folded, the savepoint's pieces are named.
    """
    world = CopiedAlive(tmp_path)
    assert killed("C11@2", lambda: world.drive(2))
    (world.spark() / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    assert not open_savepoint(str(path)).is_committed
    world.copy("older", "job")
    world.drive(2)
    world.is_exact("job", 2)
    with pytest.raises(LostCommittableError, match="checkpoint 1 is decided"):
        forked(world, path)
    monkeypatch.setattr(checkpoint_completion, "SUBSUME_SINKS_EVERY", 1)
    world.drive(3)
    forked(world, path)
    assert world.ids() == [sorted([*range(40), *range(20, 30)])] * 2, "both wrote what came after"


def test_a_savepoint_that_a_sink_cannot_commit_yet_is_finished_when_it_can_be_reached(
    world: BeginningWorld,
) -> None:
    """A sink was down when I finished the savepoint, and I did not wait for it any longer."""
    path = unfinished(world)
    Down.is_up.clear()
    world.kinds["lake"] = Down
    context = world.context()
    context.stopping.set()
    with pytest.raises(TargetUnreachableError, match="still not committed in every sink") as caught:
        finish_savepoint(context, open_savepoint(str(path)), LocalStorage(path))
    assert caught.value.remedy == "try again when they can be reached."
    assert not open_savepoint(str(path)).is_committed
    Down.is_up.set()
    world.finish(path)
    assert open_savepoint(str(path)).is_committed
    world.drive(4, "again", **restoring(path, "refuse"))
    world.is_exact("again", 4)


def test_a_savepoint_is_not_finished_over_a_target_that_lacks_what_was_committed(
    world: BeginningWorld,
) -> None:
    """The job had gone on and committed it, and a target was restored from a backup since: I
    finished the savepoint, which was called whole, and the rows were in no target.
    """
    path = unfinished(world)
    world.copy("facts", "backup")
    world.drive(4)
    world.copy("facts", "newest")
    world.copy("backup", "facts")
    with pytest.raises(TargetChangedError, match=r"'facts'.* knows up to 0 of that lineage"):
        world.finish(path)
    assert not open_savepoint(str(path)).is_committed
    world.copy("newest", "facts")
    world.finish(path)
    assert open_savepoint(str(path)).is_committed


def test_a_savepoint_is_not_finished_over_such_a_target_under_another_name(
    world: BeginningWorld,
) -> None:
    """I had renamed the sink as well, so its target was not asked."""
    path = unfinished(world)
    world.copy("facts", "backup")
    world.drive(4)
    world.copy("backup", "facts")
    world.rename("facts", "renamed")
    with pytest.raises(ConfigError, match=r"'renamed' writes to .* as sink 'facts' did"):
        world.finish(path)
    assert not open_savepoint(str(path)).is_committed


def lose_piece(world: BeginningWorld) -> list[int]:
    """Roll back one prepared piece of `facts`, as somebody might by hand; return its numbers."""
    piece = min((world.root / "facts" / "prepared").iterdir())
    numbers = [row["id"] for row in json.loads(piece.read_text())["rows"]]
    piece.unlink()
    return numbers


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_what_a_restore_finds_lost_of_the_job_s_own_may_still_be_written_again(
    world: BeginningWorld, policy: str
) -> None:
    """Nothing of what the restore names is given up that the source still has."""
    path = unfinished(world)
    lose_piece(world)
    with pytest.raises(LostCommittableError) as caught:
        world.drive(3, **restoring(path, policy))
    assert "twophase repair rewrite reads their records again" in caught.value.remedy
    assert f"--checkpoint 1 --sink facts --restore {path}" in caught.value.remedy


FORK = "orders-fork"


@pytest.mark.parametrize(
    ("policy", "job", "pieces"),
    [("refuse", JOB, 1), ("rewind", JOB, 1), ("fork", FORK, 1), ("fork", FORK, 2)],
)
def test_the_loss_of_a_piece_of_a_savepoint_can_be_accepted(
    world: BeginningWorld, policy: str, job: str, pieces: int
) -> None:
    """Of a savepoint that is not finished a piece is lost, or all of a sink, and the job's folder
    is gone: the restore says so, I accept the loss, and the restore goes on with all the rest.
    """
    path = unfinished(world)
    gone = [number for _ in range(pieces) for number in lose_piece(world)]
    shutil.rmtree(world.root / "job")
    asked = restoring(path, policy)
    with pytest.raises(LostCommittableError) as caught:
        world.drive(4, "again", job, **asked)
    policy_asked = "" if policy == "refuse" else f" --sink-ahead {policy}"
    advised = f"accept-loss JOB.yaml --checkpoint 1 --sink facts --restore {path}{policy_asked}"
    assert caught.value.remedy.endswith(advised)
    assert "repair rewrite" not in caught.value.remedy
    with pytest.raises(ConfigError, match="checkpoint 1 is not decided") as without:
        LossRepair(world.context("again", job)).plan(1, "facts")
    assert "run twophase repair accept-loss with --restore PATH" in without.value.remedy
    repair = LossRepair(world.context("again", job, **asked), world.declared)
    repair.accept(repair.plan(1, "facts"), NOTE)
    world.drive(4, "again", job, **asked)
    assert world.ids() == [[one for one in range(40) if one not in gone], [*range(40)]]
    assert world.prepared() == 0


def test_no_savepoint_is_a_copy_of_one_with_a_loss_that_was_accepted_since(
    world: BeginningWorld,
) -> None:
    """I restored it and accepted the loss of a piece, and saved the job before its next checkpoint:
    the copy would call the piece lost once more where it is restored.
    """
    path = unfinished(world)
    gone = lose_piece(world)
    repair = LossRepair(world.context("again", **restoring(path, "refuse")), world.declared)
    repair.accept(repair.plan(1, "facts"), NOTE)
    world.drive(2, "again", **restoring(path, "refuse"))
    with pytest.raises(SavepointError, match="no checkpoint of the current lineage"):
        world.make("second", "again")
    world.drive(3, "again")
    world.drive(4, "third", **restoring(world.make("second", "again"), "refuse"))
    assert world.ids() == [[one for one in range(40) if one not in gone], [*range(40)]]


def test_a_savepoint_of_before_an_accepted_loss_leads_on_in_another_folder(
    world: BeginningWorld,
) -> None:
    """A sink lost the savepoint's checkpoint and the one before. The job accepted both losses and
    went on; then I restored the savepoint elsewhere, with a rewind: there the sink had no proof of
    the checkpoint before, and I was told to restore the target, and nothing else, for ever.
    """
    path = unfinished(world)
    for piece in [
        *(world.root / "facts" / "visible").iterdir(),
        *(world.root / "facts" / "prepared").iterdir(),
    ]:
        piece.unlink()
    for checkpoint in (0, 1):
        repair = LossRepair(world.context())
        with suppress(LostCommittableError):  # the next one
            repair.accept(repair.plan(checkpoint, "facts"), NOTE)
    world.drive(4)
    asked = restoring(path, "rewind")
    with pytest.raises(LostCommittableError, match="2 of its pieces") as caught:
        world.drive(4, "again", **asked)
    assert f"accept-loss JOB.yaml --checkpoint 1 --sink facts --restore {path}" in (
        caught.value.remedy
    )
    repair = LossRepair(world.context("again", **asked), world.declared)
    repair.accept(repair.plan(1, "facts"), NOTE)
    with pytest.raises(TargetChangedError, match=r"accept-loss JOB\.yaml --checkpoint 0"):
        world.drive(4, "again", **asked)
    repair = LossRepair(world.context("again", **asked), world.declared)
    repair.accept(repair.plan(0, "facts"), NOTE)
    world.drive(4, "again", **asked)
    assert world.ids() == [[*range(20, 40)], [*range(40)]]


class Reread:
    """Reads the lost numbers again."""

    def __init__(self, sinks: Mapping[str, OpenSink], numbers: Sequence[int]) -> None:
        self._sinks = sinks
        self._numbers = numbers

    def ranges(self, lost: Lost) -> Sequence[str]:
        return [str(piece.subtask.index) for piece in lost.pieces]

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        sink = self._sinks[lost.sink]
        assert isinstance(sink, OpenArrowSink)
        writer = sink.writers()(transaction, Subtask(9, 900))
        rows = [{"id": number} for number in self._numbers]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=World.schema))
        piece = writer.pre_commit()
        assert piece is not None
        return {lost.pieces[0].subtask.index: [piece]}


def forked(world: BeginningWorld, path: Path) -> None:
    world.drive(4, "fork", FORK, **restoring(path, "fork"))


def test_a_fork_loses_nothing_whose_lost_rows_the_first_job_writes_again(
    world: BeginningWorld,
) -> None:
    """A piece of the savepoint is lost, and the first job's folder is there: the fork names the
    command for that, which names the one that writes the rows again.
    """
    path = unfinished(world)
    gone = lose_piece(world)
    with pytest.raises(LostCommittableError) as caught:
        forked(world, path)
    assert f"twophase savepoint finish orders.yaml {path}" in caught.value.remedy
    with pytest.raises(LostCommittableError, match="twophase repair rewrite"):
        world.finish(path)
    context = world.context()
    repair = RewriteRepair(context, Reread(context.sinks, gone))
    repair.rewrite(repair.plan(1, "facts"), NOTE)
    world.finish(path)
    forked(world, path)
    assert world.ids() == [[*range(40)]] * 2
    assert world.prepared() == 0


def test_what_a_target_lacks_before_a_fork_is_given_up_by_the_first_job(
    world: BeginningWorld,
) -> None:
    """The target has lost the rows of checkpoint 0: only the first job's log tells what is missing,
    and the fork names the command that asks it.
    """
    path = unfinished(world)
    for piece in (world.root / "facts" / "visible").iterdir():
        piece.unlink()
    with pytest.raises(TargetChangedError) as caught:
        forked(world, path)
    assert f"twophase savepoint finish orders.yaml {path}" in caught.value.remedy
    with pytest.raises(TargetChangedError, match=r"accept-loss JOB\.yaml --checkpoint 0"):
        world.finish(path)
    repair = LossRepair(world.context())
    repair.accept(repair.plan(0, "facts"), NOTE)
    world.finish(path)
    forked(world, path)
    assert world.ids() == [[*range(10, 40)], [*range(40)]]


@pytest.mark.parametrize(("policy", "job"), [("refuse", JOB), ("fork", FORK)], ids=str)
def test_a_savepoint_is_not_finished_whose_rows_a_sink_has_lost_and_is_made_again(
    world: BeginningWorld, policy: str, job: str
) -> None:
    """I accepted the loss of all that one sink had to commit of it. Called finished, it would look
    in the target for these rows, in whatever folder it is restored.
    """
    path = unfinished(world)
    gone = [*lose_piece(world), *lose_piece(world)]
    repair = LossRepair(world.context())
    repair.accept(repair.plan(1, "facts"), NOTE)
    with pytest.raises(SavepointError, match="sink 'facts' has lost") as caught:
        world.finish(path)
    assert "twophase savepoint create JOB.yaml PATH" in caught.value.remedy
    second = world.make("second")
    shutil.rmtree(world.root / "job")
    world.drive(4, "again", job, **restoring(second, policy))
    assert world.ids() == [[one for one in range(40) if one not in gone], [*range(40)]]


def test_a_savepoint_is_not_finished_whose_rows_an_adoption_did_not_miss(
    world: BeginningWorld,
) -> None:
    """All that one sink had to commit of it was rolled back by hand, and the body was gone: the
    adoption took the checkpoint from the other sink. Called finished, it could not be restored:
    the start said that the target came from a backup.
    """
    path = unfinished(world)
    gone = [*lose_piece(world), *lose_piece(world)]
    lake = world.context().sinks["lake"]
    lake.commit([CommitRequest(piece) for piece in lake.in_doubt()])
    [body] = (world.root / "job" / "chk").glob("*-1-*")
    shutil.rmtree(body)
    repair = AdoptionRepair(world.context(), frozen, lambda _: True)
    repair.adopt(repair.plan(), NOTE)
    with pytest.raises(SavepointError, match=r"sink 'facts' has lost .* and nobody has accepted"):
        world.finish(path)
    assert not open_savepoint(str(path)).is_committed
    asked = restoring(path, "refuse")
    with pytest.raises(LostCommittableError):
        world.drive(4, "again", **asked)
    loss = LossRepair(world.context("again", **asked), world.declared)
    loss.accept(loss.plan(1, "facts"), NOTE)
    world.drive(4, "again", **asked)
    assert world.ids() == [[one for one in range(40) if one not in gone], [*range(40)]]


def test_a_savepoint_is_finished_when_the_job_has_gone_on_in_other_targets(
    world: BeginningWorld,
) -> None:
    """They have none of its rows; the old ones have, and nothing was lost."""
    path = unfinished(world)
    world.drive(3)
    newest = world.make("newest")
    world.folders = {"facts": "facts2", "lake": "lake2"}
    world.drive(4, **restoring(newest, "refuse"))
    world.finish(path)
    assert open_savepoint(str(path)).is_committed


@pytest.mark.parametrize(("policy", "job"), [("refuse", JOB), ("fork", FORK)], ids=str)
def test_a_piece_of_a_savepoint_is_not_written_again_where_its_decision_is_not_known(
    world: BeginningWorld, policy: str, job: str
) -> None:
    """Nothing is written; its loss can be accepted there, as the message says."""
    path = unfinished(world)
    gone = lose_piece(world)
    context = world.context("again", job, **restoring(path, policy))
    with refused(world.root) as caught:
        RewriteRepair(context, Reread(context.sinks, gone)).plan(1, "facts")
    assert "twophase repair accept-loss" in caught.value.remedy


def written_again(world: BeginningWorld) -> tuple[Path, Path, bytes]:
    """Write a lost piece of an unfinished savepoint again, and die before it is committed.

    Returns:
        The savepoint, the lost piece and what was in it.
    """
    path = unfinished(world)
    piece = min((world.root / "facts" / "prepared").iterdir())
    rows, gone = piece.read_bytes(), lose_piece(world)
    context = world.context()
    repair = RewriteRepair(context, Reread(context.sinks, gone))
    plan = repair.plan(1, "facts")
    assert killed("R03", lambda: repair.rewrite(plan, NOTE))
    return path, piece, rows


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_savepoint_whose_piece_was_written_again_is_restored_without_that_piece(
    world: BeginningWorld, committed: bool, comes_back: bool
) -> None:
    """The piece was lost, I had it written again, and the job went on or did not: the restore in
    its folder knows of it, and does not call it lost. Nor does it commit the piece if that is back.
    """
    path, piece, rows = written_again(world)
    if committed:
        world.drive(2)
    if comes_back:
        piece.write_bytes(rows)
    world.drive(4, **restoring(path, "refuse"))
    world.is_exact("job", 4)


def test_a_piece_that_was_written_again_and_comes_back_is_not_noticed_in_another_folder(
    world: BeginningWorld,
) -> None:
    """Its log knows nothing of the rewrite: the savepoint's piece is committed as well."""
    path, piece, rows = written_again(world)
    world.drive(2)
    piece.write_bytes(rows)
    world.drive(4, "again", **restoring(path, "refuse"))
    assert world.ids() == [sorted([*range(40), *range(10, 15)]), [*range(40)]]


@pytest.mark.parametrize(
    "point",
    [
        "A01",
        "A02",
    ],
)
def test_a_savepoint_beside_a_sink_that_is_ahead_can_be_restored(
    world: BeginningWorld, point: str
) -> None:
    """The job died while one sink was ahead of the others, and I made a savepoint: it is refused
    until the job has caught up, and can be restored then.
    """
    world.drive(2, **AHEAD)
    assert killed(point, lambda: world.drive(3, **AHEAD))
    with pytest.raises(SavepointError, match="'facts' has or gets checkpoint 2") as caught:
        world.make()
    assert caught.value.remedy == "let the job decide that checkpoint, then try again."
    world.drive(3, **AHEAD)
    path = world.make()
    shutil.rmtree(world.root / "job")
    world.drive(5, "again", **restoring(path, "refuse"), **AHEAD)
    world.is_exact("again", 5)


@pytest.mark.parametrize("point", ["A01", "A02"])
def test_a_savepoint_waits_until_no_sink_is_ahead(world: BeginningWorld, point: str) -> None:
    """I make a savepoint while one sink is ahead of the others: it waits for the job, and is made
    of the checkpoint that all of them have.
    """
    world.drive(2, **AHEAD)
    assert killed(point, lambda: world.drive(3, **AHEAD))

    def goes_on() -> bool:
        world.drive(3, **AHEAD)
        return True

    path = world.root / "saved"
    made = world.maker().make(str(path), still_waiting=goes_on)
    assert made.checkpoint == 2
    world.drive(5, "again", **restoring(path, "refuse"), **AHEAD)
    world.is_exact("again", 5)


@pytest.mark.parametrize("point", ["S11", "S12", "S13"])
@pytest.mark.parametrize(
    "folder",
    [
        "job",
        "again",
    ],
)
def test_no_savepoint_is_made_in_the_middle_of_a_rewind(
    world: BeginningWorld, point: str, folder: str
) -> None:
    """I made a savepoint while a rewind was unfinished: it is refused. After the rewind it is made,
    and can be restored.
    """
    path = older(world)
    assert killed(point, lambda: world.drive(5, folder, **restoring(path, "rewind")))
    with refused(world.root) as caught:
        world.make("amid", folder)
    assert isinstance(caught.value, SavepointError)
    world.drive(5, folder, **restoring(path, "rewind"))
    newer = world.make("newer", folder)
    world.drive(6, "third", **restoring(newer, "refuse"))
    world.is_exact("third", 6)


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_a_restored_job_is_saved_before_its_first_checkpoint(
    world: BeginningWorld, policy: str
) -> None:
    """I restored a savepoint, nothing was to be read, and I stopped with a savepoint: it is made of
    what was restored.
    """
    world.drive(2)
    path = world.make()
    if policy == "rewind":
        world.drive(4)
    world.drive(2, "again", **restoring(path, policy))
    second = world.make("second", "again")
    world.drive(4, "third", **restoring(second, "refuse"))
    world.is_exact("third", 4)

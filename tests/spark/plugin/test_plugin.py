"""The plugin form, each call in a process of its own, as Spark would start them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from harness.folder_sink import FolderTarget
from tests.spark.plugin.plugin_world import Killed, World
from twophase.errors import CheckpointMissingError, DeclinedError, FencedError, TargetChangedError
from twophase.ids import Attempt
from twophase.internals.clock import SystemClock
from twophase.spark.plugin.job import Acknowledged
from twophase.state.checkpoints.store import _FOLD_AT, decode_body

IN_COMMIT = [
    "C01",
    "C02",
    "C06",
    "C07",
    "C08",
    "C09",
    "C10",
    "C11",
    "C12",
    "C13",
    "C14",
    "C16",
    "C17",
]
IN_RECOVERY = ["C18", "C19", "C22"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# -- runs ------------------------------------------------------------------------------------------


def test_each_micro_batch_arrives_once_and_the_run_has_one_fence(world: World) -> None:
    for number in range(3):
        world.run(number)
    assert world.ids() == world.expected(3)
    assert world.history().generation == 1
    assert world.history().uncommitted() == []
    assert world.target.prepared() == []


def test_a_checkpoint_began_when_it_was_planned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(SystemClock, "unix_ms", lambda _: now_ms[0])
    world.freeze(0)
    plan = world.job().plan()
    now_ms[0] += 1500
    world.job().commit(0, world.write(plan, 0))
    [decision], [stats] = world.history().decisions, world.history().stats
    [path] = (world.folder / "twophase").glob(f"{decision.folder}/_metadata")
    body = decode_body(path.read_bytes(), "_metadata")
    assert body.trigger_time_ms == 1_000_000
    assert body.duration_ms >= 1500
    assert stats.pre_commit_ms >= 1500


def test_a_note_without_a_query_is_nobodys(world: World) -> None:
    world.freeze(0)
    plan = world.job().plan()
    [note] = (world.root / "blockmgr-first").glob("twophase-*")
    note.write_text("{}")
    with pytest.raises(FencedError, match="was not planned by the run"):
        world.job().commit(0, world.write(plan, 0))


@pytest.mark.parametrize("form", ["{}/", "file:{}", "file://{}", "file://localhost{}/"])
def test_a_folder_is_the_same_however_it_is_spelled(world: World, form: str) -> None:
    world.run(0)
    world.freeze(1)
    spelled = {"checkpointlocation": form.format(world.folder)}
    assert world.description(**spelled).spark_folder == world.description().spark_folder
    plan = world.job(**spelled).plan()
    world.job().commit(1, world.write(plan, 1))
    assert (world.ids(), world.history().generation) == (world.expected(2), 1)
    assert world.description(**spelled).fingerprint == world.description().fingerprint


def test_the_next_application_has_a_fence_of_its_own(world: World) -> None:
    world.run(0)
    world.application("second")
    world.run(1)
    world.run(2)
    assert world.history().generation == 2
    assert world.ids() == world.expected(3)


def test_a_start_after_a_clean_stop_in_the_same_application_goes_on_as_the_same_driver(
    world: World,
) -> None:
    world.run(0)
    world.run(1)
    assert [decision.attempt.counter for decision in world.history().decisions] == [1, 2]
    assert world.history().generation == 1


def test_a_micro_batch_that_is_planned_again_is_a_new_run_and_its_old_pieces_are_aborted_first(
    world: World,
) -> None:
    world.run(0)
    world.freeze(1)
    stale = world.job().plan()
    world.write(stale, 1)
    plan = world.job().plan()
    assert (plan.attempt.generation, world.target.prepared()) == (2, [])
    with pytest.raises(FencedError):
        world.write(stale, 1)
    world.job().commit(1, world.write(plan, 1))
    assert world.ids() == world.expected(2)


def test_a_micro_batch_without_tasks_is_decided_like_any_other(world: World) -> None:
    world.freeze(0)
    world.job().plan()
    world.job().commit(0, [])
    assert [decision.checkpoint for decision in world.history().decisions] == [0]
    assert world.ids() == []


def test_a_task_without_rows_has_no_piece(world: World) -> None:
    world.freeze(0)
    plan = world.job().plan()
    world.job().commit(0, [*world.write(plan, 0, tasks=[0]), Acknowledged(plan.attempt, None)])
    assert world.ids() == [0, 2, 4, 6, 8]


def test_the_log_is_folded_and_the_sink_subsumed_although_no_process_sees_more_than_one_checkpoint(
    world: World,
) -> None:
    for number in range(_FOLD_AT):
        world.run(number)
    assert len(world.records()) <= _FOLD_AT
    assert world.target.high_water("orders", "folder") != {}
    assert world.ids() == world.expected(_FOLD_AT)


# -- what Spark does twice (H12, C16) --------------------------------------------------------------


def test_a_decided_micro_batch_that_spark_runs_again_writes_nothing(world: World) -> None:
    world.run(0)
    world.freeze(1)
    world.job().commit(1, world.write(world.job().plan(), 1))
    world.application("second")  # died before Spark's commit log
    plan = world.job().plan()
    assert plan.transaction is None
    world.job().commit(1, world.write(plan, 1))
    world.finish(1)
    world.run(2)
    assert world.ids() == world.expected(3)
    assert [
        (found.checkpoint, found.attempt.generation) for found in world.history().decisions
    ] == [
        (0, 1),
        (1, 1),
        (2, 2),
    ]


def test_a_commit_that_is_called_twice_commits_once(world: World) -> None:
    world.freeze(0)
    acknowledged = world.write(world.job().plan(), 0)
    world.job().commit(0, acknowledged)
    world.job().commit(0, acknowledged)
    assert world.ids() == world.expected(1)
    assert len(world.history().decisions) == 1


def test_pieces_that_are_written_again_after_the_decision_are_aborted(world: World) -> None:
    world.freeze(0)
    plan = world.job().plan()
    world.job().commit(0, world.write(plan, 0))
    again = world.write(plan, 0)
    assert len(world.target.prepared()) == 2
    world.job().commit(0, again)
    assert world.target.prepared() == []
    assert world.ids() == world.expected(1)


def test_a_task_attempt_that_lost_is_aborted_after_the_commit(world: World) -> None:
    world.freeze(0)
    plan = world.job().plan()
    world.write(plan, 0, tasks=[0])
    world.job().commit(0, world.write(plan, 0))
    assert world.ids() == world.expected(1)
    assert world.target.prepared() == []


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", IN_COMMIT)
@pytest.mark.parametrize("aborted", [True, False], ids=["aborted by Spark", "the application dies"])
def test_nothing_is_lost_or_twice_after_a_failure_at(
    world: World, point: str, aborted: bool
) -> None:
    world.run(0)
    world.arm(point)
    world.freeze(1)
    acknowledged = world.write(world.job().plan(), 1)
    with pytest.raises(Killed):
        world.job().commit(1, acknowledged)
    world.arm()
    if aborted:
        world.job().abort()
    else:
        world.application("second")
    world.run(1)
    world.run(2)
    assert world.ids() == world.expected(3)
    assert world.target.prepared() == []


@pytest.mark.parametrize("point", IN_RECOVERY)
@pytest.mark.parametrize("before", ["C06", "C11"])
def test_nothing_is_lost_or_twice_after_a_failure_in_recovery_at(
    world: World, point: str, before: str
) -> None:
    world.run(0)
    world.arm(before)
    world.freeze(1)
    with pytest.raises(Killed):
        world.job().commit(1, world.write(world.job().plan(), 1))
    world.arm(point)
    reached = (before, point) != ("C06", "C19")  # it is between re-commits
    if reached:
        with pytest.raises(Killed):
            world.job().plan()
    world.arm()
    world.run(1)
    assert world.ids() == world.expected(2)
    assert world.target.prepared() == []


def test_an_abort_leaves_nothing_of_what_is_not_decided(world: World) -> None:
    world.run(0)
    world.freeze(1)
    world.write(world.job().plan(), 1)
    world.job().abort()
    assert world.target.prepared() == []
    assert world.ids() == world.expected(1)
    assert world.history().generation == 2


def test_an_abort_touches_no_decided_checkpoint(world: World) -> None:
    world.freeze(0)
    world.arm("C11")
    with pytest.raises(Killed):
        world.job().commit(0, world.write(world.job().plan(), 0))
    world.arm()
    prepared = world.target.prepared()
    world.job().abort()
    assert world.target.prepared() == prepared
    assert len(prepared) == 2


def test_a_commit_that_outlives_the_abort_of_its_micro_batch_decides_nothing(world: World) -> None:
    world.freeze(0)
    acknowledged = world.write(world.job().plan(), 0)
    late = world.job()
    late._coordinator.context.log.read()
    note = late._notes.read()
    assert note is not None
    world.job().abort()
    late._notes.write(note)  # it has read the note before
    with pytest.raises(FencedError):
        late.commit(0, acknowledged)
    assert world.history().decisions == ()
    assert world.ids() == []


def test_a_commit_of_the_run_before_is_refused(world: World) -> None:
    world.freeze(0)
    stale = world.write(world.job().plan(), 0)
    plan = world.job().plan()
    with pytest.raises(FencedError, match="was not planned by the run") as raised:
        world.job().commit(0, stale)
    assert raised.value.remedy == "leave this run stopped."
    assert world.history().decisions == ()
    assert plan.attempt.generation == 2
    world.job().commit(0, world.write(plan, 0))
    assert world.ids() == world.expected(1), "the run that is going on is in no way harmed"


def test_a_failed_decision_is_declined(world: World) -> None:
    world.run(0)
    world.freeze(1)
    plan = world.job().plan()
    [first, second] = world.write(plan, 1)
    assert first.committable is not None
    doubled = [first, Acknowledged(plan.attempt, first.committable), second]
    with pytest.raises(DeclinedError):
        world.job().commit(1, doubled)
    world.job().abort()
    world.run(1)
    assert world.ids() == world.expected(2)


# -- two applications ------------------------------------------------------------------------------


@contextmanager
def unreadable(world: World, number: int) -> Iterator[None]:
    """The offsets of a micro-batch cannot be read in the block, as on a disk that fails."""
    offsets = world.folder / "offsets" / str(number)
    kept = offsets.rename(world.root / "kept")
    offsets.mkdir()
    yield
    offsets.rmdir()
    kept.rename(offsets)


def test_offsets_that_cannot_be_read_decline_the_checkpoint_at_each_step(world: World) -> None:
    def declined() -> AbstractContextManager[object]:
        return pytest.raises(DeclinedError, match="checkpoint 1 could not be triggered")

    world.run(0)
    world.freeze(1)
    with unreadable(world, 1), declined():
        world.job().plan()
    plan = world.job().plan()
    acknowledged = world.write(plan, 1)
    with unreadable(world, 1), declined():
        world.job().commit(1, acknowledged)
    world.job().commit(1, acknowledged)
    world.application("second")  # died before Spark's commit log
    replay = world.write(world.job().plan(), 1)
    with unreadable(world, 1), declined():
        world.job().commit(1, replay)
    world.job().commit(1, replay)
    assert world.ids() == world.expected(2)
    assert world.target.prepared() == []


def test_a_second_run_fences_the_first_whose_commit_is_refused(world: World) -> None:
    world.run(0)
    world.freeze(1)
    first = world.write(world.job().plan(), 1)
    world.application("second")
    second = world.job().plan()
    world.application("first")
    with pytest.raises(FencedError):
        world.job().commit(1, first)
    world.job().abort()
    world.application("second")
    world.job().commit(1, world.write(second, 1))
    assert world.ids() == world.expected(2)


def test_a_fenced_run_does_not_take_over_with_its_next_micro_batch(world: World) -> None:
    world.run(0)
    world.application("second")
    world.run(1)
    world.application("first")
    world.freeze(2)
    with pytest.raises(FencedError):
        world.job().plan()
    assert world.history().generation == 2
    world.application("second")
    world.run(2)
    assert world.ids() == world.expected(3)


def test_a_start_after_the_end_of_a_fenced_run_takes_over(world: World) -> None:
    world.run(0)
    world.application("second")
    world.run(1)
    world.application("first")
    world.freeze(2)
    with pytest.raises(FencedError):
        world.job().plan()
    world.run(2)
    assert world.history().generation == 3
    assert world.ids() == world.expected(3)


# -- another query in the same application ---------------------------------------------------------


def test_a_query_with_another_target_is_a_run_of_its_own_which_fences_that_target(
    world: World,
) -> None:
    world.freeze(0)
    world.job().plan()
    other = FolderTarget(world.root / "other")
    plan = world.job(path=str(other.root)).plan()
    assert plan.attempt == Attempt(2, 1)
    assert other.fence("orders", "folder").generation == 2
    world.job(path=str(other.root)).commit(0, world.write(plan, 0))
    assert sorted(row["id"] for row in other.rows()) == list(range(10))
    assert world.ids() == []


def test_another_target_that_would_lack_what_is_committed_is_refused(world: World) -> None:
    world.run(0)
    other = FolderTarget(world.root / "other")
    world.freeze(1)
    with pytest.raises(TargetChangedError, match=r"checkpoint 0 .* knows none of that lineage"):
        world.job(path=str(other.root)).plan()
    assert other.fence("orders", "folder").generation == 0


def test_a_query_with_another_target_is_validated_against_what_that_target_remembers(
    world: World,
) -> None:
    world.run(0)
    other = FolderTarget(world.root / "other")
    with other.lock():
        other.raise_high_water("orders", "folder", "another-lineage", 7)
    world.freeze(1)
    with pytest.raises(CheckpointMissingError, match="another-lineage"):
        world.job(path=str(other.root)).plan()


def test_an_abort_of_the_query_before_leaves_the_run_of_the_next_one_alone(world: World) -> None:
    world.freeze(0)
    world.job().plan()
    changed = {"path": str(FolderTarget(world.root / "other").root)}
    plan = world.job(**changed).plan()
    world.job().abort()
    world.job(**changed).commit(0, world.write(plan, 0))
    assert [decision.attempt.generation for decision in world.history().decisions] == [2]


def test_a_commit_of_the_query_before_is_refused(world: World) -> None:
    world.freeze(0)
    stale = world.write(world.job().plan(), 0)
    world.job(path=str(FolderTarget(world.root / "other").root)).plan()
    with pytest.raises(FencedError, match="was not planned by the run"):
        world.job().commit(0, stale)


def test_the_note_of_a_run_holds_no_option_s_value(world: World) -> None:
    world.run(0)
    (note,) = (world.root / "blockmgr-first").iterdir()
    assert str(world.target.root) not in note.read_text()


def test_the_tasks_are_told_whether_to_keep_or_to_compare_what_they_read(world: World) -> None:
    """H35. The source's tasks see no plan of the writer, so a note in Spark's folder tells them,
    where the query keeps state.
    """
    world.run(0)
    ranges = world.folder / "ranges"
    assert not ranges.exists()
    ranges.mkdir()  # as the listener does when such a query starts
    world.run(1)
    [decided] = [found for found in world.history().decisions if found.checkpoint == 1]
    kept = {"checkpoint": 1, "path": f"{ranges}/1-{decided.attempt.generation}", "planned": True}
    assert json.loads((ranges / "plan").read_text()) == {**kept, "replay": False}
    (world.folder / "commits" / "1").unlink()
    world.application("second")
    world.job().plan()
    assert json.loads((ranges / "plan").read_text()) == {**kept, "replay": True}

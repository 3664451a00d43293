"""The plugin form, each call in a process of its own, as Spark would start them."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.plugin_world import SCHEMA, Killed, World
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    DeclinedError,
    FencedError,
    OffsetMismatchError,
    PreflightError,
    StopJobError,
)
from twophase.runtime.plugin.description import Environment
from twophase.runtime.plugin.job import Acknowledged
from twophase.runtime.plugin.source import SinkDataSource
from twophase.state.store import _FOLD_EVERY

IN_COMMIT = ["C01", "C02", "C06", "C07", "C08", "C09", "C10", "C11", "C12", "C13", "C14", "C16", "C17"]
IN_RECOVERY = ["C18", "C19", "C22"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_each_micro_batch_arrives_once_and_the_run_has_one_fence(world: World) -> None:
    for number in range(3):
        world.run(number)
    assert world.ids() == world.expected(3)
    assert world.history().generation == 1
    assert world.history().uncommitted() == []
    assert world.target.prepared() == []


def test_the_next_application_has_a_fence_of_its_own(world: World) -> None:
    world.run(0)
    world.application("second")
    world.run(1)
    world.run(2)
    assert world.history().generation == 2
    assert world.ids() == world.expected(3)


def test_a_start_after_a_clean_stop_in_the_same_application_goes_on_as_the_same_driver(world: World) -> None:
    world.run(0)
    world.run(1)
    assert [decision.attempt.counter for decision in world.history().decisions] == [1, 2]
    assert world.history().generation == 1


def test_a_micro_batch_that_is_planned_again_is_a_new_run_and_its_old_pieces_are_aborted_first(world: World) -> None:
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
    for number in range(2 * _FOLD_EVERY + 2):
        world.run(number)
    assert len(world.records()) <= 2 * _FOLD_EVERY + 4
    assert world.target.high_water("orders", "folder") != {}
    assert world.ids() == world.expected(2 * _FOLD_EVERY + 2)


# -- what Spark does twice (H12, C16) -------------------------------------------------------------------------------------


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
    assert [(found.checkpoint, found.attempt.generation) for found in world.history().decisions] == [
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


def test_a_task_attempt_that_lost_is_aborted_after_the_commit(world: World) -> None:
    world.freeze(0)
    plan = world.job().plan()
    world.write(plan, 0, tasks=[0])
    world.job().commit(0, world.write(plan, 0))
    assert world.ids() == world.expected(1)
    assert world.target.prepared() == []


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", IN_COMMIT)
@pytest.mark.parametrize("aborted", [True, False], ids=["aborted by Spark", "the application dies"])
def test_nothing_is_lost_or_twice_after_a_failure_at(world: World, point: str, aborted: bool) -> None:
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
def test_nothing_is_lost_or_twice_after_a_failure_in_recovery_at(world: World, point: str, before: str) -> None:
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


def test_an_abort_touches_nothing_of_what_is_decided(world: World) -> None:
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
    late._coordinator.log.read()
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
    with pytest.raises(FencedError, match="was not planned by the run"):
        world.job().commit(0, stale)
    assert world.history().decisions == ()
    assert plan.attempt.generation == 2


# -- two applications ----------------------------------------------------------------------------------------------------


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


# -- folders that do not belong together ---------------------------------------------------------------------------------


def test_a_decided_micro_batch_with_other_offsets_stops_the_job(world: World) -> None:
    world.run(0)
    (world.folder / "commits" / "0").unlink()
    world.freeze(0, end=77)
    with pytest.raises(OffsetMismatchError, match="other offsets"):
        world.job().plan()


def test_a_gap_stops_the_job(world: World) -> None:
    world.run(0)
    world.freeze(2)
    with pytest.raises(OffsetMismatchError):
        world.job().plan()


def test_an_old_folder_of_spark_put_back_stops_the_job(world: World) -> None:
    world.run(0)
    shutil.copytree(world.folder / "offsets", world.root / "offsets")
    world.run(1)
    world.run(2)
    shutil.rmtree(world.folder / "offsets")
    (world.root / "offsets").rename(world.folder / "offsets")
    world.application("second")
    with pytest.raises(OffsetMismatchError):
        world.job().plan()


def test_the_folder_of_another_query_stops_the_job(world: World) -> None:
    world.run(0)
    (world.folder / "metadata").write_text(json.dumps({"id": "another"}))
    world.application("second")
    world.freeze(1)
    with pytest.raises(OffsetMismatchError, match="belongs to query another"):
        world.job().plan()


def test_a_query_that_has_run_without_twophase_is_not_taken_over(world: World) -> None:
    for number in range(3):
        world.freeze(number)
        world.finish(number)
    world.freeze(3)
    with pytest.raises(OffsetMismatchError, match="planned micro-batch 3"):
        world.job().plan()


def test_a_folder_that_is_gone_while_the_target_remembers_stops_the_job(world: World) -> None:
    world.run(0)
    shutil.rmtree(world.folder / "twophase")
    world.application("second")
    world.freeze(0)
    with pytest.raises(CheckpointMissingError):
        world.job().plan()


def test_a_decision_that_vanishes_between_plan_and_commit_stops_the_job(world: World) -> None:
    """The tasks of a decided micro-batch write nothing: deciding what they report would lose its rows."""
    world.run(0)
    shutil.copytree(world.folder / "twophase", world.root / "old")
    world.freeze(1)
    world.job().commit(1, world.write(world.job().plan(), 1))
    world.application("second")
    acknowledged = world.write(world.job().plan(), 1)
    shutil.rmtree(world.folder / "twophase")
    (world.root / "old").rename(world.folder / "twophase")
    with pytest.raises(StopJobError):
        world.job().commit(1, acknowledged)


def test_a_commit_without_the_note_of_its_run_is_refused(world: World) -> None:
    world.freeze(0)
    job = world.job()
    acknowledged = world.write(job.plan(), 0)
    job._notes.delete()
    with pytest.raises(FencedError):
        world.job().commit(0, acknowledged)
    world.run(0)
    assert world.ids() == world.expected(1)


# -- what cannot work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"restore.path": "/chk"}, "restore.path"),
        ({"restore.error_if_no_checkpoint": "true"}, "restore.error_if_no_checkpoint"),
        ({"restart.strategy": "fixed"}, "restart.strategy"),
        ({"checkpoint.timeout": "1 s"}, "checkpoint.timeout"),
        ({"checkpoint.tolerable_failures": "1"}, "checkpoint.tolerable_failures"),
        ({"checkpoint.interval": "1 s"}, "trigger"),
        ({"checkpoint.num_retained": "0"}, "checkpoint.num_retained"),
        ({"name": "a/b"}, "job name"),
        ({"checkpointlocation": "s3://bucket/chk"}, "s3"),
        ({"sink_option": "1"}, "sink_option"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(world: World, options: dict[str, str], said: str) -> None:
    (world.folder / "offsets" / "0").write_text("v1\n{}\n{}")
    with pytest.raises((ConfigError, PreflightError), match=said):
        world.job(**options).plan()
    assert not (world.folder / "twophase" / "log").exists()


@pytest.mark.parametrize("missing", ["name", "checkpointlocation"])
def test_what_is_required_is_named(world: World, missing: str) -> None:
    options = {"name": "orders", "checkpointlocation": str(world.folder)}
    del options[missing]
    with pytest.raises(ConfigError, match="is required"):
        source(options).streamWriter(SCHEMA, overwrite=False)


def test_a_sink_that_is_not_written_by_tasks_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="write_stream"):
        source({"name": "orders", "checkpointLocation": str(world.folder)}, "whole").streamWriter(SCHEMA, False)


def test_the_mode_complete_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="complete"):
        source({"name": "orders", "checkpointLocation": str(world.folder)}).streamWriter(SCHEMA, overwrite=True)


def test_a_batch_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="writeStream"):
        source({}).writer(SCHEMA, overwrite=False)


def test_a_process_that_spark_did_not_start_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with pytest.raises(PreflightError, match="SPARK_LOCAL_DIRS"):
        world.job()


def test_only_the_source_that_spark_makes_for_a_micro_batch_plans(world: World) -> None:
    world.freeze(0)
    options = {"name": "orders", "checkpointLocation": str(world.folder), "path": str(world.target.root)}
    made = source(options)
    made.__class__ = SourceOfFolder  # as cloudpickle would give it back
    sent = pickle.loads(pickle.dumps(made))
    sent.streamWriter(SCHEMA, overwrite=False)
    assert not (world.folder / "twophase" / "log").exists()
    source(options).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


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


class SourceOfFolder(SinkDataSource):
    sink_type = "folder"
    environment = Environment(2, False, "UTC")


def source(options: dict[str, Any], sink_type: str = "folder") -> SinkDataSource:
    kind = type("Source", (SourceOfFolder,), {"sink_type": sink_type})
    return kind(options)

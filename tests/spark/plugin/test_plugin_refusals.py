"""What the plugin form refuses: folders that do not belong together, options and
calls that cannot work.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from tests.spark.plugin.plugin_world import SCHEMA, World
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    OffsetMismatchError,
    PreflightError,
    StopJobError,
)
from twophase.spark.plan.shuffles import PUSH, Fault
from twophase.spark.plugin.description import Environment
from twophase.spark.plugin.source import SinkDataSource
from twophase.spark.plugin.writer import PluginWriter
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import FenceRecord
from twophase.state.journal.log import JobLog


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# -- folders that do not belong together -----------------------------------------------------------


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


def test_an_old_spark_folder_restored_from_a_backup_stops_the_job(world: World) -> None:
    world.run(0)
    shutil.copytree(world.folder / "offsets", world.root / "offsets")
    world.run(1)
    world.run(2)
    shutil.rmtree(world.folder / "offsets")
    (world.root / "offsets").rename(world.folder / "offsets")
    world.application("second")
    with pytest.raises(OffsetMismatchError, match="Spark planned micro-batch 0") as raised:
        world.job().plan()
    assert "restore.path" not in str(raised.value)  # this form has none
    assert "leave `twophase` in it as it is" in str(raised.value)


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
    """The tasks of a decided micro-batch write nothing: deciding what they report
    would lose its rows.
    """
    world.run(0)
    shutil.copytree(world.folder / "twophase", world.root / "old")
    world.freeze(1)
    world.job().commit(1, world.write(world.job().plan(), 1))
    world.application("second")
    acknowledged = world.write(world.job().plan(), 1)
    backup = shutil.copytree(world.folder / "twophase", world.root / "newest")
    shutil.rmtree(world.folder / "twophase")
    (world.root / "old").rename(world.folder / "twophase")
    log = JobLog(LocalStorage(world.folder / "twophase"), "orders")
    log.read()
    log.append(FenceRecord(2))
    with pytest.raises(StopJobError, match="was decided when it was planned") as raised:
        world.job().commit(1, acknowledged)
    assert "restore it from a backup" in raised.value.remedy
    shutil.rmtree(world.folder / "twophase")
    backup.rename(world.folder / "twophase")
    world.application("third")
    for number in (1, 2):
        world.run(number)
    assert world.ids() == world.expected(3)


def test_a_commit_without_the_note_of_its_run_is_refused(world: World) -> None:
    world.freeze(0)
    job = world.job()
    acknowledged = world.write(job.plan(), 0)
    job._notes.delete()
    with pytest.raises(FencedError):
        world.job().commit(0, acknowledged)
    world.run(0)
    assert world.ids() == world.expected(1)


# -- what cannot work ------------------------------------------------------------------------------


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
def test_options_that_cannot_work_are_refused_by_name(
    world: World, options: dict[str, str], said: str
) -> None:
    (world.folder / "offsets" / "0").write_text("v1\n{}\n{}")
    with pytest.raises((ConfigError, PreflightError), match=said):
        world.job(**options).plan()
    assert not (world.folder / "twophase" / "log").exists()
    given = {
        "name": "orders",
        "checkpointlocation": str(world.folder),
        "path": str(world.target.root),
    }
    source(given).check(SCHEMA, "append")
    with pytest.raises((ConfigError, PreflightError), match=said):
        source(given | options).check(SCHEMA, "append")


@pytest.mark.parametrize("missing", ["name", "checkpointlocation"])
def test_what_is_required_is_named(world: World, missing: str) -> None:
    options = {"name": "orders", "checkpointlocation": str(world.folder)}
    options["path"] = str(world.target.root)
    world.freeze(0)
    given = options.pop(missing)
    with pytest.raises(ConfigError, match="the query needs the option") as raised:
        source(options).streamWriter(SCHEMA, overwrite=False)
    named = {"name": "'name'", "checkpointlocation": "'checkpointLocation'"}[missing]
    assert f"set .option({named}, " in raised.value.remedy
    source(options | {missing: given}).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside Spark's"])
def test_the_folder_by_flinks_name_is_refused(world: World, beside: bool) -> None:
    """Spark reads its own name only, so its folder would be another one, or none."""
    name, folder = "execution.checkpointing.dir", str(world.folder)
    options = {"name": "orders", name: folder} | ({"checkpointLocation": folder} if beside else {})
    with pytest.raises(ConfigError, match=f"{name!r} has no effect in the plugin form") as raised:
        source(options).streamWriter(SCHEMA, overwrite=False)
    assert ".option('checkpointLocation', FOLDER)" in raised.value.remedy
    assert not (world.folder / "twophase").exists()
    world.freeze(0)
    del options[name]
    options |= {"checkpointLocation": folder, "path": str(world.target.root)}
    source(options).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


def test_a_sink_that_is_not_written_by_tasks_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="write_stream"):
        source({"name": "orders", "checkpointLocation": str(world.folder)}, "whole").streamWriter(
            SCHEMA, False
        )


def test_the_mode_complete_is_refused(world: World) -> None:
    world.freeze(0)
    with pytest.raises(ConfigError, match="complete") as raised:
        source(options_of(world)).streamWriter(SCHEMA, overwrite=True)
    assert raised.value.remedy == "use outputMode('append')."
    source(options_of(world)).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


def test_a_batch_is_refused(world: World) -> None:
    world.freeze(0)
    with pytest.raises(ConfigError, match=r"use df\.writeStream"):
        source(options_of(world)).writer(SCHEMA, overwrite=False)
    source(options_of(world)).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


def test_a_process_that_spark_did_not_start_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with pytest.raises(PreflightError, match="SPARK_LOCAL_DIRS") as raised:
        world.job()
    assert raised.value.remedy == "use this format only with writeStream."
    world.application("a query of Spark")
    world.run(0)
    assert world.ids() == world.expected(1)


def test_a_folder_that_is_not_on_the_driver_s_file_system_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's JVM and its Python processes may run in different folders."""
    monkeypatch.chdir(world.root)
    world.freeze(0)
    relative = world.folder.name
    assert world.job(checkpointlocation=relative).plan().checkpoint == 0
    (world.root / "elsewhere").mkdir()
    monkeypatch.chdir(world.root / "elsewhere")
    with pytest.raises(PreflightError, match=f"is not at .*{relative}") as raised:
        world.job(checkpointlocation=relative)
    assert "as the absolute path of a folder" in raised.value.remedy
    world.job(checkpointlocation=str(world.folder)).plan()
    world.run(0)
    assert world.ids() == world.expected(1)


@contextmanager
def in_task_of(micro_batch: int) -> Iterator[None]:
    """This process runs a task of a micro-batch."""
    context: Any = TaskContext()
    context._localProperties = {"streaming.sql.batchId": str(micro_batch)}
    context._partitionId = context._taskAttemptId = 0
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._taskContext = None


def test_tasks_of_another_micro_batch_than_the_planned_one_write_nothing(world: World) -> None:
    """Another query on this folder has planned one more since Spark planned this one's."""
    ids = pa.RecordBatch.from_pydict({"id": [*range(10)]})
    world.freeze(0)
    overtaken = PluginWriter(world.description(), world.job().plan())
    with in_task_of(1), pytest.raises(StopJobError, match="micro-batch 0 was planned") as raised:
        overtaken.write(iter([ids]))
    assert "only one query runs on this checkpointLocation" in raised.value.remedy
    assert world.target.prepared() == []
    writer = PluginWriter(world.description(), world.job().plan())
    with in_task_of(0):
        message = writer.write(iter([ids]))
    world.new_process()
    writer.commit([message], 0)
    world.finish(0)
    world.run(1)
    assert world.ids() == world.expected(2)


def test_shuffles_that_spark_would_not_look_at_are_refused(world: World) -> None:
    options = options_of(world)
    with pytest.raises(PreflightError, match="does not know whether its plan shuffles rows"):
        source(
            options, environment=Environment(2, False, "UTC", Fault(PUSH, "false"))
        ).streamWriter(SCHEMA, False)
    assert not (world.folder / "twophase" / "log").exists()


def test_only_the_source_that_spark_makes_for_a_micro_batch_plans(world: World) -> None:
    world.freeze(0)
    options = options_of(world)
    made = source(options)
    made.__class__ = SourceOfFolder  # as cloudpickle would give it back
    sent = pickle.loads(pickle.dumps(made))
    sent.streamWriter(SCHEMA, overwrite=False)
    assert not (world.folder / "twophase" / "log").exists()
    source(options).streamWriter(SCHEMA, overwrite=False)
    assert world.history().generation == 1


class SourceOfFolder(SinkDataSource):
    sink_type = "folder"
    environment = Environment(2, False, "UTC")


def options_of(world: World) -> dict[str, str]:
    return {
        "name": "orders",
        "checkpointLocation": str(world.folder),
        "path": str(world.target.root),
    }


def source(options: dict[str, Any], sink_type: str = "folder", **more: Any) -> SinkDataSource:
    kind: type[SinkDataSource] = type("Source", (SourceOfFolder,), {"sink_type": sink_type, **more})
    return kind(options)

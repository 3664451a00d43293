"""Which plans keep state in Spark, and what asking executors for the job's folder costs in
local mode: nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from harness.folder_sink import FolderSink
from harness.rights import permissions_checked
from twophase.engine.host import MicroBatch, Plan
from twophase.errors import PreflightError
from twophase.options.job_options import JobOptions
from twophase.spark.batch import batch
from twophase.spark.batch.shared_folder import SharedFolder, _write
from twophase.spark.job.stream_writer import write_stream
from twophase.spark.plan import logical_plan
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]"])
def test_in_local_mode_nothing_is_asked(tmp_path: Path, master: str) -> None:
    context: Any = SimpleNamespace(master=master)
    SharedFolder("orders", context, tmp_path / "spark").check()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_can_write_leaves_nothing_behind(tmp_path: Path) -> None:
    assert list(_write(str(tmp_path), 0, [])) == [""]
    assert list(tmp_path.iterdir()) == []


def test_a_task_says_why_it_cannot_write(tmp_path: Path) -> None:
    assert list(_write(str(tmp_path / "gone"), 0, [])) == [
        "FileNotFoundError: No such file or directory"
    ]
    (tmp_path / "closed").mkdir(mode=0o500)
    with permissions_checked():
        assert list(_write(str(tmp_path / "closed"), 0, [])) == [
            "PermissionError: Permission denied"
        ]


@pytest.mark.parametrize("master", ["local[2]", "spark://driver:7077"])
def test_what_a_driver_left_that_died_while_it_asked_is_deleted_a_day_later(
    tmp_path: Path, master: str
) -> None:
    left, asking, lineage = (
        tmp_path / name for name in (".probe-left", ".probe-asking", "lineage")
    )
    for folder in (left, asking, lineage):
        folder.mkdir()
        (folder / "file").touch()
    for folder in (left, lineage):
        os.utime(folder, (time.time() - 90_000,) * 2)
    context: Any = SimpleNamespace(master=master)
    SharedFolder("orders", context, tmp_path).delete_abandoned()
    assert {*tmp_path.iterdir()} == {asking, lineage}
    SharedFolder("orders", context, tmp_path / "not there").delete_abandoned()


def test_what_cannot_be_deleted_is_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".probe-left").mkdir()
    os.utime(tmp_path / ".probe-left", (0, 0))
    context: Any = SimpleNamespace(master="local")
    with permissions_checked(), caplog.at_level(logging.WARNING, "twophase"):
        tmp_path.chmod(0o500)
        SharedFolder("orders", context, tmp_path).delete_abandoned()
        tmp_path.chmod(0o700)
    assert "cannot be deleted" in caplog.text
    assert (tmp_path / ".probe-left").exists()


def test_nothing_is_said_where_another_process_was_quicker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".probe-left").mkdir()
    os.utime(tmp_path / ".probe-left", (0, 0))
    real = time.time

    def delete_first() -> float:
        shutil.rmtree(tmp_path / ".probe-left", ignore_errors=True)
        return real()

    monkeypatch.setattr(time, "time", delete_first)
    context: Any = SimpleNamespace(master="local")
    with caplog.at_level(logging.WARNING, "twophase"):
        SharedFolder("orders", context, tmp_path).delete_abandoned()
    monkeypatch.undo()
    assert (caplog.records, list(tmp_path.iterdir())) == ([], [])


class Cluster:
    """Stands in for what is asked of a Spark context whose executors are on several machines,
    each with one slot.

    Args:
        folder: the driver's.
        hosts: of the executors, by id.
    """

    master = "spark://driver:7077"

    def __init__(self, folder: Path, hosts: dict[str, str]) -> None:
        self.hosts = hosts
        self.other_disk: set[str] = set()
        self.busy: set[str] = set()
        self.asked: list[list[str]] = []
        self._jsc = SimpleNamespace(sc=lambda: self)
        self._folder = folder
        self._tag = ""

    @property
    def defaultParallelism(self) -> int:
        return len(self.hosts)

    def addJobTag(self, tag: str) -> None:
        self._tag = tag

    def removeJobTag(self, _: str) -> None:
        self._tag = ""

    def getExecutorIds(self) -> Any:
        return SimpleNamespace(mkString=lambda comma: comma.join(self.hosts))

    def parallelize(self, _: range, tasks: int) -> Any:
        return SimpleNamespace(
            mapPartitionsWithIndex=lambda ask: SimpleNamespace(
                collect=lambda: self._run(ask, tasks)
            )
        )

    def _run(self, ask: partial[Iterator[str]], tasks: int) -> list[str]:
        free = sorted(set(self.hosts) - self.busy, reverse=True)
        self.asked.append([free[index % len(free)] for index in range(tasks)])
        [probe] = ask.args
        assert Path(probe).parent == self._folder
        return [
            next(
                ask.func(f"{probe}-elsewhere" if executor in self.other_disk else probe, index, [])
            )
            for index, executor in enumerate(self.asked[-1])
        ]

    def listenerBus(self) -> Any:
        return SimpleNamespace(waitUntilEmpty=lambda: None)

    def statusTracker(self) -> Any:
        stages = SimpleNamespace(get=lambda: SimpleNamespace(stageIds=lambda: [5]))
        return SimpleNamespace(
            getJobIdsForTag=lambda tag: [3] if tag.startswith(".probe-") else [],
            getJobInfo={3: stages}.get,
        )

    def statusStore(self) -> Any:
        left = [
            self._task(index, executor, "SUCCESS") for index, executor in enumerate(self.asked[-1])
        ]
        left.insert(0, self._task(0, "gone", "FAILED"))
        iterator = SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop())
        return SimpleNamespace(taskList=lambda *_: SimpleNamespace(iterator=lambda: iterator))

    def _task(self, index: int, executor: str, status: str) -> Any:
        host = self.hosts.get(executor, "nowhere")
        return SimpleNamespace(
            index=lambda: index,
            executorId=lambda: executor,
            host=lambda: host,
            status=lambda: status,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "spark", {"0": "first", "1": "second"})


@pytest.fixture
def shared(tmp_path: Path, cluster: Cluster) -> SharedFolder:
    context: Any = cluster
    return SharedFolder("orders", context, tmp_path / "spark")


def test_each_executor_is_asked_once_and_the_folder_is_left_empty(
    tmp_path: Path, cluster: Cluster, shared: SharedFolder
) -> None:
    shared.check()
    shared.check()
    assert [sorted(asked) for asked in cluster.asked] == [["0", "1"]]
    cluster.hosts["2"] = "third"
    shared.check()
    shared.check()
    assert len(cluster.asked) == 2
    assert [*(tmp_path / "spark").iterdir()] == []


def test_an_executor_without_a_free_slot_is_asked_the_next_time(
    cluster: Cluster, shared: SharedFolder
) -> None:
    cluster.busy = {"1"}
    shared.check()
    cluster.busy, cluster.other_disk = set(), {"1"}
    with pytest.raises(PreflightError, match="second"):
        shared.check()


def test_the_machine_with_another_disk_is_named_each_time_and_the_probe_goes(
    tmp_path: Path, cluster: Cluster, shared: SharedFolder
) -> None:
    cluster.other_disk = {"1"}
    for _ in range(2):
        with pytest.raises(PreflightError) as caught:
            shared.check()
        assert "(second: FileNotFoundError: No such file or directory)" in str(caught.value)
        assert f"below {tmp_path}/spark, but not every executor" in str(caught.value)
    assert [*(tmp_path / "spark").iterdir()] == []


class Micro:
    """A micro-batch of two sinks, whose Spark jobs only say that they would run; and what is done
    for it, in its order.

    Args:
        path: Spark's folder.
        patch: takes Spark's jobs out of the handler.
        has_state: whether the folder has state by now.
        keeps_state: whether the plan is known to keep some.
    """

    def __init__(
        self, path: Path, patch: pytest.MonkeyPatch, *, has_state: bool, keeps_state: bool
    ) -> None:
        self.done: list[str] = []
        shared: Any = SimpleNamespace(check=lambda: self.done.append("asked"))
        self.shared = shared
        patch.setattr(
            batch,
            "SparkJobs",
            lambda *_: SimpleNamespace(run=lambda jobs, *_: self.done.extend(jobs)),
        )
        patch.setattr(logical_plan, "is_empty", lambda _: False)
        coordinator: Any = SimpleNamespace(
            generation=2,
            context=SimpleNamespace(observers=mock.MagicMock()),
            options=JobOptions.parse({"checkpointLocation": str(path)}, "job"),
            decided_sinks=lambda _: {},
        )
        folder: Any = SimpleNamespace(
            path=path,
            has_state=has_state,
            offsets=lambda _: None,
            sync=lambda _: self.done.append("synced"),
        )
        sinks: Any = {name: mock.MagicMock() for name in ("facts", "lake")}
        plan = Plan(stateful=True, keeps_state=keeps_state)
        new_batch = partial(batch.SparkBatch, coordinator, sinks, folder, shared, plan)
        self._handler = batch.ForeachBatch(new_batch, _written, threading.Event())

    def run(self) -> None:
        self._handler(mock.MagicMock(), 5)


def _written(number: int, micro: MicroBatch) -> None:
    """As the engine handles a new micro-batch."""
    micro.begin(None)
    micro.pre_commit(
        mock.MagicMock(checkpoint=number, decided={}, missing=lambda: ["facts", "lake"])
    )


def test_executors_are_asked_when_the_tasks_with_state_have_run_and_no_sink_has_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    micro = Micro(tmp_path, monkeypatch, has_state=True, keeps_state=True)
    micro.run()
    assert micro.done == ["materialise", "asked", "facts", "lake", "synced"]

    def refuse() -> None:
        raise PreflightError("One does not share it.")

    micro.done.clear()
    micro.shared.check = refuse
    with pytest.raises(PreflightError):
        micro.run()
    assert micro.done == ["materialise"]


def test_a_plan_that_is_not_known_to_keep_state_has_no_digests_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join with a static table, say."""
    micro = Micro(tmp_path, monkeypatch, has_state=False, keeps_state=False)
    micro.run()
    assert micro.done == ["materialise", "facts", "lake", "synced"]
    assert [*tmp_path.iterdir()] == []


PLANS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], bool]] = {
    "rows as they are": (lambda rows, _: rows.where("id > 1"), False),
    "a static table is joined": (lambda rows, static: rows.join(static, "id"), False),
    "a static table is aggregated and joined": (
        lambda rows, static: rows.join(static.groupBy("id").count(), "id"),
        False,
    ),
    "a watermark": (
        lambda rows, _: rows.select(functions.timestamp_millis("id").alias("at")).withWatermark(
            "at", "1 second"
        ),
        False,
    ),
    "a shuffle": (lambda rows, _: rows.repartition(2), False),
    "groups": (lambda rows, _: rows.groupBy("id").count(), True),
    "distinct rows": (lambda rows, _: rows.distinct(), True),
    "no duplicates": (lambda rows, _: rows.dropDuplicates(["id"]).where("id > 1"), True),
    "rows of a static table": (lambda rows, static: rows.intersect(static), True),
    "rows of no static table": (lambda rows, static: rows.subtract(static), True),
    "the first rows": (lambda rows, _: rows.limit(2), True),
    "a join of two streams": (
        lambda rows, _: rows.join(rows.withColumnRenamed("id", "other"), rows.id > 1),
        True,
    ),
    "a union with groups": (
        lambda rows, _: rows.union(rows.groupBy("id").count().select("id")),
        True,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_keeps_state_is_known(spark: SparkSession, tmp_path: Path, name: str) -> None:
    build, keeps_state = PLANS[name]
    rows = spark.readStream.schema("id long").json(f"file://{tmp_path}")
    assert (
        logical_plan.keeps_state(logical_plan.analyzed(build(rows, spark.range(3)))) is keeps_state
    )


def test_recovery_comes_before_the_question(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided checkpoints are committed, and orphans give their locks back, whatever the folder."""
    found: list[int] = []

    def refuse(_: SharedFolder) -> None:
        found.append(JobLog(LocalStorage(tmp_path / "job"), "orders").read().generation)
        raise PreflightError("One does not share it.")

    monkeypatch.setattr(SharedFolder, "check", refuse)
    (tmp_path / "input").mkdir()
    read = spark.readStream.schema("id long").json(f"file://{tmp_path}/input")
    rows = read.dropDuplicates(["id"])
    writer = write_stream(rows, name="orders").sink("facts", FolderSink(tmp_path / "facts"))
    with pytest.raises(PreflightError):
        writer.option("checkpointLocation", str(tmp_path / "job")).start()
    assert found == [1]

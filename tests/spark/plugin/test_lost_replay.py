"""A committed micro-batch of `write_stream` runs once more for its watermark, and its
records are gone (H62).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pyspark import TaskContext

from tests.spark.plugin.plugin_world import World
from twophase.engine.host import Plan
from twophase.errors import (
    OffsetOutOfRangeError,
    PartitionVanishedError,
    RangeChangedError,
    ReplayLostError,
    SourceLossError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.kafka_client.partitions import Topic
from twophase.sources.kafka.loss import check_topic
from twophase.sources.kafka.offsets import PartitionOffset
from twophase.spark.batch import spark_jobs
from twophase.spark.batch.batch import SparkBatch
from twophase.spark.folder.spark_folder import SparkFolder

GONE = [
    OffsetOutOfRangeError("gone.", remedy="raise it"),
    RangeChangedError("others.", remedy="delete it"),
]


class Replay:
    """A committed micro-batch with state, of two sources, and the handler that
    Spark calls for it.
    """

    def __init__(self, world: World) -> None:
        world.freeze(0)
        path = world.folder / "offsets" / "0"
        lines = [
            json.dumps(
                {
                    "version": 1,
                    "source": source,
                    "partitions": [{**ENTRY.__dict__, "topic": source}],
                    "begin": None,
                    "released": [],
                }
            )
            for source in ("shop", "web")
        ]
        path.write_text(path.read_text().replace('{"next": 10}', "\n".join(lines)))
        world.run(0)
        self.note = world.folder / "commits" / "0"
        self.note.unlink()
        self.state = world.folder / "state" / "0" / "0" / "1.delta"
        self.state.parent.mkdir(parents=True)
        self.state.write_bytes(b"changes")
        described = {
            "operatorInfo": {"operatorName": "dedupe"},
            "stateStoreInfo": [{"storeName": "default", "numPartitions": 1}],
        }
        (world.folder / "state" / "0" / "_metadata").mkdir()
        (world.folder / "state" / "0" / "_metadata" / "metadata").write_text(
            f"v1\n{json.dumps(described)}"
        )
        self._world = world

    def batch_of(self, frame: Any) -> SparkBatch:
        """What Spark runs again."""
        history = self._world.history()
        assert history.lineage is not None
        newest = history.newest(history.lineage.id)
        coordinator: Any = SimpleNamespace(newest=lambda: newest)
        shared: Any = None
        folder = SparkFolder(self._world.folder, history.lineage)
        plan = Plan(stateful=True, keeps_state=True)
        return SparkBatch(coordinator, {}, folder, shared, plan, frame, 0)

    def fails_for(self, loss: SourceLossError) -> TwoPhaseError:
        return self.batch_of(mock.MagicMock())._without_records(loss)


ENTRY = PartitionOffset("t", "id-1", 0, 100, 0)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replay:
    return Replay(World(tmp_path, monkeypatch))


@pytest.mark.parametrize("loss", GONE)
def test_it_is_noted_and_the_job_goes_on(replay: Replay, loss: SourceLossError) -> None:
    assert isinstance(replay.fails_for(loss), ReplayLostError)
    assert replay.note.exists()


@pytest.mark.parametrize("loss", GONE)
def test_without_its_state_each_source_is_named_with_its_offsets(
    replay: Replay, loss: SourceLossError
) -> None:
    replay.state.rename(replay.state.with_name("1_ab12.delta"))
    error = replay.fails_for(loss)
    assert type(error) is type(loss)
    for source in ("shop", "web"):
        assert f'startingOffsets={{"{source}": {{"0": 100}}}}` of source {source!r}' in error.remedy
    assert not replay.note.exists()


def test_what_has_no_name_of_its_own_is_noted_too_or_told_as_it_is(replay: Replay) -> None:
    loss = SourceLossError("a file is gone.", remedy="restore it.")
    replay.state.rename(replay.state.with_name("1_ab12.delta"))
    error = replay.fails_for(loss)
    assert (type(error), error.remedy) == (SourceLossError, loss.remedy)
    assert not replay.note.exists()
    replay.state.write_bytes(b"changes")
    assert isinstance(replay.fails_for(loss), ReplayLostError)
    assert replay.note.exists()


@pytest.mark.parametrize("state_exists", [True, False])
@pytest.mark.parametrize(
    ("topic", "kind"),
    [(Topic("id-2", {0: 0}), TopicRecreatedError), (None, PartitionVanishedError)],
)
def test_a_topic_that_is_gone_stops_the_job_and_no_offset_of_it_is_advised(
    replay: Replay, topic: Topic | None, kind: type[SourceLossError], state_exists: bool
) -> None:
    if not state_exists:
        replay.state.unlink()
    with pytest.raises(kind) as raised:
        check_topic("shop", ENTRY, topic)
    error = replay.fails_for(raised.value)
    assert (type(error), error.remedy) == (kind, raised.value.remedy)
    assert "Checkpoint 0 is committed in every sink" in str(error)
    assert "No data is lost" not in str(error)
    assert replay.note.exists() is state_exists


@contextmanager
def in_task_of(tag: str) -> Iterator[None]:
    """This process runs a task of the Spark job with a tag."""
    context: Any = TaskContext()
    context._localProperties = {"spark.job.tags": f"another,{tag}"}
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._taskContext = None


class Tasks:
    """Spark, in which a task of the replay goes on for a while after the first has failed."""

    def __init__(self, replay: Replay, loss: type[SourceLossError]) -> None:
        self._loss = loss
        self._active = self._late(replay)
        self.cancelled: list[str] = []
        conf = SimpleNamespace(get=lambda *_: "1")
        self.sparkSession = SimpleNamespace(sparkContext=self, conf=conf)
        self.write = self
        self.addJobTag = self.cancelJobsWithTag = self.cancelled.append
        found = SimpleNamespace(numActiveTasks=lambda: next(self._active), stageIds=lambda: [7])
        option = SimpleNamespace(isDefined=lambda: True, get=lambda: found)
        tracker = SimpleNamespace(
            getJobIdsForTag=lambda _: [3],
            getJobInfo=lambda _: option,
            getStageInfo=lambda _: option,
        )
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))

    def _late(self, replay: Replay) -> Iterator[int]:
        for _ in range(2):
            assert not replay.note.exists()
            replay.state.write_bytes(b"")
            yield 1
        replay.state.write_bytes(b"changes")
        while True:
            yield 0

    def format(self, _: str) -> Tasks:
        return self

    mode = format

    def save(self) -> None:
        [tag] = self.cancelled
        with in_task_of(tag):
            loss = self._loss("gone.")
        raise RuntimeError("".join(traceback.format_exception(loss)))


@pytest.mark.usefixtures("worker")
def test_it_is_noted_when_none_of_its_tasks_runs_any_more(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late task would write over state that the note relies on, and nobody would sync it."""
    monkeypatch.setattr(spark_jobs, "_POLL_S", 0)
    tasks: Any = Tasks(replay, OffsetOutOfRangeError)
    with pytest.raises(ReplayLostError):
        replay.batch_of(tasks).execute()
    assert len(tasks.cancelled) == 2
    assert next(tasks._active) == 0
    assert replay.note.exists()

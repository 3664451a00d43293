"""The release of a topic: its record, and the micro-batch that a start plans by it. Spark's folder
is written here; the cluster lives in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import Driver, completed_of, dying, restoring
from tests.operations.repair.test_adopt import Another
from tests.operations.repair.test_adopt_ahead import AHEAD
from tests.sources.conftest import memory
from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from twophase.contract.source import SourceLeg
from twophase.coordinator.commit.context import JobContext
from twophase.errors import StopJobError
from twophase.events import Observers
from twophase.ids import Attempt
from twophase.internals import failpoints
from twophase.internals.clock import SystemClock
from twophase.internals.failpoints import FailpointError
from twophase.operations.repair.release import ReleaseRepair
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark.folder.planned_release import plan_release
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.checkpoints.releases import released
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import (
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Note,
    Release,
    SinkDecision,
)

__all__ = ["memory"]

A, B = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "ab")
NOTE = Note("ann@host", 1_700_000_000_000, "the shop is closed")
LEG = SourceLeg("twophase-kafka", {"kafka.bootstrap.servers": "h:1", "subscribe": "old,new"})
RATE = '{"rate":7}'
"""The offset line of a source that knows no topics."""


def line(old: int, new: int) -> str:
    found = [
        PartitionOffset(topic, f"id-{topic}", 0, at) for topic, at in (("old", old), ("new", new))
    ]
    return SourceOffset.of("kafka", found).to_line()


class World:
    """A job of two sources and no sink whose checkpoint 1 is committed; Spark has planned 2."""

    def __init__(self, root: Path, cluster: MemoryCluster) -> None:
        cluster.logs = {"new": ("id-new", [Log(0, 9)])}
        self.cluster = cluster
        self.storage = LocalStorage(root)
        self.context = JobContext(
            "orders",
            self.storage,
            {},
            JobOptions.parse({"checkpointLocation": str(root)}, "job"),
            Observers(),
            SystemClock(),
        )
        log = self.context.log
        log.read()
        log.append(FenceRecord(1))
        log.append(Lineage(A))
        for number in (0, 1):
            log.append(Decision(A, number, Attempt(1, number + 1), "", ""))
            log.append(CommittedRecord(A, number))
        self.folder = SparkFolder(root / "spark" / A, Lineage(A))
        self.plan(1, line(5, 3))
        self.finish(1)
        self.repairing = ReleaseRepair(
            self.context, [LEG], lambda lineage: root / "spark" / lineage
        )

    def plan(self, number: int, text: str, watermark: int = 40) -> None:
        header = f'{{"batchWatermarkMs":{watermark},"batchTimestampMs":50,"conf":{{"a":"b"}}}}'
        self._write(f"offsets/{number}", f"v1\n{header}\n{RATE}\n{text}")

    def finish(self, number: int) -> None:
        self._write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":60}')

    def _write(self, name: str, text: str) -> None:
        path = self.folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def release(self) -> None:
        self.repairing.release(self.repairing.plan(["old"]), NOTE)

    def start(self) -> None:
        """What a start does before Spark reads its folder."""
        plan_release(self.folder, Lineage(A), self.context.log.read(), 70)

    def planned(self, number: int) -> tuple[dict[str, object], dict[str, int], dict[str, int]]:
        """What Spark notes with a micro-batch, where it ends, and what was left where."""
        text = (self.folder.path / "offsets" / str(number)).read_text().split("\n")
        offset = SourceOffset.parse(text[3])
        assert text[2] == RATE
        ends, left = (
            {one.topic: one.offset for one in listed or ()}
            for listed in (offset.partitions, offset.released)
        )
        return json.loads(text[1]), ends, left


@pytest.fixture
def world(tmp_path: Path, memory: MemoryCluster) -> World:
    return World(tmp_path, memory)


def test_the_plan_writes_nothing_and_the_record_has_all_fields(world: World) -> None:
    before = world.context.log.read()
    plan = world.repairing.plan(["old"])
    assert (plan.lineage, plan.checkpoint, len(plan.lost)) == (A, 1, 1)
    assert world.context.log.read() == before
    world.repairing.release(plan, NOTE)
    history = world.context.log.read()
    assert history.repairs == (Release(NOTE, A, 1, plan.parts),)
    assert (history.generation, history.lineages) == (2, before.lineages)


def test_the_next_micro_batch_is_planned_with_the_watermark_of_the_last(world: World) -> None:
    world.release()
    for _ in range(2):
        world.start()
        header, ends, left = world.planned(2)
        assert header == {"batchWatermarkMs": 60, "batchTimestampMs": 70, "conf": {"a": "b"}}
        assert (ends, left) == ({"new": 3}, {"old": 5})


def test_one_that_spark_has_planned_keeps_all_but_the_topic(world: World) -> None:
    world.plan(2, line(9, 8), watermark=55)
    checksum = world.folder.path / "offsets" / ".2.crc"
    checksum.touch()
    world.release()
    world.start()
    header, ends, left = world.planned(2)
    assert header["batchWatermarkMs"] == 55
    assert (ends, left) == ({"new": 8}, {"old": 5})
    assert not checksum.exists(), "Spark would compare ours with it"


def test_nothing_is_planned_while_spark_has_to_run_the_last_one_again(world: World) -> None:
    world.release()
    (world.folder.path / "commits/1").unlink()
    world.start()
    assert world.folder.planned() == 1
    world.finish(1)
    world.start()
    assert world.planned(2)[2] == {"old": 5}


def test_once_it_is_decided_the_release_is_carried_out(world: World) -> None:
    world.release()
    log = world.context.log
    log.append(Decision(A, 2, Attempt(2, 1), "", ""))
    world.plan(2, line(5, 4))
    world.finish(2)
    world.start()
    assert world.folder.planned() == 2, "it came back, say, and nobody has released that"


@pytest.mark.parametrize(
    ("begins", "position", "is_released"),
    [
        ({A: 1}, 5, True),
        ({A: 0}, 5, True),
        ({A: 0}, 4, False),
        ({A: 2}, 5, False),
        ({B: 1}, 5, False),
        ({}, 5, False),
    ],
    ids=["the same", "older, as far", "older, and behind", "newer", "of another job", "a fork"],
)
def test_a_restore_begins_without_what_it_does_not_need(
    world: World, begins: dict[str, int], position: int, is_released: bool
) -> None:
    world.release()
    lines = (RATE, None, line(position, 3))
    found = released(world.context.log.read(), begins, lines, lines)
    assert found[:2] == (RATE, None)
    assert bool(SourceOffset.parse(found[2] or "").released) is is_released


def test_a_repair_that_dies_is_run_again_or_has_been_carried_out(world: World) -> None:
    for point, recorded in (("R01", 0), ("R03", 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
            patch.setattr(failpoints, "_hits", {})
            with pytest.raises(FailpointError):
                world.release()
        assert len(world.context.log.read().repairs) == recorded
    world.release()
    world.start()
    assert world.planned(2)[2] == {"old": 5}


def gone_back(world: World) -> None:
    world.cluster.logs["old"] = ("id-old", [Log(0, 9)])


def read_on(world: World) -> None:
    world.context.log.append(Decision(A, 2, Attempt(1, 3), "", ""))
    world.plan(2, line(5, 9))


def ahead(world: World) -> None:
    world.context.log.append(SinkDecision(A, 2, "lake", Attempt(1, 3), "", (), (), ()))


@pytest.mark.parametrize(
    ("happens", "what"),
    [
        (gone_back, "there is nothing to give up"),
        (read_on, "has changed since the plan was shown"),
        (ahead, "sink 'lake' has checkpoint 2 ahead of the others"),
    ],
)
def test_nothing_is_given_up_if_it_is_not_as_shown(
    world: World, happens: Callable[[World], None], what: str
) -> None:
    plan = world.repairing.plan(["old"])
    happens(world)
    before = world.context.log.read()
    with pytest.raises(StopJobError, match=what):
        world.repairing.release(plan, NOTE)
    assert world.context.log.read() == before


def test_what_has_changed_while_the_operator_thought_is_shown_and_released(world: World) -> None:
    plan = world.repairing.plan(["old"])
    read_on(world)
    with pytest.raises(StopJobError, match="has changed since the plan was shown") as caught:
        world.repairing.release(plan, NOTE)
    assert caught.value.remedy.endswith("then run the command again.")
    world.release()
    world.finish(2)
    world.start()
    assert world.planned(3)[1:] == ({"new": 9}, {"old": 5})


@pytest.mark.parametrize("can_read", [True, False])
def test_a_sink_that_is_ahead_is_caught_up_with_or_taken_back_before_the_release(
    driver: Driver, another: Another, folder: Path, memory: MemoryCluster, can_read: bool
) -> None:
    """The other sink is written if the records are still there; otherwise the newest checkpoint is
    restored with a rewind.
    """
    memory.logs = {"new": ("id-new", [Log(0, 9)])}
    driver.run(0)
    kept = restoring(completed_of(folder, 0), committed=True)
    dying("A02", lambda: another(options=AHEAD).recover().run(1))

    def repairing() -> ReleaseRepair:
        context = another(options=AHEAD).coordinator.context
        return ReleaseRepair(context, [LEG], lambda lineage: folder / "spark" / lineage)

    with pytest.raises(StopJobError, match="'facts' has checkpoint 1 ahead of the others"):
        repairing().plan(["old"])
    started = another(options=AHEAD)
    if can_read:
        started.recover().run(1)
    else:
        rewind = replace(kept, sink_ahead=SinkAhead.REWIND)
        started.coordinator.recover(None, rewind)
        started.coordinator.begin_lineage(rewind.lineage)
    offsets = folder / "spark" / started.coordinator.lineage.id / "offsets"
    offsets.mkdir(parents=True)
    number = 1 if can_read else 0
    (offsets / str(number)).write_text(f"v1\n{{}}\n{line(5, 3)}")
    plan = repairing().plan(["old"])
    assert (plan.checkpoint, len(plan.lost)) == (number, 1)
    repairing().release(plan, NOTE)
    restarted = another(options=AHEAD).recover()
    [release] = restarted.coordinator.context.log.read().repairs
    assert isinstance(release, Release)


def test_a_topic_is_released_when_the_job_file_has_the_source_that_read_it(world: World) -> None:
    """The one that I gave had another uid, so nothing of it was known as read."""
    other = replace(LEG, options={**LEG.options, "uid": "another"})
    with pytest.raises(StopJobError, match="read nothing of old that is missing") as caught:
        ReleaseRepair(world.context, [other], world.repairing._folder).plan(["old"])
    assert "give the job file the job's sources, with their uids" in caught.value.remedy
    world.release()
    world.start()
    assert world.planned(2)[2] == {"old": 5}


def test_what_is_unread_of_a_topic_may_grow_while_the_operator_thinks(world: World) -> None:
    world.cluster.logs["old"] = ("id-old", [Log(0, 9)])
    leg = replace(LEG, options=dict(LEG.options) | {"subscribe": "new"})
    repairing = ReleaseRepair(world.context, [leg], world.repairing._folder)
    plan = repairing.plan(["old"])
    assert "offsets 5 to 8: 4 records are not read" in plan.lost[0]
    world.cluster.logs["old"][1][0].end = 20
    repairing.release(plan, NOTE)


@pytest.mark.parametrize("topics", [["new"], ["unheard-of"], ["old", "unheard-of"]])
def test_a_topic_that_is_not_missing_is_not_released(world: World, topics: list[str]) -> None:
    with pytest.raises(StopJobError, match=f"read nothing of {topics[-1]} that is") as raised:
        world.repairing.plan(topics)
    assert "start the job" in raised.value.remedy
    assert "failOnDataLoss" in raised.value.remedy


def test_a_job_that_has_begun_nothing_has_nothing_to_give_up(
    tmp_path: Path, memory: MemoryCluster
) -> None:
    world = World(tmp_path / "one", memory)
    storage = LocalStorage(tmp_path / "two")
    context = JobContext("orders", storage, {}, world.context.options, Observers(), SystemClock())
    with pytest.raises(StopJobError, match="there is nothing to give up"):
        ReleaseRepair(context, [LEG], lambda one: storage.root / "spark" / one).plan(["old"])

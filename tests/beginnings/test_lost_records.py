"""What a source has lost is another matter for a rewind than for a job that has not read it.

The rows of what a rewind would take back are in the targets: advice that leads a running job on,
to begin another one behind what is gone, would write them twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import NOTE
from harness.savepoint_world import STEP, killed, older, restoring
from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from tests.sources.test_spark_files import FileHarness
from twophase.contract.source import Source, SourceLeg
from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    PreflightError,
    RangeChangedError,
    RestoreRefusedError,
    SourceLossError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.sources.kafka import KafkaSource, cluster
from twophase.sources.kafka.engines import close_clusters, planner_of
from twophase.sources.kafka.offsets import Limits, PartitionOffset, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.spark_kafka import SparkKafkaSource
from twophase.spark.plan import operator_states

pytestmark = pytest.mark.part("runtime")

READ, KEPT = 4 * STEP, 2 * STEP
"""How many numbers the job has read, and how many of them the savepoint has."""
PROVE = {"restore.allow_unproven_sources": "false"}
OF_A_RUNNING_JOB = ("another job", "startingOffsets", "release-topic", "failOnDataLoss")


class Numbers(Source):
    """The numbers of a world come from another source, which says whether it still has them.

    Args:
        source: that source.
        leg: of it.
        line: returns its offset line after so many numbers.
        log: of Spark, for a source that has one.
    """

    def __init__(
        self, source: Source, leg: SourceLeg, line: Callable[[int], str], log: Path | None = None
    ) -> None:
        self.source, self.leg, self.line, self.log = source, leg, line, log

    def owns(self, line: str) -> bool:
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        return self.source.check_readable(self.leg, self.line(json.loads(line)["next"]), self.log)


@dataclass
class Kafka:
    """A cluster with one partition, which a job has read to its end.

    Attributes:
        cluster: it.
        leg: the source as the job has it.
    """

    cluster: MemoryCluster
    leg: SourceLeg = field(
        default_factory=lambda: SourceLeg(
            "twophase-kafka", {"kafka.bootstrap.servers": "memory:1", "subscribe": "orders"}
        )
    )

    @property
    def log(self) -> Log:
        return self.cluster.logs["orders"][1][0]

    @staticmethod
    def line(number: int) -> str:
        return SourceOffset.of(
            "kafka", [PartitionOffset("orders", "id-1", 0, number, leader_epoch=0)]
        ).to_line()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    made = MemoryCluster({"orders": ("id-1", [Log(end=READ)])})
    monkeypatch.setattr(cluster, "Cluster", lambda *_: made)
    yield Kafka(made)
    close_clusters()


def expire(kafka: Kafka) -> None:
    kafka.log.begin = READ - 1


def truncate(kafka: Kafka) -> None:
    kafka.log.end = 1


def truncate_and_grow(kafka: Kafka) -> None:
    kafka.log.epoch, kafka.log.epoch_ends = 1, {0: 1}


def recreate(kafka: Kafka) -> None:
    kafka.cluster.logs["orders"] = ("id-2", [Log(end=READ)])


def delete(kafka: Kafka) -> None:
    del kafka.cluster.logs["orders"]


def shrink(kafka: Kafka) -> None:
    kafka.cluster.logs["orders"][1].clear()


def leave(kafka: Kafka) -> None:
    """The next start has other options."""
    kafka.leg = SourceLeg(kafka.leg.name, {**kafka.leg.options, "subscribe": "payments"})


def grow_and_expire(kafka: Kafka) -> None:
    kafka.cluster.logs["orders"][1].append(Log(begin=3, end=8))


def compact(kafka: Kafka) -> None:
    kafka.cluster.policies["orders"] = "compact"


def hide(kafka: Kafka) -> None:
    kafka.cluster.policies["orders"] = None


LOST: dict[Callable[[Kafka], None], type[TwoPhaseError]] = {
    expire: OffsetOutOfRangeError,
    truncate: OffsetOutOfRangeError,
    truncate_and_grow: OffsetOutOfRangeError,
    grow_and_expire: OffsetOutOfRangeError,
    recreate: TopicRecreatedError,
    delete: PartitionVanishedError,
    shrink: PartitionVanishedError,
    leave: ConfigError,
    compact: RestoreRefusedError,
    hide: RestoreRefusedError,
}
IN_SPARK_S = (expire, truncate, grow_and_expire, delete, shrink, leave, compact, hide)
"""What Spark's own Kafka source can notice: its offsets have neither ids nor epochs."""


class Says(Source):
    """A source of somebody else, that says what is wrong.

    Args:
        error: its answer.
    """

    def __init__(self, error: type[TwoPhaseError]) -> None:
        self.error = error

    def owns(self, line: str) -> bool:
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        raise self.error("That is gone.", remedy="bring it back.")


ELSE = [RangeChangedError, SourceLossError, CorruptRecordError, PreflightError, ConfigError]


def of_kafka(kafka: Kafka, lose: Callable[[Kafka], None]) -> Source:
    lose(kafka)
    return Numbers(KafkaSource(), kafka.leg, kafka.line)


def of_spark(kafka: Kafka, lose: Callable[[Kafka], None]) -> Source:
    lose(kafka)
    leg = SourceLeg("kafka", kafka.leg.options)
    return Numbers(SparkKafkaSource(), leg, lambda number: json.dumps({"orders": {"0": number}}))


def of_files(root: Path) -> Source:
    """A file for each number, of which the last one is gone."""
    made = FileHarness(root)
    lines = [made.append() for _ in range(READ)]
    made.path(READ - 1).unlink()
    return Numbers(made.source, made.leg, lambda number: lines[number - 1], made.log)


@dataclass
class Worlds:
    """A job that is ahead of a savepoint, and one whose rewind to it has begun and died."""

    ahead: BeginningWorld
    begun: BeginningWorld
    path: dict[BeginningWorld, Path]

    def refusals(self, error: type[TwoPhaseError]) -> Iterator[tuple[bool, TwoPhaseError]]:
        """Yield what each start says that rewinds, and whether a rewind has begun before."""
        moved = {"facts": "facts2", "lake": "lake2"}  # nothing has to be taken back
        for world, folder, folders in (
            (self.ahead, "job", {}),
            (self.ahead, "again", {}),
            (self.ahead, "elsewhere", moved),
            (self.begun, "job", {}),
        ):
            if folders and error is RestoreRefusedError:
                continue  # nothing has to be proven
            world.folders = dict(folders)
            with refused(world.root) as caught:
                world.drive(5, folder, **restoring(self.path[world], "rewind"), **PROVE)
            world.folders = {}
            assert caught.type is error
            yield world is self.begun, caught.value


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    ahead, begun = (BeginningWorld(tmp_path_factory.mktemp(name)) for name in ("ahead", "begun"))
    paths = {world: older(world) for world in (ahead, begun)}
    assert killed("S12", lambda: begun.drive(5, **restoring(paths[begun], "rewind")))
    return Worlds(ahead, begun, paths)


def check(
    worlds: Worlds,
    source: Source,
    error: type[TwoPhaseError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check what each rewind says about a source, and that it writes nothing."""
    monkeypatch.setattr(operator_states, "source_of", lambda _: source)
    for begun, found in worlds.refusals(error):
        assert [word for word in OF_A_RUNNING_JOB if word in found.remedy] == []
        assert "before they could be read" not in found.what
        assert ("twophase repair abandon-rewind JOB.yaml" in found.remedy) is begun
        refuses = "start without restore.path in the job's own folder" in found.remedy
        assert refuses is not begun
        assert ("a newer checkpoint or savepoint" in found.remedy) is not begun
        assert ("Nothing was taken back." in found.what) is not begun


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
def test_what_kafka_has_lost(
    worlds: Worlds,
    kafka: Kafka,
    lose: Callable[[Kafka], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(worlds, of_kafka(kafka, lose), LOST[lose], monkeypatch)


@pytest.mark.parametrize("lose", IN_SPARK_S, ids=lambda lose: lose.__name__)
def test_what_spark_s_kafka_source_has_lost(
    worlds: Worlds,
    kafka: Kafka,
    lose: Callable[[Kafka], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(worlds, of_spark(kafka, lose), LOST[lose], monkeypatch)


def test_files_that_are_gone(
    worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(worlds, of_files(tmp_path), SourceLossError, monkeypatch)


@pytest.mark.parametrize("error", ELSE)
def test_what_any_other_source_says(
    worlds: Worlds, error: type[TwoPhaseError], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(worlds, Says(error), error, monkeypatch)


@pytest.mark.parametrize(
    "lose", [lose for lose in LOST if lose not in (compact, hide)], ids=lambda lose: lose.__name__
)
def test_a_running_job_that_has_not_read_them_is_told_how_to_go_on_without_them(
    kafka: Kafka, lose: Callable[[Kafka], None]
) -> None:
    """That is safe there: no target has a row of what is gone."""
    lose(kafka)
    kafka.cluster.logs.setdefault("payments", ("id-3", [Log()]))
    with pytest.raises(LOST[lose]) as caught:
        planner_of(KafkaOptions.parse(kafka.leg.options)).latest(
            SourceOffset.parse(kafka.line(KEPT)), Limits()
        )
    is_of_offsets = LOST[lose] is OffsetOutOfRangeError
    assert ("begin another job" in caught.value.remedy) is is_of_offsets
    assert ("repair release-topic" in caught.value.remedy) is not is_of_offsets


def test_what_the_refusals_say_leads_on(
    tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I start without the rewind. I give up one that has begun."""
    world = BeginningWorld(tmp_path)
    path, source = older(world), of_kafka(kafka, expire)
    with monkeypatch.context() as patch:
        patch.setattr(operator_states, "source_of", lambda _: source)
        with refused(world.root):
            world.drive(5, "again", **restoring(path, "rewind"), **PROVE)
        world.drive(5)
        world.is_exact("job", 5)
    assert killed("S12", lambda: world.drive(6, **restoring(path, "rewind")))
    left = world.ids()
    monkeypatch.setattr(operator_states, "source_of", lambda _: source)
    with refused(world.root):
        world.drive(6, **restoring(path, "rewind"), **PROVE)
    repair = RewindRepair(world.context("job"), world.declared)
    repair.abandon(repair.plan(), NOTE)
    world.drive(6)
    assert world.ids() == [[*ids, *range(5 * STEP, 6 * STEP)] for ids in left]


def test_a_restore_that_takes_nothing_back_begins_where_no_target_has_a_later_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nobody asks the source, and what leads on from there, another job, repeats no row."""
    world = BeginningWorld(tmp_path)
    path = older(world)
    monkeypatch.setattr(operator_states, "source_of", lambda _: Says(SourceLossError))
    with refused(world.root) as caught:
        world.drive(5, "again", **restoring(path, "refuse"), **PROVE)
    assert caught.type is RestoreRefusedError
    world.folders = {"facts": "facts2", "lake": "lake2"}
    world.drive(5, "again", **restoring(path, "refuse"), **PROVE)
    assert world.ids() == [[*range(KEPT, 5 * STEP)]] * 2

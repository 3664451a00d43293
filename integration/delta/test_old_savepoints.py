"""An older savepoint while Delta and Hive tables are ahead of it: refused, rewound or forked, also
after a driver that died on the way.

As `integration/without_spark/test_old_savepoints.py` for files and databases. These tables need
Spark, which a test shares with its drivers, so a driver dies of an error here. Kills of such sinks
in a rewind are in `test_rewind.py` and `integration/hive/test_rewind.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from harness.memory_driver import Driver, offsets, rows
from harness.savepoint_world import STEP, World, older, restoring
from integration.delta.sink_harness import DeltaHarness
from integration.hive.sink_harness import HiveHarness
from twophase.contract.sink import OpenBatchSink, Sink, SinkContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import RestoreRefusedError, StopJobError
from twophase.internals import failpoints
from twophase.operations.savepoint.make import open_savepoint
from twophase.testing.harness import fresh_name

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof, pytest.mark.timeout(1200)]

FORK = "orders-fork"
IN_REWIND = ["", "C22", "S11", "S12", "S13", "S07"]
IN_FORK = ["", "C14", "S07"]
BEFORE_THE_FENCES = ("C22",)
"""Where the original may still go on; a rewind takes back what it adds."""
TABLES = ["delta", "hive", "hive with partitions"]


class BatchDriver(Driver):
    """Its sinks take Spark's rows."""

    def write_rows(self, pending: PendingCheckpoint, first: int) -> None:
        spark = SparkSession.active()
        found = [tuple(row.values()) for row in rows(range(first, first + STEP))]
        frame = spark.createDataFrame(found, from_arrow_schema(self.schema)).repartition(2)
        for name, sink in self.sinks.items():
            assert isinstance(sink, OpenBatchSink)
            pending.acknowledge(name, sink.pre_commit(frame, pending.transaction(name)))


class TablesWorld(World):
    """Two tables of one kind."""

    schema = pa.schema([("id", pa.int64()), ("parity", pa.int64())])

    def __init__(self, root: Path, spark: SparkSession, kind: str) -> None:
        super().__init__(root)
        if kind == "delta":
            self.driver = BatchDriver
        self.tables = {name: self._table(spark, kind, name) for name in self.sinks}

    def _table(self, spark: SparkSession, kind: str, name: str) -> DeltaHarness | HiveHarness:
        if kind == "delta":
            return DeltaHarness(spark, self.root / f"{name}-table", "id BIGINT, parity BIGINT")
        by = {"partition_by": ["parity"]} if kind == "hive with partitions" else {}
        return HiveHarness(spark, self.schema, table=fresh_name(name), create=True, **by)

    def sink(self, name: str) -> Sink:  # type: ignore[override]
        return self.tables[name].new_sink()

    def numbers(self, name: str) -> list[int]:
        return [row["id"] for row in self.tables[name].rows_visible()]

    def waiting(self, name: str) -> int:
        sink = self.sink(name).open(SinkContext("orders", name, self.schema, 2))
        found = sink.in_doubt()
        sink.close()
        return len(found)


@pytest.fixture(params=TABLES)
def world(
    request: pytest.FixtureRequest,
    delta_spark: SparkSession,
    hive_spark: SparkSession,
    tmp_path: Path,
) -> World:
    return TablesWorld(tmp_path, delta_spark, request.param)


class Death(BaseException):
    """Ends a driver: no sink or coordinator takes it for an answer."""


def dies(point: str, run: Callable[[], object]) -> None:
    """A driver dies at a crash point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "FailpointError", Death)
        failpoints.arm(f"{point}=raise")
        try:
            with pytest.raises(Death):
                run()
        finally:
            failpoints.arm("")


def test_it_is_refused_by_default_and_the_checkpoints_are_named(world: World) -> None:
    path = older(world)
    before = world.ids()
    lineage = world.history().lineage
    assert lineage is not None
    named = {
        "job": f"checkpoint 2 of lineage {lineage.id} is decided and is committed",
        "again": f"committed checkpoint 3 of lineage {lineage.id}, the restore knows 1 of it",
    }
    for folder, words in named.items():
        with pytest.raises(RestoreRefusedError, match=words):
            world.drive(5, folder, **restoring(path, "refuse"))
    assert world.ids() == before
    world.drive(5)
    world.is_exact("job", 5)


@pytest.mark.parametrize("point", IN_REWIND)
def test_a_rewind_leaves_the_rows_of_the_savepoint_and_goes_on(world: World, point: str) -> None:
    path = older(world)
    if point:
        dies(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
        if point == "S13":
            assert world.ids() == [[*range(20)]] * 2
        if point not in BEFORE_THE_FENCES:
            with pytest.raises(StopJobError):
                world.drive(5)
    world.drive(5, "again", **restoring(path, "rewind"))
    world.is_exact("again", 5)
    world.drive(6, "again", **restoring(path, "rewind"))
    world.is_exact("again", 6)


@pytest.mark.parametrize("point", IN_FORK)
def test_a_fork_commits_what_is_pending_and_leaves_the_original_alone(
    world: World, point: str
) -> None:
    world.drive(1)
    dies("C11", lambda: world.drive(2))
    (world.spark() / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    assert not open_savepoint(str(path)).is_committed
    assert [world.waiting(name) > 0 for name in world.sinks] == [True, True]
    assert world.ids() == [[*range(10)]] * 2
    if point:
        dies(point, lambda: world.drive(4, "fork", FORK, **restoring(path, "fork")))
    world.drive(4, "fork", FORK, **restoring(path, "fork"))
    both = Counter(range(40))
    assert [Counter(world.numbers(name)) for name in world.sinks] == [both] * 2
    world.drive(3)
    both.update(range(20, 30))
    assert [Counter(world.numbers(name)) for name in world.sinks] == [both] * 2
    assert world.prepared() == 0


def test_a_fork_aborts_nothing_that_the_original_has_under_way(world: World) -> None:
    """The original waits between its phases, and commits behind the fork."""
    path = older(world)
    driver = world._driver("job", {"commit.backoff": "1 ms"})
    driver.coordinator.recover()

    def beside(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        world.drive(5, "fork", FORK, **restoring(path, "fork"))

    driver.coordinator.checkpoint(4, offsets(4), beside)
    wanted = Counter([*range(50), *range(20, 50)])
    assert [Counter(world.numbers(name)) for name in world.sinks] == [wanted] * 2
    assert world.prepared() == 0

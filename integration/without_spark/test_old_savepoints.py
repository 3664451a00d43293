"""An older savepoint while a real target is ahead of it: refused, rewound or forked, each with a
SIGKILL on the way.

A kind of target is a subclass of `World`. A driver is `harness.savepoint_world`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.memory_driver import JOB, SCHEMA
from harness.savepoint_world import World, killed, older, restoring
from harness.selection import representatives
from harness.staged_sink_harness import FileHarness
from integration.mysql.sink_harness import MySqlHarness, Server
from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import RestoreRefusedError, StopJobError
from twophase.operations.savepoint.make import open_savepoint
from twophase.sinks.file.sink import FileSink

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

FORK = "orders-fork"
IN_REWIND = ["", "C22", "S11", "S12", "S12@2", "S13", "S07", "C06", "C11"]
IN_FORK = ["", "C12", "C14", "C22", "S07", "C06"]
BEFORE_THE_FENCES = ("C22",)
"""Where the original may still go on; a rewind takes back what it adds."""
DDL = (
    "id BIGINT, twophase_checkpoint VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, "
    "INDEX (twophase_checkpoint)"
)


class SqlWorld(World):
    """Two tables on one server."""

    def __init__(self, root: Path, server: Server) -> None:
        super().__init__(root)
        self.tables = {
            name: MySqlHarness(server, DDL, SCHEMA, checkpoint_column="twophase_checkpoint")
            for name in self.sinks
        }

    def sink(self, name: str) -> ArrowSink:
        return self.tables[name].new_sink()

    def numbers(self, name: str) -> list[int]:
        return self.tables[name].ids()

    def waiting(self, name: str) -> int:
        sink = self.sink(name).open(SinkContext(JOB, name, SCHEMA, 2))
        found = sink.in_doubt()
        sink.close()
        return len(found)


class FilesWorld(World):
    """Two folders of parquet files."""

    def sink(self, name: str) -> FileSink:
        return FileSink(path=str(self.root / f"{name}-files"))

    def numbers(self, name: str) -> list[int]:
        return [row["id"] for row in self._harness(name).rows_visible()]

    def waiting(self, name: str) -> int:
        return len(self._harness(name).staged())

    def _harness(self, name: str) -> FileHarness:
        return FileHarness(self.root / f"{name}-files", SCHEMA)


class IcebergWorld(World):
    """Two Iceberg tables, each in a catalog of its own."""

    def sink(self, name: str) -> ArrowSink:
        return self._harness(name).new_sink()

    def numbers(self, name: str) -> list[int]:
        return [row["id"] for row in self._harness(name).rows_visible()]

    def waiting(self, name: str) -> int:
        return len(self._harness(name).staged())

    def _harness(self, name: str) -> IcebergHarness:
        return IcebergHarness(self.root / f"{name}-lake", SCHEMA)


WITHOUT_SERVERS = {"files": FilesWorld, "iceberg": IcebergWorld}


@pytest.fixture(params=["files", "iceberg", "mysql", "mariadb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param in WITHOUT_SERVERS:
        return WITHOUT_SERVERS[request.param](tmp_path)
    servers: dict[str, Server] = request.getfixturevalue("servers")
    return SqlWorld(tmp_path, servers[request.param])


def test_it_is_refused_by_default(world: World) -> None:
    path = older(world)
    for folder in ("job", "again"):
        with pytest.raises(RestoreRefusedError, match="committed"):
            world.drive(5, folder, **restoring(path, "refuse"))
    world.drive(5)
    world.is_exact("job", 5)


@pytest.mark.parametrize("point", representatives(IN_REWIND, {"", "S12"}))
def test_a_rewind_takes_back_what_is_newer(world: World, point: str) -> None:
    path = older(world)
    if point:
        assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
        if point not in BEFORE_THE_FENCES:
            with pytest.raises(StopJobError):
                world.drive(5)
    world.drive(5, "again", **restoring(path, "rewind"))
    world.is_exact("again", 5)
    world.drive(6, "again", **restoring(path, "rewind"))
    world.is_exact("again", 6)


@pytest.mark.parametrize("point", representatives(IN_FORK, {"", "C14"}))
def test_a_fork_commits_what_is_pending_and_leaves_the_original_alone(
    world: World, point: str
) -> None:
    world.drive(1)
    assert killed("C11", lambda: world.drive(2))
    (world.spark() / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    assert not open_savepoint(str(path)).is_committed
    if point:
        assert killed(point, lambda: world.drive(4, "fork", FORK, **restoring(path, "fork")))
    world.drive(4, "fork", FORK, **restoring(path, "fork"))
    both = Counter({**dict.fromkeys(range(20), 1), **dict.fromkeys(range(20, 40), 1)})
    assert [Counter(world.numbers(name)) for name in world.sinks] == [both] * 2
    world.drive(3)
    both.update(range(20, 30))
    assert [Counter(world.numbers(name)) for name in world.sinks] == [both] * 2
    assert world.prepared() == 0

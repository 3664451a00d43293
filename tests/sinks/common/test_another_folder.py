"""A driver whose folder lacks a decision aborts its pieces, which another driver commits: nothing
is deleted, and with the folder that has the decision the job goes on.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.memory_driver import SCHEMA, Driver, decided, open_sinks
from harness.savepoint_world import killed
from harness.staged_sink_harness import FileHarness
from twophase.contract.sink import CommitRequest
from twophase.errors import StopJobError

MAKERS: dict[str, Any] = {
    "file": lambda folder: FileHarness(folder / "orders", SCHEMA),
    "iceberg": lambda folder: IcebergHarness(folder, SCHEMA),
}


class World:
    """One job, a table that is shared, and a copy of its folder from before checkpoint 1."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.table = root, MAKERS[kind](root / "lake")

    def sink(self) -> Any:
        return open_sinks({"lake": self.table.new_sink()}, schema=SCHEMA)["lake"]

    def driver(self, folder: str, sink: Any = None) -> Driver:
        return Driver(self.root / folder, {}, sinks={"lake": sink or self.sink()})

    def decides(self, point: str = "") -> None:
        """0 is committed, 1 is decided; its driver dies at a point of its commit, or before it."""
        driver = self.driver("job").recover()
        driver.run(0)
        shutil.copytree(self.root / "job", self.root / "copy")
        if point:
            assert killed(point, lambda: driver.run(1))
        else:
            decided(driver, 1)

    def goes_on(self, folder: str) -> None:
        driver = self.driver(folder).recover()
        driver.run(2)
        assert self.ids() == [*range(30)]
        assert [*driver.sinks["lake"].in_doubt()] == []

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.table.rows_visible())


@pytest.fixture(params=MAKERS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    (tmp_path / "lake").mkdir()
    return World(tmp_path, request.param)


def test_what_another_folder_commits_is_not_deleted_and_the_job_goes_on_with_that_folder(
    world: World,
) -> None:
    """They were in doubt when it was asked for what to abort."""
    world.decides()
    with closing(world.sink()) as sink:
        listed = sink.in_doubt()
        with closing(world.sink()) as other:
            other.commit([CommitRequest(piece) for piece in listed])
        with pytest.raises(StopJobError, match="was decided in another folder") as caught:
            sink.abort(listed)
    assert "with the folder (checkpointLocation) that decided it" in caught.value.remedy
    assert world.ids() == [*range(20)]
    world.goes_on("job")


@pytest.mark.parametrize("world", ["file"], indirect=True)
def test_a_commit_that_has_begun_stops_a_job_whose_folder_is_older_until_it_is_as_it_was(
    world: World,
) -> None:
    """A table of a lake has all files of a commit or none."""
    world.decides("F04")
    (world.root / "job").rename(world.root / "as it was")
    shutil.copytree(world.root / "copy", world.root / "job")
    for _ in range(2):
        with pytest.raises(StopJobError, match="its commit has begun") as caught:
            world.driver("job").recover()
        assert caught.value.remedy.startswith("restore the job's folder (checkpointLocation)")
    shutil.rmtree(world.root / "job")
    (world.root / "as it was").rename(world.root / "job")
    world.goes_on("job")

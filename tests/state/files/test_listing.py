"""A folder that cannot be read is no empty one, to nobody who looks into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.rights import permissions_checked
from harness.savepoint_world import World
from twophase.errors import DeclinedError, SavepointError
from twophase.operations.savepoint.format import MANIFEST
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.spark.folder.adopted_offsets import check_without_state
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.folder.state_stores import files_of
from twophase.state.files.listing import files_below, listed, listed_below


@contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    folder.chmod(0)
    try:
        with permissions_checked():
            yield
    finally:
        folder.chmod(0o700)


def test_what_is_missing_is_empty_and_hidden_names_are_left_out(tmp_path: Path) -> None:
    for name in ("a/1", "a/.1.crc", "b/c/2", ".d/3", "4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert listed(tmp_path) == [tmp_path / name for name in ("4", "a", "b")]
    assert listed_below(tmp_path) == [tmp_path / name for name in ("a/1", "b/c")]
    assert [*files_below(tmp_path)] == [tmp_path / name for name in ("4", "a/1", "b/c/2")]
    missing = tmp_path / "missing"
    assert [*listed(missing), *listed_below(missing), *files_below(missing)] == []


@pytest.mark.parametrize(
    ("lists", "inner"),
    [
        (listed, ""),
        *((lists, inner) for lists in (listed_below, files_below) for inner in ("", "a")),
    ],
)
def test_what_cannot_be_read_raises(
    tmp_path: Path, lists: Callable[[Path], Iterable[Path]], inner: str
) -> None:
    (tmp_path / "a").mkdir()
    with unreadable(tmp_path / inner), pytest.raises(PermissionError):
        [*lists(tmp_path)]


def _sources(world: World) -> Path:
    (world.spark() / "sources" / "0").mkdir(parents=True)
    return world.spark() / "sources" / "0"


@pytest.mark.parametrize(
    "folder",
    [
        lambda world: world.spark() / "state",
        lambda world: world.spark() / "state" / "0" / "0",
        _sources,
    ],
    ids=["state", "a store", "the log of a source"],
)
def test_no_savepoint_is_sealed_without_what_could_not_be_read(
    tmp_path: Path, folder: Callable[[World], Path]
) -> None:
    world = World(tmp_path)
    world.drive(2)
    hidden = folder(world)
    with unreadable(hidden), pytest.raises((SavepointError, OSError)):
        world.make("broken")
    assert not (world.root / "broken" / MANIFEST).exists()
    world.make("whole")
    assert verified("orders", str(world.root / "whole")).manifest.checkpoint == 1


def test_nothing_is_decided_or_adopted_over_state_that_could_not_be_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.drive(2)
    lineage = world.history().lineage
    assert lineage is not None
    with unreadable(world.spark() / "state"):
        for looks, error in (
            (lambda folder: SparkFolder(folder, lineage).sync(1), DeclinedError),
            (check_without_state, PermissionError),
            (lambda folder: files_of(folder, 2), PermissionError),
        ):
            with pytest.raises(error):
                looks(world.spark())

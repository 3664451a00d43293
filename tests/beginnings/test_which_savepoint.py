"""A savepoint is the one that it is, by whichever path it is named, and not its path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.savepoint_world import killed, older, restoring
from tests.beginnings.functions import Counted
from twophase.events import SinkRewound
from twophase.operations.savepoint.format import MANIFEST

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def rewound(world: BeginningWorld) -> bool:
    """Return whether the last driver has taken rows back."""
    return any(isinstance(event, SinkRewound) for event in world.events)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("{}", "{}"),
        ("file://{}", "{}"),
        ("{}/", "{}"),
        ("file:{}", "file:{}"),
        ("file://localhost{}", "file://localhost{}"),
        ("{}", "file:{}"),
        ("{}", "{}/../saved"),
    ],
)
@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_the_option_stays_set_however_it_is_written(
    world: BeginningWorld, first: str, later: str, policy: str
) -> None:
    """I restored a savepoint once and left `restore.path` set, as a URL: each later start goes on,
    and takes nothing back.
    """
    path = older(world) if policy == "rewind" else _newest(world)
    world.drive(5, **_naming(first.format(path), policy))
    for until in (6, 7):
        world.drive(until, **_naming(later.format(path), policy))
        assert not rewound(world)
    world.is_exact("job", 7)


def _naming(path: str, policy: str) -> dict[str, str]:
    return {"restore.path": path, "restore.sink_ahead": policy}


def _newest(world: BeginningWorld) -> Path:
    world.drive(2)
    return world.make()


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_the_option_stays_set_beside_one_more_restore(world: BeginningWorld, policy: str) -> None:
    """My job file has `restore.path` since its first day; once I restored another savepoint by the
    command line. The next start by the job file goes on, and takes nothing back.
    """
    first = restoring(_newest(world), policy)
    world.drive(3, "again", **first)
    second = world.make("second", "again")
    world.drive(4, "again", **restoring(second, "refuse"))
    world.drive(6, "again", **first)
    assert not rewound(world)
    world.is_exact("again", 6)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_a_savepoint_is_restored_once_more_under_another_id(
    world: BeginningWorld, folder: str
) -> None:
    """I went back to a savepoint, the new version failed again, and I go back to it once more."""
    given = restoring(older(world), "rewind")
    world.drive(5, folder, **given)
    world.drive(6, folder, **given)
    assert not rewound(world)
    again = {**given, "restore.id": "second"}
    world.drive(4, folder, **again)
    assert rewound(world)
    world.is_exact(folder, 4)
    world.drive(6, folder, **again)
    assert not rewound(world)
    world.is_exact(folder, 6)


def _incomplete(path: Path) -> None:
    (path / MANIFEST).unlink()


def _damaged(path: Path) -> None:
    (path / MANIFEST).write_bytes(b"{}")


@pytest.mark.parametrize("breaks", [_incomplete, _damaged])
def test_a_new_savepoint_that_cannot_be_read_is_not_taken_for_the_one_that_was_there(
    world: BeginningWorld, breaks: Callable[[Path], None]
) -> None:
    """I make each savepoint at the same path. I restored one from there long ago, and its copy of
    today is not whole: the start says so, and does not go on as if I had asked for nothing.
    """
    path = _newest(world)
    world.drive(3, **restoring(path, "rewind"))
    world.drive(4, **restoring(world.make("second"), "rewind"))
    shutil.rmtree(path)
    made = world.make()
    whole = shutil.copytree(made, path.with_name("whole"))
    world.drive(5)
    breaks(path)
    with refused(world.root):
        world.drive(6, **restoring(path, "rewind"))
    shutil.rmtree(path)
    shutil.copytree(whole, path)
    world.drive(6, **restoring(path, "rewind"))
    assert rewound(world)
    breaks(path)
    world.drive(7, **restoring(path, "rewind"))  # it has begun so
    world.is_exact("job", 7)


def test_a_new_savepoint_at_the_path_of_an_older_one_is_restored(world: BeginningWorld) -> None:
    """I make each savepoint at the same path. I restored the one that was there, later replaced it,
    and want the job back at the new one: it goes back.
    """
    path = _newest(world)
    world.drive(3, **restoring(path, "rewind"))
    shutil.rmtree(path)
    world.make()
    world.drive(5)
    world.drive(6, **restoring(path, "rewind"))
    assert rewound(world)
    world.drive(7, **restoring(path, "rewind"))
    assert not rewound(world)
    world.is_exact("job", 7)


def test_a_new_savepoint_at_the_path_of_an_older_one_is_not_taken_for_it_in_a_new_folder(
    world: BeginningWorld,
) -> None:
    """The same in a folder of its own: the newer savepoint is the one that is restored."""
    path = _newest(world)
    world.drive(3, "again", **restoring(path, "refuse"))
    shutil.rmtree(path)
    world.make(folder="again")
    world.drive(5, "third", **restoring(path, "refuse"))
    world.is_exact("third", 5)


@pytest.mark.parametrize("point", ["S07", "C01", "C06"])
def test_a_restore_that_died_does_not_go_on_with_half_of_another_savepoint(
    world: BeginningWorld, point: str
) -> None:
    """A restore died before its first checkpoint, and the savepoint's path has a newer one by now:
    the next start does not mix the two. With the older one there again it goes on.
    """
    counted = Counted()
    world.functions = {"counted": counted}
    path = _newest(world)
    given = restoring(path, "refuse")
    assert killed(point, lambda: world.drive(3, "again", **given))
    path.rename(world.root / "kept")
    _overwrite(world)
    with refused(world.root):
        world.drive(3, "again", **given)
    shutil.rmtree(path)
    (world.root / "kept").rename(path)
    world.drive(3, "again", **given)
    assert counted.count == 3
    assert world.state("again") == sum(range(30))


@pytest.mark.parametrize("point", ["S07", "C01", "C06"])
def test_a_fork_that_died_begins_with_all_of_a_newer_savepoint(
    world: BeginningWorld, point: str
) -> None:
    """The same with a fork, which the newer savepoint fits: it begins with that, and with no half
    of the older one.
    """
    counted = Counted()
    world.functions = {"counted": counted}
    path = _newest(world)
    given = restoring(path, "fork")
    assert killed(point, lambda: world.drive(3, "again", "orders-fork", **given))
    shutil.rmtree(path)
    world.drive(4)
    world.make()
    world.drive(5, "again", "orders-fork", **given)
    assert counted.count == 5
    assert world.state("again", "orders-fork") == sum(range(50))


def _overwrite(world: BeginningWorld) -> None:
    """Another savepoint of the same job, whose functions are further."""
    counted = Counted()
    other = BeginningWorld(world.root / "other")
    other.functions = {"counted": counted}
    other.drive(4)
    shutil.move(other.make(), world.root / "saved")
    shutil.rmtree(other.root)

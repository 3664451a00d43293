"""`twophase repair` on a real table and real files: what it shows, what it leaves, and that it can
be killed anywhere.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.selection import representatives
from integration.mysql.sink_harness import Server
from integration.repair.world import REASON, World
from twophase.errors import CheckpointMissingError, LostCommittableError
from twophase.state.journal.entries import AcceptedLoss

pytestmark = pytest.mark.part("repair")


@pytest.fixture
def world(tmp_path: Path, sql_server_in_proof: Server) -> Iterator[World]:
    with ExitStack() as left:
        yield World(tmp_path, sql_server_in_proof, left)


Losses = Callable[[World], None]
LOSSES: dict[str, tuple[str, Losses, list[int]]] = {
    "one branch": (
        "facts",
        lambda world: world.roll_back(1, 1),
        [*range(10), *range(10, 15), *range(20, 30)],
    ),
    "all branches": ("facts", lambda world: world.roll_back(1, 0, 1), [*range(10), *range(20, 30)]),
    "one staged folder": (
        "lake",
        lambda world: world.remove_staged(1),
        [*range(10), *range(10, 15), *range(20, 30)],
    ),
    "all staged folders": (
        "lake",
        lambda world: world.remove_staged(0, 1),
        [*range(10), *range(20, 30)],
    ),
    "a staged file": (
        "lake",
        lambda world: (world.staged()[1] / "0").unlink(),
        [*range(10), *range(10, 15), *range(20, 30)],
    ),
}


def lost(world: World, loss: str) -> str:
    """Checkpoint 0 is committed, 1 decided, and pieces of it are gone. Returns the sink."""
    sink, lose, _ = LOSSES[loss]
    world.driver().recover().run(0)
    world.dies(1, "C11")
    lose(world)
    return sink


def goes_on(world: World, loss: str) -> None:
    """The next driver takes checkpoint 2; both sinks have what they are to have."""
    sink, _, left = LOSSES[loss]
    world.driver().recover().run(2)
    facts, lake = world.ids()
    assert (facts if sink == "facts" else lake) == left
    assert (lake if sink == "facts" else facts) == list(range(30))
    world.driver().recover()


@pytest.mark.parametrize("loss", representatives(LOSSES, ["one branch", "all staged folders"]))
def test_a_loss_is_accepted_and_the_job_goes_on(world: World, loss: str) -> None:
    sink = lost(world, loss)
    with pytest.raises(LostCommittableError):
        world.driver().recover()
    result = world.repair("accept-loss", "--checkpoint", "1", "--sink", sink)
    assert result.exit_code == 0, result.output
    rows = 10 if "all" in loss else 5
    assert f"To be given up: {rows} rows in {rows // 5} piece" in result.output
    assert '- {"next": 10}\nand\n- {"next": 20}' in result.output
    (found,) = world.history().repairs
    assert isinstance(found, AcceptedLoss)
    assert (found.rows, found.note.reason, found.emptied) == (rows, REASON, rows == 10)
    goes_on(world, loss)


def test_without_a_yes_nothing_is_given_up(world: World) -> None:
    lost(world, "one branch")
    result = world.run(
        "repair", "accept-loss", str(world.job_file), "--checkpoint", "1", "--sink", "facts"
    )
    assert result.exit_code == 1
    assert "lost: branch" in result.output
    assert not world.history().repairs
    with pytest.raises(LostCommittableError):
        world.driver().recover()


def test_a_yes_in_a_script_says_why(world: World) -> None:
    result = world.run(
        "repair",
        "accept-loss",
        str(world.job_file),
        "--checkpoint",
        "1",
        "--sink",
        "facts",
        "--yes",
    )
    assert (result.exit_code, "--reason" in result.output) == (2, True)


@pytest.mark.parametrize(
    "point", representatives(["R01", "R02", "R03", "C14", "C19"], ["R02", "R03"])
)
def test_a_repair_that_is_killed_is_run_again(world: World, point: str) -> None:
    """C14: a piece that was not lost is committed; C19: the checkpoint is."""
    loss = "one branch"
    lost(world, loss)
    arguments = ("accept-loss", "--checkpoint", "1", "--sink", "facts")
    assert world.repair_forked(*arguments, arm=f"{point}=kill") == -signal.SIGKILL
    if point in ("R03", "C19"):
        assert len(world.history().repairs) == 1, (
            "the record is the repair: the next start carries it out"
        )
    else:
        assert not world.history().repairs
        with pytest.raises(LostCommittableError):
            world.driver().recover()
        assert world.repair_forked(*arguments) == 0
    goes_on(world, loss)


def test_a_folder_that_is_gone_is_not_adopted_before_somebody_says_where_to_go_on(
    world: World,
) -> None:
    world.driver().recover().run(0)
    shutil.rmtree(world.folder)
    for options in ([], ["--from-starting-offsets"]):
        result = world.repair("adopt-from-target", *options)
        assert result.exit_code == 2, result.output
        assert "startingOffsets of every source" in result.output
    assert not world.folder.exists() or not world.history().generation


@pytest.mark.parametrize("point", representatives(["R01", "C14", "R02", "R03"], ["C14"]))
def test_an_adoption_that_is_killed_is_run_again(world: World, point: str) -> None:
    """C14: a piece that waits in the lake is committed."""
    world.restore_folder_in_commit()
    assert world.repair_forked("adopt-from-target", arm=f"{point}=kill") == -signal.SIGKILL
    if point != "R03":
        with pytest.raises(CheckpointMissingError):
            world.start()
        assert world.repair_forked("adopt-from-target") == 0
    world.start_and_write(range(20, 30))
    assert world.ids() == (list(range(30)), list(range(30)))

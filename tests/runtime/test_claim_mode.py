"""`restore.claim_mode`: who deletes the savepoint that a job was restored from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB
from harness.savepoint_world import World, killed
from twophase.config import ClaimMode, JobOptions
from twophase.errors import ConfigError
from twophase.protocol.source import SourceLeg
from twophase.runtime.operator_states import OperatorStates
from twophase.runtime.restore import load_restore
from twophase.state.storage import LocalStorage


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job that has stopped after two micro-batches, with a savepoint."""
    world = World(tmp_path)
    world.drive(2)
    world.make()
    return world


def restored(world: World, until: int, **options: Any) -> None:
    """Run the restored job in a new folder; the options stay set, as they may."""
    path = {"restore.path": str(world.root / "saved")}
    world.drive(until, "new", **path, **options)


def test_a_savepoint_that_is_not_claimed_stays(world: World) -> None:
    before = sorted((world.root / "saved").rglob("*"))
    restored(world, 6)
    assert sorted((world.root / "saved").rglob("*")) == before
    world.is_exact("new", 6)


@pytest.mark.parametrize("num_retained", [1, 3])
def test_a_claimed_savepoint_goes_when_so_many_checkpoints_are_retained(
    world: World, num_retained: int
) -> None:
    options = {"restore.claim_mode": "claim", "checkpoint.num_retained": num_retained}
    for until in range(3, 2 + num_retained):
        restored(world, until, **options)
        assert (world.root / "saved" / "_savepoint").exists()
    restored(world, 2 + num_retained, **options)
    assert not (world.root / "saved").exists()
    restored(world, 7, **options)
    world.is_exact("new", 7)


@pytest.mark.parametrize("point", ["S09", "S10"])
def test_a_driver_killed_while_it_deletes_a_claimed_savepoint_is_followed_by_one_that_ends_it(
    world: World, point: str
) -> None:
    assert killed(point, lambda: restored(world, 3, **{"restore.claim_mode": "claim"}))
    assert (world.root / "saved" / "_begun").exists()
    restored(world, 4, **{"restore.claim_mode": "claim"})
    assert not (world.root / "saved").exists()
    world.is_exact("new", 4)


def test_a_claimed_savepoint_with_files_of_others_stays_and_that_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (world.root / "saved" / "notes").write_text("mine")
    before = sorted((world.root / "saved").rglob("*"))
    with caplog.at_level(logging.WARNING, "twophase"):
        restored(world, 5, **{"restore.claim_mode": "claim"})
    assert sorted((world.root / "saved").rglob("*")) == before
    [message] = [one for one in caplog.messages if "claimed" in one]
    assert "such as notes" in message
    world.is_exact("new", 5)


def load(world: World, folder: str, path: Path) -> object:
    location = {"checkpointLocation": str(world.root / folder)}
    options = JobOptions.parse({**location, "restore.claim_mode": "claim"}, JOB)
    states = OperatorStates([SourceLeg("Numbers", {})], {})
    return load_restore(JOB, str(path), LocalStorage(world.root / folder), states, options)


def test_a_checkpoint_in_another_folder_cannot_be_claimed(world: World) -> None:
    [checkpoint] = (world.root / "job" / "chk").iterdir()
    with pytest.raises(ConfigError, match="whose log names it"):
        load(world, "new", checkpoint)
    assert checkpoint.exists()
    assert load(world, "job", checkpoint)


@pytest.mark.parametrize(("given", "mode"), [("CLAIM", "claim"), ("NO_CLAIM", "no_claim")])
def test_flinks_claim_modes_are_accepted(given: str, mode: str) -> None:
    location = {"checkpointLocation": "/job"}
    for key in ("execution.state-recovery.claim-mode", "execution.savepoint-restore-mode"):
        assert JobOptions.parse({**location, key: given}, JOB).claim_mode is ClaimMode(mode)


def test_flinks_legacy_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="LEGACY"):
        JobOptions.parse(
            {"checkpointLocation": "/job", "execution.savepoint-restore-mode": "LEGACY"}, JOB
        )

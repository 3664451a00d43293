"""What the errors about savepoints and rewinds say, pasted as commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from harness.savepoint_world import killed, older, restoring
from tests.cli.test_repair_abandon import REASON, FileWorld
from tests.cli.test_savepoint import NOTE, Files, command, job_file
from tests.operations.savepoint.test_savepoints import full
from twophase.operations.savepoint import format as format_module
from twophase.operations.savepoint.make import open_savepoint
from twophase.state.files.storage import LocalStorage


@pytest.fixture
def world(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("is_older", [False, True], ids=["another folder", "an older copy"])
def test_a_savepoint_is_finished_in_the_folder_that_it_was_made_of(
    world: Files, is_older: bool
) -> None:
    world.drive(2)
    other = world.root / "other"
    if is_older:
        shutil.copytree(world.root / "job", other)
    else:
        other.mkdir(mode=0o700)
    assert killed("C11", lambda: world.drive(3))
    (world.spark() / "commits" / "2").write_text(NOTE)
    path = world.make()
    asked = ("savepoint", "finish", job_file(world, "other"), path)
    said = " ".join(command(*asked, code=2).stderr.split())
    assert "name the folder that it was made of with --checkpoint-location" in said
    assert world.rows() == [20, 20]
    command(*asked, "--checkpoint-location", world.root / "job")
    assert world.rows() == [30, 30]
    assert open_savepoint(str(path)).is_committed


def test_the_path_of_a_savepoint_is_corrected_by_the_list(world: Files) -> None:
    world.drive(1)
    path = world.make("all/saved")
    missing = command("savepoint", "show", world.root / "all" / "saved2", code=2).stderr
    assert "Next: correct the path." in missing
    other = " ".join(command("savepoint", "show", path.parent, code=2).stderr.split())
    assert "is not a savepoint. " in other
    assert "Next: `twophase savepoint list FOLDER` lists the savepoints in a folder." in other
    [listed] = json.loads(command("savepoint", "list", path.parent, "--json").stdout)
    assert f"Savepoint {path} of job orders" in command("savepoint", "show", listed["path"]).stdout


def test_what_a_savepoint_leaves_that_could_not_be_written_is_disposed_of(
    world: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full, and refused to delete as well."""
    world.drive(3)
    path = world.root / "saved"

    def refuses(storage: LocalStorage, name: str) -> None:
        raise OSError(5, "Input/output error", str(storage.root / name))

    with monkeypatch.context() as patch:
        patch.setattr(format_module, "PART_BYTES", 64)
        patch.setattr(LocalStorage, "delete", refuses)
        full(patch, 3)
        asked = ("savepoint", "create", job_file(world), path)
        said = " ".join(command(*asked, code=1).stderr.split())
    assert "A part of it is left." in said
    assert path.exists()
    [dispose] = re.findall(r"run: twophase (savepoint dispose [^;]+);", said)
    command(*shlex.split(dispose))
    assert not path.exists()
    command(*asked)
    open_savepoint(str(path)).verify()


def test_a_rewind_is_given_up_for_the_folder_that_the_error_asks_for(tmp_path: Path) -> None:
    world = FileWorld(tmp_path)
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    code, said = world.give_up(*REASON, folder="again")
    assert code == 3, said
    [options] = re.findall(r"\.yaml (--checkpoint-location FOLDER --begun-in \S+)\. ", said)
    given = shlex.split(options.replace("FOLDER", str(world.root / "job")))
    code, said = world.give_up(*given, *REASON, folder="again")
    assert code == 0, said
    world.drive(5)
    assert world.ids() == [[*range(20), *range(40, 50)], [*range(50)]]

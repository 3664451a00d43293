"""A dry run and a message say what is done, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from harness.beginning_world import BeginningWorld, files
from harness.savepoint_world import older, restoring
from tests.beginnings.test_renamed import MAY_RENAME
from tests.state.conftest import snapshot
from twophase.cli.main import main
from twophase.contract.sink import ArrowSink
from twophase.errors import RestoreRefusedError
from twophase.events import SinkRewound
from twophase.operations.savepoint.preview import preview_start
from twophase.options.job_options import JobOptions
from twophase.sinks.file.sink import FileSink

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def test_a_dry_run_lists_no_rewind_that_the_start_does_not_do(world: BeginningWorld) -> None:
    """My job was rewound, `restore.path` stays set, and it has gone on: a dry run of the next start
    lists nothing to be taken back, as that start takes nothing back.
    """
    path = older(world)
    given = restoring(path, "rewind")
    world.drive(5, **given)
    before = files(world.root)
    context = world.context(**given)
    options = JobOptions.parse({"checkpointLocation": str(world.root / "job"), **given}, "job")
    found = preview_start("orders", context.sinks, options)
    assert files(world.root) == before
    world.drive(6, **given)
    taken_back = [event.sink for event in world.events if isinstance(event, SinkRewound)]
    assert not found.plan.takes_back
    assert not taken_back
    world.is_exact("job", 6)


class Files(BeginningWorld):
    """Its sinks are folders of files, which a command opens without Spark."""

    def sink(self, name: str) -> ArrowSink:
        return FileSink(path=str(self.target(name)), format="json")

    def job_file(self, job: str, folder: str, **options: Any) -> str:
        """Write the job file of a job with these targets."""
        sinks = {
            name: {"type": "file", "options": {"path": str(self.target(name)), "format": "json"}}
            for name in self.sinks
        }
        path = self.root / f"{job}.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "name": job,
                    "source": {"format": "rate"},
                    "sinks": sinks,
                    "options": {"checkpointLocation": str(self.root / folder), **options},
                }
            )
        )
        return str(path)


def dry_run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["run", *arguments, "--dry-run"])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize(
    ("job", "folder", "policy"),
    [
        ("orders", "job", "rewind"),
        ("orders", "again", "rewind"),
        ("orders-fork", "fork", "fork"),
    ],
)
def test_a_dry_run_makes_no_folder(tmp_path: Path, job: str, folder: str, policy: str) -> None:
    """A dry run says what would be done, and makes nothing: no file, and no folder in a target."""
    world = Files(tmp_path)
    path = older(world)
    file = world.job_file(job, folder)
    before = snapshot(world.root)
    dry_run(file, "--restore", str(path), "--sink-ahead", policy)
    assert snapshot(world.root) == before


@pytest.fixture
def renamed(tmp_path: Path) -> tuple[Files, Path]:
    """The sink `lake` is `pond` since the checkpoint after a savepoint; and that savepoint."""
    world = Files(tmp_path)
    world.drive(2)
    path = world.make()
    world.drive(3)
    world.rename("lake", "pond")
    world.drive(4, **MAY_RENAME)
    return world, path


def test_a_dry_run_tells_what_a_sink_has_written_under_another_name(
    renamed: tuple[Files, Path],
) -> None:
    """I renamed a sink and rewind to before that: the dry run says by which name rows go, and which
    sink has become which.
    """
    world, path = renamed
    file = world.job_file("orders", "job", **MAY_RENAME)
    before = snapshot(world.root)
    text = dry_run(file, "--restore", str(path), "--sink-ahead", "rewind")
    assert snapshot(world.root) == before
    assert "Of sink pond, by the name of sink lake of job orders, would be taken back:" in text
    assert "is sink 'pond' from now on." in text


def test_a_dry_run_ends_with_the_refusal_of_rows_under_another_name(
    renamed: tuple[Files, Path],
) -> None:
    """Somebody has rewritten a file that the sink wrote under its older name: the start refuses the
    rewind, and so does its dry run.
    """
    world, path = renamed
    files = sorted(world.target("pond").glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    files[-3].write_text("theirs\n")  # two pieces a checkpoint
    file = world.job_file("orders", "job", **MAY_RENAME)
    with pytest.raises(RestoreRefusedError) as start:
        world.drive(5, **restoring(path, "rewind"), **MAY_RENAME)
    text = dry_run(file, "--restore", str(path), "--sink-ahead", "rewind", code=3)
    assert start.value.what in " ".join(text.split())


def test_a_dry_run_of_a_fresh_start_is_refused_as_that_is(tmp_path: Path) -> None:
    world = Files(tmp_path)
    for name in ("facts", "lake"):
        world.target(name).mkdir()
    only_on = {"restore.error_if_no_checkpoint": "true"}
    text = dry_run(world.job_file("orders", "job", **only_on), code=2)
    assert "has no checkpoint, and restore.error_if_no_checkpoint is set." in text
    assert "orders would begin" in dry_run(world.job_file("orders", "job"))
    world.drive(1)
    assert "would go on" in dry_run(world.job_file("orders", "job", **only_on))

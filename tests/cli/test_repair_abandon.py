"""What `twophase repair abandon-rewind` says and asks for; two folders of files, no server, no
Spark.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from harness.memory_driver import JOB
from harness.savepoint_world import World, killed, older, restoring
from twophase.cli.main import main
from twophase.contract.sink import ArrowSink
from twophase.errors import CheckpointMissingError, RestoreRefusedError
from twophase.sinks.file.sink import FileSink

REASON = ("--yes", "--reason", "OPTIMIZE ran in between")


class FileWorld(World):
    """Its sinks are folders of files."""

    def sink(self, name: str) -> ArrowSink:
        return FileSink(path=str(self.root / name), format="json")

    def numbers(self, name: str) -> list[int]:
        paths = (self.root / name).glob("*.json")
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]

    def give_up(
        self, *arguments: str, folder: str = "job", answer: str | None = None
    ) -> tuple[int, str]:
        """Exit code and output of the command."""
        job = {
            "name": JOB,
            "source": {"format": "twophase-kafka", "schema": "id long", "options": {}},
            "sinks": {
                name: {"type": "file", "options": {"path": str(self.root / name), "format": "json"}}
                for name in self.sinks
            },
            "options": {"checkpointLocation": str(self.root / folder)},
        }
        path = self.root / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        command = ["repair", "abandon-rewind", str(path), *arguments]
        result = CliRunner().invoke(main, command, input=answer)
        return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    return FileWorld(tmp_path)


def test_it_shows_what_each_sink_has_and_which_records_are_missing(world: FileWorld) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, **restoring(path, "rewind")))
    assert world.ids() == [[*range(20)], [*range(40)]]
    code, output = world.give_up(*REASON)
    assert code == 0, output
    lineage = world.history().lineages[0].id
    assert f"Job {JOB}, the rewind to {path}" in output
    assert f"facts rewound, has {lineage[:8]} up to 1" in output
    assert "lake not rewound, keeps what it has" in output
    assert "Checkpoints from 2 to 3 are missing in it" in output
    assert 'and - {"next": 40}' in output
    assert "The rewind is given up. Take restore.path out of the job file." in output
    listed = CliRunner().invoke(main, ["checkpoints", str(world.root / "job")]).output
    assert f"the rewind to {path} given up, by " in listed
    assert "OPTIMIZE ran in between" in listed
    world.drive(5)
    assert world.ids() == [[*range(20), *range(40, 50)], [*range(50)]]


def test_an_account_without_a_name_is_noted_by_its_number(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container's may be, in which somebody runs the command beside the job."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2000012345)
    path = older(world)
    assert killed("S12", lambda: world.drive(5, **restoring(path, "rewind")))
    code, output = world.give_up(*REASON)
    assert code == 0, output
    listed = CliRunner().invoke(main, ["checkpoints", str(world.root / "job")]).output
    assert "given up, by 2000012345@" in listed


def test_a_sink_that_has_moved_a_part_aside_loses_nothing(world: FileWorld) -> None:
    path = older(world)
    assert killed("F07", lambda: world.drive(5, **restoring(path, "rewind")))
    assert len(world.numbers("facts")) < 40
    code, output = world.give_up(*REASON)
    assert code == 0, output
    assert "No rows of decided checkpoints are gone." in output
    world.drive(5)
    assert world.ids() == [[*range(50)]] * 2


def test_a_rewind_that_a_sink_refuses_by_now_is_given_up_and_the_job_goes_on(
    world: FileWorld,
) -> None:
    """Somebody has rewritten a file of the sink that the rewind has not reached."""
    path = older(world)
    assert killed("S12", lambda: world.drive(5, **restoring(path, "rewind")))
    newest = max((world.root / "lake").glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    newest.write_text(newest.read_text().replace("}\n", "} \n"))
    for options in (restoring(path, "rewind"), {}):
        with pytest.raises(RestoreRefusedError) as caught:
            world.drive(5, **options)
        assert "twophase repair abandon-rewind JOB.yaml" in caught.value.remedy
    code, output = world.give_up(*REASON)
    assert code == 0, output
    assert "lake not rewound, keeps what it has: " in output
    assert "was changed" in output
    world.drive(5)
    assert world.ids() == [[*range(20), *range(40, 50)], [*range(50)]]


def test_it_asks_and_a_no_leaves_the_rewind(world: FileWorld) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, **restoring(path, "rewind")))
    code, output = world.give_up(answer="n\n")
    assert code != 0
    assert "Give the rewind up? [y/N]: n" in output
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)


def test_the_folder_in_which_it_has_begun_can_be_another_one(world: FileWorld) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    code, output = world.give_up(*REASON, folder="again")
    assert code == 3
    assert f"--begun-in {world.root / 'again'}" in output
    code, refused = world.give_up(*REASON, "--begun-in", str(world.root / "nowhere"))
    assert (code, "Next: name the checkpointLocation that the restore" in refused) == (2, True)
    code, output = world.give_up(*REASON, "--begun-in", str(world.root / "again"))
    assert code == 0, output
    world.drive(5)
    assert world.ids() == [[*range(20), *range(40, 50)], [*range(50)]]


def test_what_it_goes_back_to_is_named_where_no_folder_tells(world: FileWorld) -> None:
    path = older(world)
    shutil.copytree(world.root / "job", world.root / "backup")
    assert killed("F07", lambda: world.drive(5, **restoring(path, "rewind")))
    shutil.rmtree(world.root / "job")
    (world.root / "backup").rename(world.root / "job")
    code, output = world.give_up(*REASON)
    assert (code, "--restore PATH" in output) == (3, True)
    code, output = world.give_up(*REASON, "--restore", str(path))
    assert code == 0, output
    assert f"Job {JOB}, the rewind to {path}" in output
    world.drive(5)
    assert world.ids() == [[*range(50)]] * 2


def test_where_the_newest_folder_is_gone_the_next_step_is_named(world: FileWorld) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    shutil.rmtree(world.root / "job")
    code, output = world.give_up(*REASON, folder="again")
    assert (code, "with --newest-folder-gone" in output) == (3, True)
    code, output = world.give_up(*REASON, "--newest-folder-gone", folder="again")
    assert code == 0, output
    assert "facts has nothing newer; what it had is not known" in output
    assert "the next start names the command that adopts it" in output
    with pytest.raises(CheckpointMissingError, match="adopt-from-target"):
        world.drive(5, "again")


def test_a_folder_that_is_not_there_is_named_and_not_made(world: FileWorld) -> None:
    older(world)
    before = world.history()
    code, output = world.give_up(*REASON, "--begun-in", str(world.root / "nowhere"))
    assert code == 2
    assert f"nowhere is not a folder of job {JOB!r}" in output
    assert world.history() == before
    assert not (world.root / "nowhere").exists()

"""`twophase savepoint` and `twophase run --dry-run`, without Spark."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner, Result

from harness.memory_driver import JOB
from harness.savepoint_world import World, killed, restoring
from tests.state.conftest import snapshot
from twophase.cli.main import main
from twophase.contract.sink import ArrowSink
from twophase.errors import LostCommittableError
from twophase.operations.savepoint import make
from twophase.sinks.file.sink import FileSink


class Files(World):
    """Its sinks are folders of files, which a command opens without Spark."""

    def sink(self, name: str) -> ArrowSink:
        return FileSink(path=str(self.root / name), format="json")

    def numbers(self, name: str) -> list[int]:
        paths = (self.root / name).glob("*.json")
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]

    def rows(self) -> list[int]:
        """How many rows each sink shows."""
        return [
            sum(len(path.read_text().splitlines()) for path in (self.root / name).glob("*.json"))
            for name in self.sinks
        ]


@pytest.fixture
def world(tmp_path: Path) -> Files:
    return Files(tmp_path)


def job_file(world: Files, folder: str = "job", name: str = JOB) -> str:
    sinks = {
        name: {"type": "file", "options": {"path": str(world.root / name), "format": "json"}}
        for name in world.sinks
    }
    job = {
        "name": name,
        "source": {
            "format": "twophase-kafka",
            "schema": "id long",
            "options": {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"},
        },
        "sinks": sinks,
        "options": {"checkpointLocation": str(world.root / folder)},
    }
    path = world.root / f"{folder}.yaml"
    path.write_text(yaml.safe_dump(job))
    return str(path)


def command(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_one_is_made_listed_shown_verified_and_disposed_of(world: Files) -> None:
    world.drive(3)
    path = world.root / "saved" / "one"
    made = command("savepoint", "create", job_file(world), path).stdout
    assert f"Savepoint {path} of job orders" in made
    [listed] = json.loads(command("savepoint", "list", path.parent, "--json").stdout)
    assert (listed["path"], listed["checkpoint"], listed["state"]) == (str(path), 2, "committed")
    assert "committed" in command("savepoint", "list", path.parent).stdout
    shown = command("savepoint", "show", path).stdout
    assert 'Numbers continues at {"next": 30}' in shown
    assert "sinks: facts, lake" in shown
    fields = json.loads(command("savepoint", "show", path, "--json").stdout)
    assert fields["offsets"] == [["Numbers", [{"next": 30}]]]
    assert {"path": "spark/commits/2", "bytes": 29} in fields["files"]
    assert f"{path} is intact: 8 files" in command("savepoint", "verify", path).stdout
    command("savepoint", "dispose", path)
    assert not path.exists()


def test_one_without_a_path_is_made_in_savepoint_dir(world: Files) -> None:
    world.drive(1)
    path = job_file(world)
    job = yaml.safe_load(Path(path).read_text())
    job["options"]["execution.checkpointing.savepoint-dir"] = str(world.root / "all")
    Path(path).write_text(yaml.safe_dump(job))
    made = command("savepoint", "create", path).stdout
    [found] = (world.root / "all").iterdir()
    assert f"Savepoint {found} of job orders" in made


NOTE = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def decided(world: Files) -> Path:
    """The note that Spark has not written yet, of a micro-batch with state that is decided."""
    world.drive(2)
    assert killed("C16", lambda: world.drive(3))
    return world.spark() / "commits" / "2"


def while_waiting(monkeypatch: pytest.MonkeyPatch, do: Callable[[float], object]) -> None:
    """Have the command do this where it sleeps; threads that other tests left sleep as ever."""
    monkeypatch.setattr(make, "time", SimpleNamespace(sleep=do))


def test_one_waits_until_spark_has_finished_the_micro_batch(
    world: Files, decided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_waiting(monkeypatch, lambda _: decided.write_text(NOTE))
    command("savepoint", "create", job_file(world), world.root / "saved", "--wait", "10min")
    assert (
        json.loads(command("savepoint", "show", world.root / "saved", "--json").stdout)[
            "checkpoint"
        ]
        == 2
    )


@pytest.mark.parametrize(("wait", "looks"), [("0s", 0), ("50 ms", 1)])
def test_the_wait_is_bounded_and_the_error_says_how_to_wait_longer(
    world: Files, decided: Path, monkeypatch: pytest.MonkeyPatch, wait: str, looks: int
) -> None:
    looked: list[float] = []

    def look(seconds: float) -> None:
        looked.append(seconds)
        time.sleep(seconds)

    while_waiting(monkeypatch, look)
    asked = ("savepoint", "create", job_file(world), world.root / "saved")
    result = command(*asked, "--wait", wait, code=1)
    assert "Spark has not finished micro-batch 2" in result.stderr
    assert "--wait 1min" in result.stderr
    assert min(len(looked), 1) == looks
    assert not (world.root / "saved").exists()
    decided.write_text(NOTE)
    command(*asked, "--wait", "1min")  # as the error says


def test_a_wait_that_is_no_duration_is_refused(world: Files) -> None:
    asked = ("savepoint", "create", job_file(world), "--wait", "5 secnds")
    assert "'5 secnds': give a number with a unit" in command(*asked, code=2).stderr


def test_a_damaged_one_ends_the_command_with_3_and_says_what_to_do(world: Files) -> None:
    world.drive(2)
    path = world.make()
    [part] = (path / "data").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    result = command("savepoint", "verify", path, code=3)
    assert "is too short for" in result.stderr
    assert "Next: copy the savepoint again" in result.stderr


def test_a_list_ends_with_the_error_of_one_that_is_not_usable(world: Files) -> None:
    world.drive(1)
    (world.make("saved/half") / "_savepoint").unlink()
    world.make("saved/whole")
    result = command("savepoint", "list", world.root / "saved", code=2)
    assert "not usable" in result.stdout
    assert "committed" in result.stdout
    assert "is incomplete" in result.stderr


@pytest.mark.parametrize("name", ["show", "verify", "dispose", "list"])
def test_a_path_without_one_is_refused(world: Files, name: str) -> None:
    command("savepoint", name, world.root / "nothing", code=2)


def test_a_job_that_never_ran_has_none(world: Files) -> None:
    result = command("savepoint", "create", job_file(world), world.root / "saved", code=2)
    assert "There is no folder" in result.stderr
    assert not (world.root / "job").exists()
    assert not (world.root / "saved").exists()


def unfinished(world: Files) -> Path:
    world.drive(2)
    assert killed("C11", lambda: world.drive(3))
    (world.spark() / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return world.make()


def test_one_is_finished(world: Files) -> None:
    path = unfinished(world)
    assert "not committed in every sink yet" in command("savepoint", "show", path).stdout
    assert world.rows() == [20, 20]
    said = command("savepoint", "finish", job_file(world), path).stdout
    assert f"{path} is finished" in said
    assert world.rows() == [30, 30]
    assert ": committed" in command("savepoint", "show", path).stdout


def test_a_dry_run_says_what_a_restore_would_do_and_writes_nothing(world: Files) -> None:
    path = unfinished(world)
    file = job_file(world, "again")
    before = snapshot(world.root)
    said = command("run", file, "--restore", path, "--dry-run").stdout
    assert snapshot(world.root) == before
    assert "would begin a new lineage with checkpoint 2" in said
    assert "Of sink facts would be committed: 2 pieces, 10 rows." in said
    assert "Nothing would be aborted." in said
    assert 'Numbers would go from the beginning to {"next": 30}.' in said


def test_a_dry_run_names_what_would_be_aborted(world: Files) -> None:
    world.drive(2)
    path = world.make()
    assert killed("C06", lambda: world.drive(3))
    said = command("run", job_file(world), "--restore", path, "--dry-run").stdout
    assert "Of sink lake would be aborted, and its rows read again: 2 pieces, 10 rows." in said
    assert 'Numbers would go from {"next": 20} to {"next": 20}.' in said


def test_a_dry_run_ends_with_the_error_of_the_restore(world: Files) -> None:
    world.drive(1)
    path = world.make()
    world.drive(2)
    for folder in ("job", "again"):
        result = command("run", job_file(world, folder), "--restore", path, "--dry-run", code=3)
        assert "cannot restore from" in result.stderr
    assert not (world.root / "again").exists()


def test_what_to_do_about_a_sink_that_is_ahead_is_an_option_of_the_command(world: Files) -> None:
    world.drive(1)
    path = world.make()
    arguments = ("run", job_file(world), "--restore", path, "--sink-ahead", "fork", "--dry-run")
    assert "a fork is a job of another name" in command(*arguments, code=2).stderr


RETAINED = {"checkpoint.num_retained": "9"}


@pytest.mark.parametrize(
    ("policy", "job"), [("refuse", JOB), ("rewind", JOB), ("fork", "orders-fork")], ids=str
)
def test_the_loss_that_a_restore_finds_is_accepted_by_the_command_that_it_names(
    world: Files, policy: str, job: str
) -> None:
    """A piece of the savepoint is lost, and the job's folder is gone, in which I may have accepted
    that too: I paste what the restore says, then what that command says.
    """
    path = unfinished(world)
    piece = min((world.root / "facts").rglob("staged/*/0"))
    gone = [json.loads(line)["id"] for line in piece.read_text().splitlines()]
    shutil.rmtree(piece.parent)
    reason = ("--yes", "--reason", "deleted by hand")
    if policy == "rewind":
        of = ("--checkpoint", "2", "--sink", "facts")
        command("repair", "accept-loss", job_file(world), *of, *reason)
        world.drive(5, **RETAINED)
    shutil.rmtree(world.root / "job")
    asked = {**restoring(path, policy), **RETAINED}
    with pytest.raises(LostCommittableError) as caught:
        world.drive(5, "again", job, **asked)
    file = job_file(world, "again", job)
    _, _, advised = caught.value.remedy.partition("twophase repair accept-loss JOB.yaml ")
    said = command("repair", "accept-loss", file, *shlex.split(advised), *reason).stdout
    assert f"To be given up: {len(gone)} rows in 1 piece" in said
    asks = f"--restore {path}" + ("" if policy == "refuse" else f" --sink-ahead {policy}")
    assert f"Start the job: twophase run {file} {asks}\n" in said
    world.drive(5, "again", job, **asked)
    assert world.ids() == [[one for one in range(50) if one not in gone], [*range(50)]]


def test_a_dry_run_without_a_restore_says_how_the_job_would_go_on(world: Files) -> None:
    world.drive(2)
    assert killed("C11", lambda: world.drive(3))
    file = job_file(world)
    before = snapshot(world.root)
    said = command("run", file, "--dry-run").stdout
    assert snapshot(world.root) == before
    assert "would go on after checkpoint 2 of lineage" in said
    assert "Of sink facts would be committed: 2 pieces, 10 rows." in said
    assert "Nothing would be aborted." in said
    assert 'Numbers would go on from {"next": 30}.' in said
    world.drive(3)
    assert world.rows() == [30, 30]


def test_a_dry_run_without_a_restore_says_that_a_job_would_begin(world: Files) -> None:
    for name in world.sinks:
        (world.root / name).mkdir()
    said = command("run", job_file(world, "new"), "--dry-run").stdout
    assert "would begin: its folder has no checkpoint." in said
    assert "Nothing would be committed." in said
    assert not (world.root / "new").exists()


def test_a_dry_run_without_a_restore_ends_with_the_error_of_the_start(world: Files) -> None:
    world.drive(1)
    shutil.copytree(world.root / "job", world.root / "older")
    world.drive(2)
    file = job_file(world, "older")
    before = snapshot(world.root)
    said = " ".join(command("run", file, "--dry-run", code=3).stderr.split())
    assert "has committed checkpoint 1, but the checkpoint store ends at 0" in said
    assert snapshot(world.root) == before

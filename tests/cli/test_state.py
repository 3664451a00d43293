"""`twophase state read` shows the operator state of a checkpoint, and changes nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from harness.savepoint_world import World
from tests.cli.conftest import JobFolder
from tests.state.conftest import snapshot
from twophase.cli.main import main
from twophase.functions.operator_state import Redistribution, SerializedState
from twophase.state.checkpoints.function_state import FunctionState

GOLDEN = Path(__file__).parents[1] / "state" / "golden" / "states"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's folder with state of every form; its function is `rules`."""
    shutil.copytree(GOLDEN, tmp_path / "job")
    return tmp_path / "job"


def read(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["state", "read", *map(str, arguments)])


def chk(folder: Path) -> Path:
    [path] = (folder / "chk").iterdir()
    return path


def listed_in(folder: Path, state: str) -> list[str]:
    """The checkpoints of a job's folder as `twophase checkpoints` lists them."""
    result = CliRunner().invoke(main, ["checkpoints", str(folder), "--json"])
    entries = json.loads(result.stdout)["checkpoints"]
    return [entry["path"] for entry in entries if entry["state"] == state]


@pytest.mark.parametrize("which", ["the job's folder", "the checkpoint's"])
def test_every_state_is_printed(folder: Path, which: str) -> None:
    before = snapshot(folder)
    result = read(folder if which == "the job's folder" else chk(folder))
    assert result.exit_code == 0, result.output
    head, _, *lines = result.stdout.splitlines()
    assert head.startswith("Job orders, checkpoint 1 of aaaaaaaa-")
    rows = [line.strip().split(maxsplit=6) for line in lines]
    assert [row[:2] for row in rows].count(["kafka", "offsets"]) == 2
    assert ["rules", "seen", "split", "json", "1", "-", "7"] in rows
    assert ["rules", "limits", "broadcast", "bytes", "1", '"high"', "ff"] in rows
    assert ["rules", "raw", "split", "bytes", "0", "-", "72 61 77 20 00 ff"] in rows
    [batch] = [row[6] for row in rows if row[1] == "batches" and row[4] == "1"]
    assert json.loads(batch)[0]["id"] == 2
    assert snapshot(folder) == before


def test_a_savepoint_is_read_as_a_checkpoint_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.drive(2)
    result = read(world.make())
    assert result.exit_code == 0, result.output
    head, _, line = result.stdout.splitlines()
    assert "checkpoint 1 of" in head
    assert line.split(maxsplit=6)[:6] == ["Numbers", "offsets", "union", "json", "0", "-"]
    assert '"next": 20' in line


def test_one_operator_is_chosen_by_its_uid(folder: Path) -> None:
    _, _, *lines = read(folder, "--operator", "kafka").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["kafka", "offsets"]] * 2


def test_an_operator_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    result = read(folder, "--operator", "other")
    assert result.exit_code == 2
    assert "no state of operator 'other'" in result.stderr
    _, _, named = result.stderr.partition("Next: leave out --operator, or name one of: ")
    for operator in named.strip().removesuffix(".").split(", "):
        assert read(folder, "--operator", operator).exit_code == 0
    assert read(folder).exit_code == 0


def test_the_export_has_one_row_for_each_entry(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "state.parquet"
    result = read(folder, "--operator", "rules", "--output", output)
    assert result.exit_code == 0, result.output
    rows = pq.read_table(output).to_pylist()
    assert result.stdout.startswith(f"{len(rows)} rows written")
    assert len(rows) == 5 + 2 + 2 + 4 + 2, "seen, batches, limits, large, raw; empty has none"
    large = [row["value"] for row in rows if row["state"] == "large"]
    assert large == [bytes([number]) * 600 for number in range(4)]
    [low] = [row for row in rows if row["key_text"] == '"low"']
    assert (low["key"], low["value"], low["index"]) == (b'"low"', b"\1", 0)
    [first, _] = [row["value"] for row in rows if row["state"] == "batches"]
    assert pa.ipc.open_stream(first).read_all().column("id").to_pylist() == [1, 2, None]


def test_an_existing_file_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "state.parquet"
    output.write_text("mine")
    result = read(folder, "--output", output)
    assert result.exit_code == 2
    assert "Cannot write" in result.stderr
    assert ": File exists" in result.stderr
    assert "Next: name a new file for --output." in result.stderr
    assert output.read_text() == "mine"
    new = tmp_path / "new.parquet"
    assert read(folder, "--output", new).exit_code == 0
    assert pq.read_table(new).num_rows > 0


@pytest.mark.parametrize(
    ("damage", "code", "text"),
    [
        ("unlink", 3, "with state 'batches' of function 'rules' in checkpoint 1 is missing"),
        ("edit", 3, "is not the one that was decided"),
        ("body", 3, "is missing"),
        ("path", 2, "is not a decided checkpoint"),
        ("folder", 2, "is not the folder of a job"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, damage: str, code: int, text: str) -> None:
    path = chk(folder)
    [file, _] = sorted((folder / "state" / path.name).iterdir())
    match damage:
        case "unlink":
            file.unlink()
        case "edit":
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        case "body":
            (path / "_metadata").unlink()
        case "path":
            path = path.with_name("another-1-1.1")
        case "folder":
            path = folder / "state"
    result = read(path)
    assert result.exit_code == code, result.output
    assert text in " ".join(result.stderr.split())
    if damage == "path":
        assert "Next: `twophase checkpoints FOLDER` lists the decided" in result.stderr
        assert [read(listed).exit_code for listed in listed_in(folder, "committed")] == [0]


def test_a_subsumed_checkpoint_is_named(job_folder: JobFolder) -> None:
    first = job_folder.body(0).parent
    job_folder.commit(0)
    job_folder.commit(1)
    result = read(first)
    assert result.exit_code == 2
    assert "newer checkpoints subsumed it" in result.stderr
    assert "Next: `twophase checkpoints FOLDER` lists the retained" in result.stderr
    assert [read(kept).exit_code for kept in listed_in(job_folder.root, "committed")] == [0]


def test_a_value_of_an_own_serializer_is_shown_as_bytes(job_folder: JobFolder) -> None:
    own = SerializedState("corners", Redistribution.SPLIT, ("point",), (b"7",))
    plain = job_folder.checkpoint(0)
    whole = replace(
        plain,
        functions={"shapes": {"count": 1}},
        function_states={"shapes": (FunctionState.of(own),)},
    )
    job_folder.store.decide(job_folder.store.prepare(whole))
    _, _, *lines = read(job_folder.root, "--operator", "shapes").stdout.splitlines()
    assert [line.strip().split(maxsplit=6)[1:] for line in lines] == [
        ["returned", "split", "json", "0", "-", '{"count": 1}'],
        ["corners", "split", "point", "0", "-", "0x37"],
    ]

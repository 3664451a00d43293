"""Spark's folder of a lineage: written whole, validated against the store, durable
before a decision.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.plugin.plugin_world import Killed, World
from tests.spark.sync_tape import SyncTape
from twophase.errors import DeclinedError, OffsetMismatchError
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark.folder import folder_formats
from twophase.spark.folder.folder_formats import OFFSET_LOG
from twophase.spark.folder.spark_folder import RESTORE, SparkFolder
from twophase.state.checkpoints import replay_guard
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision, Lineage

FRESH = Lineage("0e8f6a0c-6a5d-4c59-9a0e-3f1a7b1c2d3e")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def folder_of(world: World) -> SparkFolder:
    lineage = world.history().lineage
    assert lineage is not None
    return SparkFolder(world.folder, lineage)


def newest(world: World) -> Decision:
    return world.history().decisions[-1]


# -- preparing -------------------------------------------------------------------------------------


def test_what_spark_was_writing_when_its_driver_died_is_gone_at_the_next_start(
    tmp_path: Path,
) -> None:
    folder = SparkFolder(tmp_path / FRESH.id, FRESH)
    folder.prepare(None)
    offsets = folder.path / "offsets"
    offsets.mkdir(exist_ok=True)
    for name in (
        ".0.f18df1e8-7b4a-47e0-be32-40b7291bec83.tmp",
        "..0.f18df1e8-7b4a-47e0-be32-40b7291bec83.tmp.crc",
    ):
        (offsets / name).touch()
    folder.prepare(None)
    assert [*offsets.iterdir()] == []


def test_the_checksum_of_a_deleted_file_goes_too_and_no_other(world: World) -> None:
    """Spark took one that is left behind for the file of another query."""
    world.run(0)
    for log in ("offsets", "commits"):
        for number in (0, 1):
            (world.folder / log / f".{number}.crc").touch()
    (world.folder / "commits" / "0").touch()
    folder_of(world).prepare(newest(world))
    left = {f"{path.parent.name}/{path.name}" for path in world.folder.glob("*/.*.crc")}
    assert left == {"offsets/.0.crc", "commits/.0.crc"}


@pytest.mark.parametrize("start", [(), ('{"next": 7}', None)], ids=["fresh", "restored"])
def test_a_kill_while_the_folder_is_written_leaves_one_that_the_next_start_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: tuple[str | None, ...]
) -> None:
    lineage = Lineage(FRESH.id, first_checkpoint=1, start=start) if start else FRESH
    real, kills = os.open, 0

    for kills in range(100):
        left = [kills]

        def open_and_die(
            path: Any, flags: int, *more: Any, left: list[int] = left, **rest: Any
        ) -> int:
            descriptor = real(path, flags, *more, **rest)
            if flags & os.O_CREAT:
                left[0] -= 1
                if left[0] < 0:
                    os.close(descriptor)
                    raise Killed
            return descriptor

        folder = SparkFolder(tmp_path / f"{kills}" / "spark", lineage)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", open_and_die)
            try:
                folder.prepare(None)
                break
            except Killed:
                pass
        folder.prepare(None)
        assert json.loads((folder.path / "metadata").read_text()) == {"id": lineage.id}
        assert folder.planned() == (0 if start else -1)
        if start:
            assert folder.offsets(0).end == start
    assert kills == (3 if start else 1)


# -- where a micro-batch begins --------------------------------------------------------------------


def test_the_first_micro_batch_begins_where_its_end_says_and_others_where_the_one_before_ended(
    tmp_path: Path,
) -> None:
    at = [
        SourceOffset.of("kafka", [PartitionOffset("t", "id-1", 0, offset)]) for offset in (5, 8, 9)
    ]
    first = replace(at[1], begin=at[0].partitions).to_line()
    other = '{"logOffset":3}'
    note_offsets(tmp_path, 0, first, other, "-")
    note_offsets(tmp_path, 1, at[2].to_line(), other, first)
    folder = SparkFolder(tmp_path, FRESH)
    assert folder.offsets(0) == FrozenOffsets((at[0].to_line(), None, None), (first, other, None))
    assert folder.offsets(1) == FrozenOffsets(
        (first, other, at[0].to_line()), (at[2].to_line(), other, first)
    )


def note_offsets(folder: Path, batch: int, *lines: str) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))


# -- durable before the decision -------------------------------------------------------------------


def test_what_spark_wrote_for_the_first_micro_batch_is_durable_before_it_is_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = SyncTape(monkeypatch)
    world.run(0)
    assert {"chk/metadata", "offsets/0", "chk/offsets", "chk/commits"} <= set(
        tape.before_decision()
    )


def test_what_spark_wrote_for_each_next_micro_batch_is_durable_before_it_is_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(0)
    tape = SyncTape(monkeypatch)
    world.run(1)
    assert {"offsets/1", "commits/0", "chk/offsets", "chk/commits"} <= set(tape.before_decision())
    assert "file system" not in tape.calls


@pytest.mark.parametrize(
    "kept", ["state/0/0/1.delta", "sources/0/0", f"{replay_guard.FOLDER}/5-2/0"]
)
def test_what_state_and_sources_have_written_is_durable_before_the_decision(
    world: World, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    (world.folder / kept).parent.mkdir(parents=True)
    (world.folder / kept).write_text("v1")
    tape = SyncTape(monkeypatch)
    world.run(0)
    assert "file system" in tape.before_decision()


def test_nothing_is_decided_when_spark_s_log_cannot_be_made_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.freeze(0)
    acknowledged = world.write(world.job().plan(), 0)
    (world.folder / "offsets" / "0").rename(world.folder / "offsets" / "lost")
    with pytest.raises(OffsetMismatchError):
        world.job().commit(0, acknowledged)
    (world.folder / "offsets" / "lost").rename(world.folder / "offsets" / "0")
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().match("offsets/0"):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DeclinedError, match="Input/output"):
        world.job().commit(0, acknowledged)
    assert world.history().decisions == ()


# -- what a power cut leaves -----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\0" * 40])
def test_offsets_that_a_power_cut_emptied_are_named_and_can_go_when_nothing_was_decided_by_them(
    world: World, text: str
) -> None:
    world.run(0)
    world.freeze(1)
    path = world.folder / "offsets" / "1"
    path.write_text(text)
    with pytest.raises(OffsetMismatchError, match=r"offsets/1 is empty.*delete it") as raised:
        folder_of(world).prepare(newest(world))
    assert not raised.value.restartable
    path.unlink()
    folder_of(world).prepare(newest(world))


def test_a_finished_micro_batch_whose_note_a_power_cut_emptied_is_named_and_can_be_run_again(
    world: World,
) -> None:
    world.run(0)
    world.run(1)
    path = world.folder / "commits" / "1"
    path.write_text("")
    with pytest.raises(
        OffsetMismatchError, match=r"commits/1 is empty.*delete it .*commits/\.1\.crc"
    ):
        folder_of(world).prepare(newest(world))
    path.unlink()
    folder_of(world).prepare(newest(world))


def test_the_command_that_deletes_what_a_power_cut_emptied_deletes_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my job").mkdir()
    (tmp_path / "my").touch()
    world = World(tmp_path / "my job", monkeypatch)
    world.run(0)
    world.freeze(1)
    path = world.folder / "offsets" / "1"
    path.write_text("")
    with pytest.raises(OffsetMismatchError) as raised:
        folder_of(world).prepare(newest(world))
    command = raised.value.remedy[
        raised.value.remedy.index("(rm -f ") + 1 : raised.value.remedy.rindex(")")
    ]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (path.exists(), (tmp_path / "my").exists()) == (False, True)
    folder_of(world).prepare(newest(world))


def test_empty_offsets_of_a_decided_micro_batch_must_come_from_a_backup(world: World) -> None:
    world.run(0)
    (world.folder / "offsets" / "0").write_text("")
    with pytest.raises(OffsetMismatchError, match=r"offsets/0 is empty") as raised:
        folder_of(world).prepare(newest(world))
    assert "backup" in str(raised.value)
    assert "delete" not in str(raised.value)


def test_offsets_in_another_format_are_refused_until_the_folder_is_restored(
    world: World, tmp_path: Path
) -> None:
    world.run(0)
    backup = shutil.copytree(world.folder, tmp_path / "backup")
    offsets = world.folder / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace("v1", "v2", 1))
    with pytest.raises(OffsetMismatchError, match=r"has format 'v2', not 'v1'") as raised:
        folder_of(world).offsets(0)
    assert raised.value.remedy == f"leave `{OFFSET_LOG}=1`, Spark's default, and {RESTORE}"
    shutil.rmtree(world.folder)
    backup.rename(world.folder)
    folder_formats.check("Job 'orders'", {OFFSET_LOG: "1"})
    assert folder_of(world).offsets(0).end == ('{"next": 10}',)
    world.run(1)
    assert world.ids() == world.expected(2)


@pytest.mark.parametrize("name", ["metadata", "offsets/0"])
def test_a_disk_that_cannot_be_read_is_no_mismatch(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mismatch would stop the job for good, although the next start may read it."""
    world.run(0)
    read, decided, folder = Path.read_text, newest(world), folder_of(world)

    def failing(path: Path, *arguments: Any, **options: Any) -> str:
        if path == folder.path / name:
            raise OSError(5, "Input/output error")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", failing)
    with pytest.raises(OSError, match="Input/output error"):
        folder.check(decided) if name == "metadata" else folder.offsets(0)

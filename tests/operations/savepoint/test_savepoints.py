"""Savepoints of a job that keeps state, without Spark: what they hold, what is refused, and
SIGKILL at every step of their making, finishing, restoring and disposal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.newer_version import renew
from harness.savepoint_world import World, killed
from tests.state.conftest import snapshot
from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    NewerFormatError,
    RestoreRefusedError,
    SavepointError,
    SavepointUnfinishedError,
    TwoPhaseError,
)
from twophase.events import Event, Observer, Observers, SavepointMade
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint import format as format_module
from twophase.operations.savepoint import savepoint_restore
from twophase.operations.savepoint.format import Savepoint, dispose
from twophase.operations.savepoint.make import JobSavepoints, list_savepoints, open_savepoint
from twophase.options.job_options import JobOptions
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A savepoint has several parts."""
    monkeypatch.setattr(format_module, "PART_BYTES", 64)


def restoring(path: Path) -> dict[str, str]:
    return {"restore.path": str(path)}


def moved(path: Path) -> Path:
    return path.rename(path.with_name("moved"))


# -- the whole path --------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
def test_a_job_goes_on_from_a_savepoint_that_was_moved(world: World) -> None:
    world.drive(3)
    there = moved(world.make())
    shutil.rmtree(world.root / "job")
    open_savepoint(str(there)).verify()
    world.drive(5, "again", **restoring(there))
    world.is_exact("again", 5)
    world.drive(7, "again", **restoring(there))  # the option may stay set
    shutil.rmtree(there)
    world.drive(8, "again")
    world.is_exact("again", 8)


def test_a_restored_savepoint_stays_as_it_is(world: World) -> None:
    world.drive(2)
    saved = world.make()
    before = snapshot(saved)
    world.drive(6, "again", **restoring(saved))
    assert snapshot(saved) == before


def test_a_savepoint_of_a_restored_job_is_restored_too(world: World) -> None:
    world.drive(2)
    world.drive(3, "second", **restoring(world.make("first")))
    world.drive(5, "third", **restoring(world.make("next", "second")))
    world.is_exact("third", 5)


def test_it_has_what_belongs_to_its_cut_and_nothing_newer(world: World) -> None:
    world.drive(3)
    spark = world.spark()
    for name in ("offsets/3", "state/0/0/4.delta", "state/0/0/.3.delta.crc", "metadata.tmp"):
        (spark / name).touch()
    files = [file.path for file in open_savepoint(str(world.make())).manifest.files]
    body, *copied = files
    assert body.startswith("checkpoints/")
    assert sorted(copied) == sorted(
        f"spark/{name}"
        for name in (
            *("offsets/1", "offsets/2", "commits/2", "state/0/_metadata/metadata"),
            *("state/0/0/1.delta", "state/0/0/2.delta", "state/0/0/3.delta"),
        )
    )


def test_the_making_changes_nothing_in_the_job_s_folder(world: World) -> None:
    world.drive(3)
    before = snapshot(world.root / "job")
    world.make()
    assert snapshot(world.root / "job") == before


def test_an_older_savepoint_is_refused_while_the_sinks_are_ahead(world: World) -> None:
    world.drive(2)
    path = world.make()
    world.drive(3)
    for folder in ("job", "again"):
        with pytest.raises(RestoreRefusedError):
            world.drive(5, folder, **restoring(path))
    assert not [*(world.root / "again").glob("spark/*")]
    world.drive(4)
    world.is_exact("job", 4)


def test_a_driver_whose_folder_a_newer_one_has_deleted_does_not_write_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still while it writes Spark's files, and is overtaken. Nobody would delete the
    rest: the mark that names its generation is gone.
    """
    world.drive(2)
    path = world.make()

    left = [world.root / "again" / "spark"]

    def overtaken(_: str) -> None:
        for written in left.pop().iterdir() if left else ():
            shutil.rmtree(written)

    monkeypatch.setattr(savepoint_restore, "failpoint", overtaken)
    with pytest.raises(SavepointError, match="could not be written"):
        world.drive(3, "again", **restoring(path))
    assert not [*(world.root / "again" / "spark").iterdir()]


def test_a_checkpoint_that_is_decided_and_not_committed_is_committed_by_the_restore(
    world: World,
) -> None:
    world.drive(2)
    assert killed("C16", lambda: world.drive(3))
    with pytest.raises(SavepointError, match="Spark has not finished micro-batch 2"):
        world.make()
    (world.spark() / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    world.drive(3)
    assert killed("C11", lambda: world.drive(4))
    (world.spark() / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    found = open_savepoint(str(path))
    assert not found.is_committed
    assert world.prepared() == 4
    shutil.rmtree(world.root / "job")
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


# -- what is refused -------------------------------------------------------------------------------


def refused(world: World, kind: type[TwoPhaseError], match: str, path: Path) -> TwoPhaseError:
    """The start is refused, and nothing is written anywhere."""
    (world.root / "again").mkdir(mode=0o700, exist_ok=True)
    before = snapshot(world.root)
    with pytest.raises(kind, match=match) as caught:
        world.drive(5, "again", **restoring(path))
    assert snapshot(world.root) == before
    assert caught.value.remedy
    return caught.value


def half_copied(path: Path) -> None:
    (path / "_savepoint").unlink()


def part_missing(path: Path) -> None:
    [part] = (path / "data").iterdir()
    part.unlink()


def cut_off(path: Path) -> None:
    [part] = (path / "data").iterdir()
    os.truncate(part, part.stat().st_size - 1)


def edited(path: Path) -> None:
    """The digits of the state may also be in another file, as part of a random id."""
    [part] = (path / "data").iterdir()
    files = open_savepoint(str(path)).manifest.files
    [state] = [file for file in files if file.path == "spark/state/0/0/3.delta"]
    data, end = part.read_bytes(), state.start + state.length
    changed = data[state.start : end].replace(b"435", b"436")
    assert changed != data[state.start : end]
    part.write_bytes(data[: state.start] + changed + data[end:])


def manifest_edited(path: Path) -> None:
    manifest = path / "_savepoint"
    manifest.write_bytes(manifest.read_bytes().replace(b"orders", b"others"))


def newer(path: Path) -> None:
    renew(path / "_savepoint")


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def part_linked(path: Path) -> None:
    [part] = (path / "data").iterdir()
    part.rename(path.parent / "part")
    part.symlink_to(path.parent / "part")


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def gone(path: Path) -> None:
    shutil.rmtree(path)


BAD: dict[str, tuple[Callable[[Path], None], type[TwoPhaseError], str]] = {
    "half copied": (half_copied, ConfigError, "is incomplete: it has no manifest"),
    "a part missing": (part_missing, CorruptRecordError, "0000000 is missing"),
    "cut off": (cut_off, CorruptRecordError, "is too short for"),
    "edited by hand": (edited, CorruptRecordError, "SHA-256 of spark/state/0/0/3.delta"),
    "manifest edited": (manifest_edited, CorruptRecordError, "manifest .* is damaged"),
    "newer": (newer, NewerFormatError, "written by a newer twophase"),
    "a link": (linked, ConfigError, "is not a folder"),
    "a part that is a link": (part_linked, CorruptRecordError, "symbolic link"),
    "writable by everyone": (open_to_all, ConfigError, "writable by everyone"),
    "gone": (gone, ConfigError, "is not a checkpoint"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_savepoint_is_refused_by_name_before_anything_is_written(
    world: World, case: str
) -> None:
    spoil, kind, match = BAD[case]
    world.drive(3)
    path = world.make()
    original = shutil.copytree(path, world.root / "original")
    spoil(path)
    refused(world, kind, match, path)
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, path)
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


def test_a_part_that_is_cut_off_or_changed_anywhere_is_noticed(world: World) -> None:
    world.drive(1)
    path = world.make()
    [part] = (path / "data").iterdir()
    whole = part.read_bytes()
    for place in range(0, len(whole), 7):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((CorruptRecordError, NewerFormatError)):
            open_savepoint(str(path)).verify()
        part.write_bytes(whole[:place])
        with pytest.raises(CorruptRecordError):
            open_savepoint(str(path)).verify()
    part.write_bytes(whole)
    open_savepoint(str(path)).verify()


def test_one_of_another_job_is_refused(world: World) -> None:
    world.drive(1)
    path = world.make()
    manifest = path / "_savepoint"
    fields = json.loads(manifest.read_bytes().partition(b"\n")[2])
    manifest.write_bytes(codec.encode("SAVEPOINT", fields | {"job": "invoices"}))
    error = refused(world, ConfigError, "is one of job 'invoices', not of 'orders'", path)
    assert "name a savepoint of this job" in error.remedy


@pytest.mark.parametrize("path", ["../out", "/etc/x", "spark/../../x", "spark//x", ""])
def test_a_path_that_leads_elsewhere_is_refused(world: World, path: str) -> None:
    world.drive(1)
    made = world.make()
    manifest = made / "_savepoint"
    fields = json.loads(manifest.read_bytes().partition(b"\n")[2])
    fields["files"][-1]["path"] = path
    manifest.write_bytes(codec.encode("SAVEPOINT", fields))
    refused(world, CorruptRecordError, "names files outside the savepoint", made)


def test_no_room_for_the_restore_is_noticed_before_it_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive(2)
    path = world.make()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
        refused(world, SavepointError, "the disk of .* has 1 left", path)
    world.drive(3, "again", **restoring(path))
    world.is_exact("again", 3)


def test_a_restore_goes_on_when_there_is_room_for_spark_s_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive(2)
    path = world.make()

    def is_full(folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(savepoint_restore, "sync_file_system", is_full)
        with pytest.raises(SavepointError, match=r"could not be written to .*No space left"):
            world.drive(3, "again", **restoring(path))
    assert not [*(world.root / "again" / "spark").iterdir()]
    world.drive(3, "again", **restoring(path))
    world.is_exact("again", 3)


def full(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The disk is full after so many more writes."""
    real, left = os.write, [after]

    def write(descriptor: int, data: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)


@pytest.mark.usefixtures("small_parts")
def test_a_full_disk_in_the_middle_leaves_nothing_and_the_job_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive(3)
    before = snapshot(world.root)
    for writes in range(1000):
        with monkeypatch.context() as patch:
            full(patch, writes)
            try:
                world.make()
                break
            except SavepointError as error:
                said = str(error)
        assert "No space left on device" in said
        assert "Next: make room" in said
        assert snapshot(world.root) == before
    assert writes > 10
    open_savepoint(str(world.root / "saved")).verify()


def test_a_second_one_at_the_same_place_is_refused(world: World) -> None:
    world.drive(1)
    path = world.make()
    before = snapshot(path)
    with pytest.raises(SavepointError, match="already exists"):
        world.make()
    half_copied(path)
    with pytest.raises(SavepointError, match="is being created by another process, or was left"):
        world.make()
    (path / "_savepoint").touch()
    assert {*snapshot(path)} == {*before}


@pytest.mark.parametrize("path", ["job", "job/chk/saved", "."])
def test_one_in_the_job_s_own_folder_or_around_it_is_refused(world: World, path: str) -> None:
    world.drive(1)
    with pytest.raises(ConfigError, match="would be inside the job's own folder"):
        world.make(path)
    open_savepoint(str(world.make("elsewhere"))).verify()


def test_a_folder_with_other_files_is_refused(world: World) -> None:
    world.drive(1)
    (world.root / "mine").mkdir()
    (world.root / "mine" / "letter").touch()
    with pytest.raises(SavepointError, match="would lie among other files, such as letter"):
        world.make("mine")


def test_a_job_without_a_checkpoint_has_nothing_to_save(world: World) -> None:
    world.drive(0)
    with pytest.raises(SavepointError, match="no checkpoint of the current lineage"):
        world.make()
    assert not (world.root / "saved").exists()


def savepoints_of(
    world: World,
    stop: Callable[[], None] = lambda: None,
    observer: Observer = lambda event: None,
    **options: Any,
) -> JobSavepoints:
    """Of a job in this process, which is stopped by a function."""
    location = {"checkpointLocation": str(world.root / "job")}

    @contextmanager
    def stopped() -> Iterator[None]:
        stop()
        yield

    engine: Any = SimpleNamespace(
        job="orders",
        options=JobOptions.parse({**location, **options}, "orders"),
        observers=Observers(observer),
        storage=LocalStorage(world.root / "job"),
        clock=SystemClock(),
        still_runs=lambda: False,
        stopped_after_batch=stopped,
    )
    return JobSavepoints(engine)


def is_not_stopped() -> None:
    pytest.fail("stopped")


def test_without_a_path_each_gets_a_name_of_its_own_in_savepoint_dir(world: World) -> None:
    world.drive(1)
    options: Any = {"savepoint.dir": f"file://{world.root}/all"}
    making = savepoints_of(world, **options)
    made = {making.make(None) for _ in range(2)}
    made.add(making.stop(None))
    assert len(made) == 3
    assert {path for path, _ in list_savepoints(str(world.root / "all"))} == made
    assert all(Path(path).name.startswith("orders-") for path in made)


def test_without_a_path_and_savepoint_dir_the_job_is_not_stopped(world: World) -> None:
    world.drive(1)
    with pytest.raises(ConfigError, match="the savepoint has no path") as caught:
        savepoints_of(world, is_not_stopped).stop(None)
    assert caught.value.remedy == "give a path, or set `savepoint.dir=FOLDER`."
    given: Any = {"savepoint.dir": str(world.root / "all")}
    for made in (
        savepoints_of(world).stop(str(world.root / "given")),
        savepoints_of(world, **given).stop(None),
    ):
        open_savepoint(made).verify()


def test_a_second_one_while_one_is_under_way_is_refused_by_its_reason(world: World) -> None:
    world.drive(1)

    def stop() -> None:
        before = snapshot(world.root)
        for refused in (
            lambda: making.make(str(world.root / "second")),
            lambda: making.stop(str(world.root / "second")),
        ):
            with pytest.raises(SavepointError, match="TOO_MANY_CHECKPOINT_REQUESTS"):
                refused()
        assert snapshot(world.root) == before

    making = savepoints_of(world, stop)
    making.stop(str(world.root / "first"))
    making.make(str(world.root / "second"))
    for name in ("first", "second"):
        open_savepoint(str(world.root / name)).verify()


@pytest.mark.parametrize("path", ["job/saved", "taken"])
def test_a_job_is_not_stopped_for_a_savepoint_at_a_path_that_is_not_right(
    world: World, path: str
) -> None:
    world.drive(1)
    (world.root / "taken").mkdir()
    (world.root / "taken" / "letter").touch()
    with pytest.raises((ConfigError, SavepointError), match=r"would (lie among|be inside)"):
        savepoints_of(world, is_not_stopped).stop(str(world.root / path))


def test_a_stop_before_a_sink_could_commit_saves_it_and_says_so(world: World) -> None:
    world.drive(2)
    path = str(world.root / "saved")

    def stop() -> None:
        assert killed("C11", lambda: world.drive(3))
        (world.spark() / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')

    with pytest.raises(
        SavepointUnfinishedError, match="is complete, but checkpoint 2 is not"
    ) as one:
        savepoints_of(world, stop).stop(path)
    assert f"twophase savepoint finish JOB.yaml {path}" in one.value.remedy
    world.finish(Path(path))
    assert world.ids() == [[*range(30)]] * 2


def test_one_of_a_running_job_is_of_what_is_committed(world: World) -> None:
    world.drive(2)
    assert killed("C11", lambda: world.drive(3))
    heard: list[Event] = []
    path = str(world.root / "saved")
    savepoints_of(world, observer=heard.append).make(path)
    assert open_savepoint(path).manifest.checkpoint == 1
    assert heard == [SavepointMade("orders", 1, path)]


@pytest.mark.parametrize("another", [True, False], ids=["another one is there", "nothing is"])
def test_one_that_was_disposed_of_while_the_job_stopped_changes_nothing_there(
    world: World, another: bool
) -> None:
    """Its claim looks like what a killed one has left, which the remedy disposes of."""
    world.drive(1)
    path = world.root / "saved"

    def stop() -> None:
        dispose(LocalStorage(path), str(path))
        if another:
            world.make()

    with pytest.raises(SavepointError, match="was disposed of while it was being made") as caught:
        savepoints_of(world, stop).stop(str(path))
    assert caught.value.remedy == "name another folder, then try again."
    if another:
        open_savepoint(str(path)).verify()
    else:
        assert not any(path.rglob("*"))
    open_savepoint(savepoints_of(world).stop(str(world.root / "other"))).verify()


# -- disposal --------------------------------------------------------------------------------------


def test_what_is_disposed_of_is_gone(world: World) -> None:
    world.drive(1)
    path = world.make()
    dispose(LocalStorage(path), str(path))
    assert not path.exists()


def test_the_folder_itself_may_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a mount, say: what is left is an empty folder."""
    world.drive(1)
    path, remove = world.make(), os.rmdir

    def busy(folder: Path, **given: Any) -> None:
        if Path(folder) == path:
            raise OSError(errno.EBUSY, "Device or resource busy", str(folder))
        remove(folder, **given)

    monkeypatch.setattr(os, "rmdir", busy)
    dispose(LocalStorage(path), str(path))
    assert [*path.iterdir()] == []
    full(monkeypatch, after=0)
    with pytest.raises(SavepointError, match="Nothing of it is left"):
        world.make()
    monkeypatch.undo()
    open_savepoint(str(world.make())).verify()


def test_nothing_is_disposed_of_that_is_not_a_savepoint_or_has_other_files_in_it(
    world: World,
) -> None:
    world.drive(1)
    path = world.make()
    (path / "letter").touch()
    before = snapshot(world.root)
    with pytest.raises(ConfigError, match="also holds other files, such as letter"):
        dispose(LocalStorage(path), str(path))
    with pytest.raises(ConfigError, match="is not a savepoint"):
        dispose(LocalStorage(world.root / "job"), "the job")
    assert snapshot(world.root) == before
    (path / "letter").rename(world.root / "letter")
    dispose(LocalStorage(path), str(path))
    assert not path.exists()
    world.drive(2)
    world.is_exact("job", 2)


@pytest.mark.parametrize("name", ["letter", "index", "data/0000000.index"])
def test_one_of_a_newer_version_is_not_disposed_of_whatever_it_has_besides(
    world: World, name: str
) -> None:
    """What looks foreign may be of that version: nobody is told to move it away."""
    world.drive(1)
    path = world.make()
    renew(path / "_savepoint")
    (path / name).touch()
    before = snapshot(world.root)
    with pytest.raises(ConfigError, match="was made by a newer version of twophase") as caught:
        dispose(LocalStorage(path), str(path))
    assert caught.value.remedy == "dispose of it with that version."
    assert snapshot(world.root) == before


def test_a_list_says_which_are_usable(world: World) -> None:
    world.drive(1)
    half_copied(world.make("half"))
    world.make("whole")
    found = dict(list_savepoints(str(world.root)))
    assert {Path(path).name: type(one).__name__ for path, one in found.items()} == {
        "half": "ConfigError",
        "whole": "Savepoint",
    }


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_one_that_cannot_be_read_does_not_hide_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The first of them in a list."""
    world.drive(1)
    theirs = world.make("a theirs")
    world.make("mine")
    stat = Path.stat

    def fails(self: Path, **given: Any) -> os.stat_result:
        if theirs in self.parents:
            raise OSError(code, os.strerror(code), str(self))
        return stat(self, **given)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fails)
        found = dict(list_savepoints(str(world.root)))
    error = found.pop(str(theirs))
    assert isinstance(error, ConfigError)
    assert f"{theirs} cannot be read: {os.strerror(code)}." in str(error)
    assert [Path(path).name for path in found] == ["mine"]
    [run] = re.findall(r"\((ls .*)\)", error.remedy)
    shown = subprocess.run(shlex.split(run), check=True, capture_output=True, text=True).stdout
    assert theirs.owner() in shown.split()
    assert all(
        isinstance(one, Savepoint) for one in dict(list_savepoints(str(world.root))).values()
    )


def test_one_whose_manifest_cannot_be_read_does_not_hide_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive(1)
    broken, opened = world.make("broken"), os.open
    world.make("whole")

    def fails(path: Any, *given: Any) -> int:
        if Path(path) == broken / "_savepoint":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return opened(path, *given)

    monkeypatch.setattr(os, "open", fails)
    found = {Path(path).name: one for path, one in list_savepoints(str(world.root))}
    assert isinstance(found["whole"], Savepoint)
    assert isinstance(found["broken"], ConfigError)


# -- SIGKILL ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["S01", "S02", "S02@3", "S03", "S04"])
def test_a_kill_while_one_is_made_leaves_a_whole_one_or_none(world: World, point: str) -> None:
    world.drive(3)
    assert killed(point, world.make)
    path = world.root / "saved"
    if point == "S04":
        open_savepoint(str(path)).verify()
    else:
        refused(world, ConfigError, "is incomplete", path)
        dispose(LocalStorage(path), str(path))
        world.make()
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


IN_RESTORE = ["C18", "C22", "S05", "S05@4", "S06", "S07", "C01", "C06", "C11", "C16"]


@pytest.mark.parametrize("keeps_the_option", [True, False])
@pytest.mark.parametrize("point", IN_RESTORE)
def test_a_kill_in_a_restore_loses_nothing_and_repeats_nothing(
    world: World, point: str, keeps_the_option: bool
) -> None:
    world.drive(3)
    path = world.make()
    shutil.rmtree(world.root / "job")
    assert killed(point, lambda: world.drive(5, "again", **restoring(path)))
    begun = world.history("again").lineage is not None
    assert begun == (point in ("S07", "C01", "C06", "C11", "C16"))
    world.drive(5, "again", **(restoring(path) if keeps_the_option or not begun else {}))
    world.is_exact("again", 5)
    assert len([*(world.root / "again" / "spark").iterdir()]) == 1, "a folder was left behind"


@pytest.mark.parametrize("point", [*IN_RESTORE, "C12", "C13", "C14", "C15"])
def test_a_kill_in_a_restore_that_commits_what_was_pending(world: World, point: str) -> None:
    path = unfinished(world)
    shutil.rmtree(world.root / "job")
    assert killed(point, lambda: world.drive(5, "again", **restoring(path)))
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


def unfinished(world: World) -> Path:
    """A savepoint of checkpoint 2, which is decided and committed nowhere."""
    world.drive(2)
    assert killed("C11", lambda: world.drive(3))
    (world.spark() / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make()
    assert not open_savepoint(str(path)).is_committed
    return path


@pytest.mark.parametrize("point", ["", "C18", "C12", "C13", "C14", "C15", "C19", "C22", "S08"])
def test_a_kill_while_one_is_finished_leaves_one_that_can_be_finished(
    world: World, point: str
) -> None:
    path = unfinished(world)
    assert killed(point, lambda: world.finish(path)) == bool(point)
    world.finish(path)
    assert world.ids() == [[*range(30)]] * 2
    assert open_savepoint(str(path)).is_committed
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


def test_one_is_finished_again_that_could_not_be_written_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = unfinished(world), os.link

    def fails(source: Path, target: Path, **given: Any) -> None:
        if Path(target).is_relative_to(path):
            raise OSError(30, "Read-only file system", str(target))
        link(source, target, **given)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fails)
        with pytest.raises(SavepointError, match="that could not be recorded in it") as caught:
            world.finish(path)
    assert f"run the same command again once {path} is writable" in caught.value.remedy
    assert world.ids() == [[*range(30)]] * 2
    assert not open_savepoint(str(path)).is_committed
    world.finish(path)
    assert open_savepoint(str(path)).is_committed


def test_a_finished_one_that_another_is_copied_over_is_damaged(world: World) -> None:
    """Whether the other one is finished is not known; `verify` after the copy says so."""
    path = unfinished(world)
    world.finish(path)
    assert killed("C11", lambda: world.drive(4))
    (world.spark() / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    shutil.copytree(world.make("newer"), path, dirs_exist_ok=True)
    with pytest.raises(CorruptRecordError, match="its _finished is of another one") as caught:
        open_savepoint(str(path)).verify()
    assert "copy it again, into an empty folder" in caught.value.remedy
    refused(world, CorruptRecordError, "its _finished is of another one", path)
    listed = {Path(at).name: one for at, one in list_savepoints(str(world.root))}
    assert isinstance(listed["saved"], CorruptRecordError)
    assert not isinstance(listed["newer"], TwoPhaseError)
    (path / "_finished").write_bytes(b"\0")
    with pytest.raises(CorruptRecordError, match="its _finished cannot be read") as caught:
        open_savepoint(str(path)).verify()
    assert caught.value.remedy.startswith("copy the savepoint again")
    shutil.rmtree(path)
    shutil.copytree(world.root / "newer", path)
    world.drive(5, "again", **restoring(path))
    world.is_exact("again", 5)


def test_one_is_not_finished_in_a_folder_that_does_not_know_it(world: World) -> None:
    path = unfinished(world)
    shutil.rmtree(world.root / "job")
    with pytest.raises(ConfigError, match="does not know lineage") as caught:
        world.finish(path)
    assert f"twophase run JOB.yaml --restore {path}" in caught.value.remedy
    assert world.prepared() == 4


@pytest.mark.parametrize("point", ["S09", "S09@2", "S10", "S10@3"])
def test_a_kill_while_one_is_disposed_of_leaves_one_that_can_be_disposed_of(
    world: World, point: str
) -> None:
    world.drive(3)
    assert not killed("", world.make)
    path = world.root / "saved"

    def disposing() -> None:
        dispose(LocalStorage(path), str(path))

    assert killed(point, disposing)
    refused(world, ConfigError, "is incomplete", path)
    disposing()
    assert not path.exists()
    world.drive(5)
    world.is_exact("job", 5)

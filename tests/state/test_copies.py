"""`checkpoint.copies`: bodies and state files in more than one folder."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import Driver, decided, visible
from tests.state.conftest import JOB, snapshot
from tests.state.test_state_files import LARGE, take, with_states
from twophase import failpoints
from twophase.config import JobOptions
from twophase.errors import CheckpointMissingError, ConfigError, CorruptRecordError
from twophase.failpoints import FailpointError
from twophase.state.copies import readable_copies, with_copies
from twophase.state.entries import FenceRecord
from twophase.state.log import JobLog
from twophase.state.storage import LocalStorage, ReadOnlyStorage
from twophase.state.store import CompletedCheckpointStore
from twophase.testing.memory import MemoryTarget

Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


DAMAGES: dict[str, Damage] = {
    "gone": Path.unlink,
    "flipped": flip,
    "empty": lambda path: path.write_bytes(b""),
    "link": link,
}


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    return [tmp_path / "copy 1", tmp_path / "copy 2"]


@pytest.fixture
def store(storage: LocalStorage, log: JobLog, copies: list[Path]) -> CompletedCheckpointStore:
    return open_store(storage, log, copies)


def open_store(
    storage: LocalStorage, log: JobLog, copies: list[Path], num_retained: int = 1
) -> CompletedCheckpointStore:
    files = with_copies(JOB, storage, [str(copy) for copy in copies])
    return CompletedCheckpointStore(files, log, num_retained)


def next_driver(storage: LocalStorage) -> JobLog:
    log = JobLog(storage, JOB)
    log.append(FenceRecord(log.read().generation + 1))
    return log


def checkpoint_files(folder: Path) -> dict[str, bytes]:
    """The content of every file of a checkpoint below a folder."""
    found = {}
    for name in ("chk", "state"):
        for path in sorted((folder / name).rglob("*")):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def test_every_folder_has_the_body_and_the_state_files(
    store: CompletedCheckpointStore, log: JobLog, folder: Path, copies: list[Path]
) -> None:
    take(store, log, 0)
    assert len(checkpoint_files(folder)) == 2
    assert [checkpoint_files(copy) for copy in copies] == [checkpoint_files(folder)] * 2


def test_a_copy_is_for_its_user_only(
    store: CompletedCheckpointStore, log: JobLog, copies: list[Path]
) -> None:
    take(store, log, 0)
    modes = {path.stat().st_mode & 0o077 for copy in copies for path in (copy, *copy.rglob("*"))}
    assert modes == {0}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", ["chk", "state"])
def test_a_damaged_file_is_read_from_the_first_intact_copy_and_that_is_said(
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    copies: list[Path],
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: Damage,
) -> None:
    decision = take(store, log, 0)
    wanted = store.read_with_states(decision)
    for root in (folder, copies[0]):
        [path] = [root / found for found in checkpoint_files(root) if found.startswith(name)]
        damage(path)
    with caplog.at_level(logging.WARNING, "twophase"):
        assert store.read_with_states(decision) == wanted
    [message] = caplog.messages
    assert path.name in message
    assert f"its copy in {copies[1]} is intact" in message


@pytest.mark.parametrize(
    ("damage", "error"), [("gone", CheckpointMissingError), ("flipped", CorruptRecordError)]
)
def test_without_an_intact_copy_the_error_is_that_of_the_jobs_folder(
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    copies: list[Path],
    damage: str,
    error: type[Exception],
) -> None:
    decision = take(store, log, 0)
    DAMAGES[damage](folder / decision.folder / "_metadata")
    for copy in copies:
        flip(copy / decision.folder / "_metadata")
    with pytest.raises(error, match="body of"):
        store.read(decision)


def test_a_whole_body_of_another_checkpoint_is_no_copy(
    store: CompletedCheckpointStore, log: JobLog, folder: Path, copies: list[Path]
) -> None:
    first = store.prepare(with_states(0))
    second = store.prepare(with_states(1))
    for copy in copies:
        (copy / first.folder / "_metadata").replace(copy / second.folder / "_metadata")
    flip(folder / second.folder / "_metadata")
    with pytest.raises(CorruptRecordError, match="not the one that was decided"):
        store.read(second)


def test_a_copy_that_cannot_be_written_does_not_decline_the_checkpoint(
    store: CompletedCheckpointStore,
    log: JobLog,
    copies: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (copies[0] / "chk").write_text("no folder")
    with caplog.at_level(logging.WARNING, "twophase"):
        decision = take(store, log, 0)
    assert any(f"{copies[0]} lacks {decision.folder}" in one for one in caplog.messages)
    assert f"{decision.folder}/_metadata" in checkpoint_files(copies[1])
    assert store.read(decision).checkpoint == 0


def test_a_folder_that_is_not_reachable_is_left_out_until_the_next_start(
    storage: LocalStorage, log: JobLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "twophase"):
        store = open_store(storage, log, [tmp_path / "file" / "copy", tmp_path / "good"])
    assert "is not used until the next start" in caplog.text
    decision = take(store, log, 0)
    assert f"{decision.folder}/_metadata" in checkpoint_files(tmp_path / "good")


def test_copies_go_with_the_checkpoint(
    storage: LocalStorage, log: JobLog, folder: Path, copies: list[Path]
) -> None:
    store = open_store(storage, log, copies, num_retained=2)
    for number in range(5):
        take(store, log, number)
        store.subsume()
    assert len(checkpoint_files(folder)) == 4
    assert [checkpoint_files(copy) for copy in copies] == [checkpoint_files(folder)] * 2


def test_a_declined_attempt_leaves_no_copy(
    store: CompletedCheckpointStore, copies: list[Path]
) -> None:
    decision = store.prepare(with_states(0))
    store.discard(decision.lineage, decision.checkpoint, decision.attempt)
    assert [checkpoint_files(copy) for copy in copies] == [{}, {}]


@pytest.mark.parametrize("point", ["K01", "K01@2", "K01@3", "K01@4"])
def test_what_a_dead_driver_has_copied_is_swept(
    store: CompletedCheckpointStore,
    storage: LocalStorage,
    copies: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    die_at(monkeypatch, point, lambda: store.prepare(with_states(0)))
    open_store(storage, next_driver(storage), copies).sweep()
    assert [checkpoint_files(root) for root in (storage.root, *copies)] == [{}, {}, {}]


@pytest.mark.parametrize("hit", range(1, 9))
def test_a_deletion_that_died_is_finished_in_every_folder(
    store: CompletedCheckpointStore,
    log: JobLog,
    storage: LocalStorage,
    copies: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    hit: int,
) -> None:
    take(store, log, 0)
    newest = take(store, log, 1)
    die_at(monkeypatch, f"K02@{hit}", store.subsume)
    continued = open_store(storage, next_driver(storage), copies)
    continued.subsume()
    continued.sweep()
    left = [checkpoint_files(root) for root in (storage.root, *copies)]
    assert left[0].keys() == {name for name in left[0] if newest.folder[4:] in name}
    assert left == [left[0]] * 3
    assert len(left[0]) == 2


def test_what_only_a_copy_has_is_swept_too(
    store: CompletedCheckpointStore, storage: LocalStorage, folder: Path, copies: list[Path]
) -> None:
    store.prepare(with_states(0))
    for name in ("chk", "state"):
        shutil.rmtree(folder / name)
    open_store(storage, next_driver(storage), copies).sweep()
    assert [checkpoint_files(copy) for copy in copies] == [{}, {}]


def die_at(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], object]) -> None:
    name, _, hit = point.partition("@")
    monkeypatch.setattr(failpoints, "_rules", failpoints._parse(f"{name}=raise@{hit or 1}"))
    monkeypatch.setattr(failpoints, "_hits", {})
    with pytest.raises(FailpointError):
        act()
    monkeypatch.undo()


def test_a_copy_of_another_job_is_refused_and_not_touched(
    store: CompletedCheckpointStore, log: JobLog, copies: list[Path], tmp_path: Path
) -> None:
    take(store, log, 0)
    before = snapshot(copies[0])
    with pytest.raises(ConfigError, match="holds the copies of job 'orders'"):
        with_copies("another", LocalStorage(tmp_path / "other"), [str(copies[0])])
    assert snapshot(copies[0]) == before


@pytest.mark.parametrize("inside", ["job", "job/chk", "."])
def test_a_copy_within_the_jobs_folder_or_around_it_is_refused(
    storage: LocalStorage, tmp_path: Path, inside: str
) -> None:
    with pytest.raises(ConfigError, match="own folder"):
        with_copies(JOB, storage, [str(tmp_path / inside)])


def test_a_folder_that_is_named_twice_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "copy")
    with pytest.raises(ConfigError, match="twice"):
        with_copies(JOB, storage, [str(tmp_path / "copy"), str(tmp_path / "link")])


def test_readers_use_copies_and_write_nothing(
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    copies: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    decision = take(store, log, 0)
    flip(folder / decision.folder / "_metadata")
    before = [snapshot(root) for root in (folder, *copies)]
    missing = copies[0].parent / "nowhere"
    with caplog.at_level(logging.WARNING, "twophase"):
        files = readable_copies(ReadOnlyStorage(folder), [str(missing), str(copies[1])])
        found = CompletedCheckpointStore(files, log, 1).read_with_states(decision)
    assert found.function_states["dedup"][1].data == LARGE.data
    assert "nowhere" in caplog.text
    assert [snapshot(root) for root in (folder, *copies)] == before
    assert not missing.exists()


def test_a_driver_recovers_with_a_copy_of_a_damaged_body(tmp_path: Path) -> None:
    """Decided, and committed nowhere: without the body its pieces could not be committed."""
    folder, targets = tmp_path / "job", {"facts": MemoryTarget()}
    options = {"checkpoint.copies": str(tmp_path / "copy")}
    decided(Driver(folder, targets, options).recover(), 0)
    [body] = folder.glob("chk/*/_metadata")
    flip(body)
    with pytest.raises(CorruptRecordError):
        Driver(folder, targets).recover()
    assert visible(targets["facts"]) == []
    Driver(folder, targets, options).recover()
    assert visible(targets["facts"]) == list(range(10))


def test_the_option_takes_folders_separated_by_commas() -> None:
    options = JobOptions.parse(
        {"checkpointLocation": "/job", "checkpoint.copies": "/disk 2/orders, /mnt/nfs/orders"}, ""
    )
    assert options.copies == ("/disk 2/orders", "/mnt/nfs/orders")

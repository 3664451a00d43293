"""The store of completed checkpoints: a body is read only if it is the very one that was
decided (invariant I9).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.conftest import (
    JOB,
    LINEAGE,
    REFUSED,
    bit_flips,
    checkpoint,
    decide,
    snapshot,
    truncations,
)
from tests.state.files.test_codec import VALUES, framed
from tests.state.journal.test_records import histories
from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    DeclinedError,
    NewerFormatError,
)
from twophase.ids import Attempt
from twophase.internals.json_values import canonical_json, to_json
from twophase.state.checkpoints import store as module
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore, decode_body, retained
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord, Decision, FenceRecord, Lineage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

Patch = pytest.MonkeyPatch


def body(folder: Path, decision: Decision) -> Path:
    return folder / decision.folder / "_metadata"


def bodies(folder: Path) -> list[int]:
    """The checkpoints whose bodies are there."""
    return sorted(
        int(path.parent.name.rsplit("-", 2)[1]) for path in (folder / "chk").glob("*/_metadata")
    )


def commit(log: JobLog, decision: Decision) -> None:
    log.append(CommittedRecord(decision.lineage, decision.checkpoint))


# -- write and read --------------------------------------------------------------------------------


def test_decided_checkpoints_are_read(store: CompletedCheckpointStore, log: JobLog) -> None:
    decision = decide(store, 0)
    assert store.read(decision) == checkpoint(0)
    assert log.history.decisions == (decision,)


def test_a_body_alone_decides_nothing(store: CompletedCheckpointStore, folder: Path) -> None:
    store.prepare(checkpoint(0))
    assert bodies(folder) == [0]
    assert JobLog(LocalStorage(folder), JOB).read().decisions == ()


def test_the_body_is_durable_before_the_record_is_tried(
    store: CompletedCheckpointStore, monkeypatch: Patch
) -> None:
    created: list[str] = []
    create = LocalStorage.create

    def note(self: LocalStorage, name: str, *rest: Any) -> None:
        create(self, name, *rest)
        created.append(name)

    monkeypatch.setattr(LocalStorage, "create", note)
    decision = decide(store, 0)
    assert created == [f"{decision.folder}/_metadata", "log/0000000003"]


@pytest.mark.parametrize("value", [float("nan"), b"bytes", {1, 2}])
def test_a_state_that_is_not_json_is_declined_before_anything_is_written(
    store: CompletedCheckpointStore, folder: Path, value: object
) -> None:
    before = snapshot(folder)
    with pytest.raises(
        DeclinedError, match="checkpoint 0 holds an operator state or a handle that is not JSON"
    ):
        store.prepare(replace(checkpoint(0), functions={"mine": value}))
    assert snapshot(folder) == before
    as_json = replace(checkpoint(0), functions={"mine": [str(value)]})
    assert store.read(store.prepare(as_json)) == as_json


def test_a_body_that_could_not_be_read_back_is_not_written(
    store: CompletedCheckpointStore, folder: Path
) -> None:
    with pytest.raises(OSError, match="too large to be read back"):
        store.prepare(replace(checkpoint(0), functions={"mine": "x" * codec.MAX_BYTES}))
    assert not (folder / "chk").exists()


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("damage", [truncations, bit_flips])
def test_i9_no_truncation_and_no_changed_bit_of_a_body_is_accepted(
    store: CompletedCheckpointStore, folder: Path, damage: Any, monkeypatch: Patch
) -> None:
    decision = decide(store, 0)
    before = snapshot(folder)
    content = [b""]
    monkeypatch.setattr(LocalStorage, "read", lambda self, name: content[0])
    for content[0] in damage(body(folder, decision).read_bytes()):
        with pytest.raises(REFUSED):
            store.read(decision)
    assert snapshot(folder) == before


def test_h20_a_damaged_body_is_never_replaced_by_an_older_one(
    store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    commit(log, decide(store, 0))
    newest = decide(store, 1)
    whole = body(folder, newest).read_bytes()
    body(folder, newest).write_bytes(b"")
    with pytest.raises(
        CorruptRecordError, match=r"body of checkpoint 1 .* is not the one that was decided"
    ) as caught:
        store.read(newest)
    assert "Nothing was written or deleted. Next: restore this file from a backup" in str(
        caught.value
    )
    body(folder, newest).write_bytes(whole)
    assert store.read(newest) == checkpoint(1)


def test_the_body_of_another_checkpoint_is_refused(
    store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    first, second = decide(store, 0), decide(store, 1)
    shutil.copy(body(folder, first), body(folder, second))
    with pytest.raises(CorruptRecordError, match="its SHA-256 differs from the log"):
        store.read(second)


def test_the_body_of_a_declined_attempt_is_refused_in_the_place_of_the_decided_one(
    store: CompletedCheckpointStore, folder: Path
) -> None:
    declined = store.prepare(checkpoint(0, counter=1))
    decision = store.prepare(checkpoint(0, counter=2))
    store.decide(decision)
    shutil.copy(body(folder, declined), body(folder, decision))
    with pytest.raises(CorruptRecordError):
        store.read(decision)


def test_a_body_that_is_gone_is_named_as_missing(
    store: CompletedCheckpointStore, folder: Path
) -> None:
    decision = decide(store, 0)
    shutil.copytree(folder, folder.with_name("backup"))
    body(folder, decision).unlink()
    with pytest.raises(
        CheckpointMissingError, match=r"body of the decided checkpoint 0 .* is missing"
    ):
        store.read(decision)
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)
    assert store.read(decision) == checkpoint(0)


def test_a_folder_that_is_gone_is_named_as_missing(
    store: CompletedCheckpointStore, folder: Path
) -> None:
    decision = decide(store, 0)
    shutil.rmtree(folder / "chk")
    with pytest.raises(CheckpointMissingError):
        store.read(decision)


def test_a_linked_body_is_refused(store: CompletedCheckpointStore, folder: Path) -> None:
    decision = decide(store, 0)
    body(folder, decision).rename(folder / "elsewhere")
    body(folder, decision).symlink_to(folder / "elsewhere")
    with pytest.raises(CorruptRecordError, match="is a symbolic link"):
        store.read(decision)


def oversize(path: Path) -> None:
    path.touch()
    os.truncate(path, codec.MAX_BYTES + 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", [os.mkfifo, Path.mkdir, oversize])
def test_what_is_no_plain_file_or_too_large_is_refused(
    store: CompletedCheckpointStore, folder: Path, place: Callable[[Path], object]
) -> None:
    decision = decide(store, 0)
    body(folder, decision).unlink()
    place(body(folder, decision))
    with pytest.raises(CorruptRecordError):
        store.read(decision)


def test_a_torn_temporary_name_beside_the_body_is_ignored(
    store: CompletedCheckpointStore, folder: Path
) -> None:
    decision = decide(store, 0)
    (body(folder, decision).parent / ".tmp-_metadata-0011223344556677").write_bytes(
        b"twophase/1 CH"
    )
    assert store.read(decision) == checkpoint(0)


@given(VALUES)
def test_whatever_stands_in_for_a_body_is_refused(value: Any) -> None:
    for data in (
        codec.encode("CHECKPOINT", {"body": value}),
        framed(canonical_json(value), "CHECKPOINT"),
    ):
        with pytest.raises(REFUSED):
            decode_body(data, "here")


@given(field=st.sampled_from(sorted(to_json(checkpoint(0)))), value=VALUES)
def test_a_body_with_one_field_of_another_form_is_understood_or_refused(
    field: str, value: Any
) -> None:
    data = codec.encode("CHECKPOINT", {**to_json(checkpoint(0)), field: value})
    try:
        assert isinstance(decode_body(data, "here"), CompletedCheckpoint)
    except NewerFormatError:
        return


@pytest.mark.parametrize("field", sorted(to_json(checkpoint(0))))
def test_a_body_without_a_field_is_refused(field: str) -> None:
    fields = to_json(checkpoint(0))
    del fields[field]
    data = codec.encode("CHECKPOINT", fields)
    with pytest.raises(NewerFormatError, match=rf"missing \['{field}'\]"):
        decode_body(data, "here")


# -- what is kept ----------------------------------------------------------------------------------


@given(history=histories(), num_retained=st.integers(1, 4))
def test_retained_are_all_uncommitted_the_newest_committed_and_those_with_the_newest_rows(
    history: History, num_retained: int
) -> None:
    kept = retained(history, num_retained)
    committed = [found for found in history.decisions if found.committed]
    proven = [(proof.lineage, proof.checkpoint) for proof in history.committed_proofs()]
    assert set(history.uncommitted()) <= set(kept)
    assert set(committed[-num_retained:]) <= set(kept)
    older = [one for one in committed[:-num_retained] if one in kept]
    assert older == [
        one for one in committed[:-num_retained] if (one.lineage, one.checkpoint) in proven
    ]
    assert kept == [found for found in history.decisions if found in kept]


@given(history=histories(), num_retained=st.integers(1, 4))
def test_the_newest_checkpoint_of_the_current_lineage_is_always_retained(
    history: History, num_retained: int
) -> None:
    newest = history.newest(history.lineage.id) if history.lineage else None
    assert newest is None or newest in retained(history, num_retained)


@pytest.mark.parametrize("num_retained", [1, 3])
def test_bodies_beyond_num_retained_are_deleted(
    storage: LocalStorage, log: JobLog, folder: Path, num_retained: int
) -> None:
    store = CompletedCheckpointStore(storage, log, num_retained)
    for number in range(6):
        commit(log, decide(store, number))
        store.subsume()
    assert bodies(folder) == list(range(6 - num_retained, 6))


def test_h40_a_body_that_waits_for_its_commit_is_not_deleted(
    store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    decide(store, 0)
    commit(log, decide(store, 1))
    commit(log, decide(store, 2))
    store.subsume()
    assert bodies(folder) == [0, 2]


def test_a_checkpoint_is_subsumed_once(store: CompletedCheckpointStore, log: JobLog) -> None:
    gone: list[int] = []
    for number in range(40):
        commit(log, decide(store, number))
        gone += [decision.checkpoint for decision in store.subsume()]
    assert gone == list(range(39))


def test_the_log_is_folded_once_in_a_while(
    store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    folded = []
    for number in range(33):
        commit(log, decide(store, number))
        store.subsume()
        if log.length() == 1:
            folded.append(number)
        assert len(list((folder / "log").iterdir())) == log.length() < module._FOLD_AT
    assert folded == [15, 31]
    history = JobLog(LocalStorage(folder), JOB).read()
    assert [decision.checkpoint for decision in history.decisions] == [31, 32]


def test_a_log_of_many_drivers_that_commit_once_each_is_folded_too(
    storage: LocalStorage, folder: Path
) -> None:
    """A job that is started each hour, for what there is by then."""
    for number in range(module._FOLD_AT):
        log = JobLog(storage, JOB)
        history = log.read()
        log.append(FenceRecord(history.generation + 1))
        if number == 0:
            log.append(Lineage(LINEAGE))
        store = CompletedCheckpointStore(storage, log, 1)
        decision = store.prepare(checkpoint(number, generation=log.history.generation))
        store.decide(decision)
        commit(log, decision)
        store.subsume()
        assert len(list((folder / "log").iterdir())) < module._FOLD_AT
    assert JobLog(storage, JOB).read().decisions[-1].checkpoint == module._FOLD_AT - 1


def test_a_crash_while_bodies_are_deleted_is_harmless(
    store: CompletedCheckpointStore,
    log: JobLog,
    storage: LocalStorage,
    folder: Path,
    monkeypatch: Patch,
) -> None:
    for number in range(4):
        commit(log, decide(store, number))

    def die(name: str) -> None:
        raise KeyboardInterrupt(name)

    with monkeypatch.context() as patch:
        patch.setattr(module, "failpoint", die)
        with pytest.raises(KeyboardInterrupt, match="C17"):
            store.subsume()
    assert bodies(folder) == [1, 2, 3]
    restarted = JobLog(storage, JOB)
    restarted.read()
    CompletedCheckpointStore(storage, restarted, 1).subsume()
    assert bodies(folder) == [3]


def test_a_discarded_attempt_leaves_no_body(store: CompletedCheckpointStore, folder: Path) -> None:
    declined = store.prepare(checkpoint(0, counter=1))
    store.discard(LINEAGE, 0, declined.attempt)
    store.discard(LINEAGE, 0, declined.attempt)
    assert list((folder / "chk").iterdir()) == []


# -- sweep -----------------------------------------------------------------------------------------


@pytest.fixture
def restarted(
    store: CompletedCheckpointStore, log: JobLog, storage: LocalStorage
) -> CompletedCheckpointStore:
    """The store of a new driver, after one that has decided checkpoint 0 and left an
    undecided body of 1.
    """
    commit(log, decide(store, 0))
    store.prepare(checkpoint(1))
    again = JobLog(storage, JOB)
    again.read()
    again.append(FenceRecord(2))
    return CompletedCheckpointStore(storage, again, 1)


def test_bodies_of_dead_attempts_are_swept(
    restarted: CompletedCheckpointStore, folder: Path
) -> None:
    assert bodies(folder) == [0, 1]
    restarted.sweep()
    assert bodies(folder) == [0]


def test_a_torn_body_of_a_dead_attempt_is_swept(
    restarted: CompletedCheckpointStore, folder: Path
) -> None:
    torn = folder / "chk" / f"{LINEAGE}-1-1.9"
    torn.mkdir()
    (torn / ".tmp-_metadata-0011223344556677").write_bytes(b"twophase/1 CH")
    restarted.sweep()
    assert not torn.exists()


def test_h40_a_driver_that_was_overtaken_does_not_sweep_what_the_newer_one_has_written(
    restarted: CompletedCheckpointStore, storage: LocalStorage, folder: Path
) -> None:
    newer = JobLog(storage, JOB)
    newer.read()
    newer.append(FenceRecord(3))
    theirs = CompletedCheckpointStore(storage, newer, 1)
    decided = theirs.prepare(checkpoint(1, counter=1, generation=3))
    theirs.decide(decided)
    pending = theirs.prepare(checkpoint(2, counter=2, generation=3))
    restarted.sweep()
    assert theirs.read(decided).attempt == Attempt(3, 1)
    assert body(folder, pending).exists()


@pytest.mark.parametrize("name", ["notes", "copy of 1-2", "0-1.1"])
def test_what_is_not_ours_is_not_swept(
    restarted: CompletedCheckpointStore, folder: Path, name: str
) -> None:
    (folder / "chk" / name).mkdir()
    (folder / "chk" / name / "_metadata").write_bytes(b"mine")
    (folder / "chk" / "file").write_bytes(b"mine")
    restarted.sweep()
    assert (folder / "chk" / name / "_metadata").read_bytes() == b"mine"
    assert (folder / "chk" / "file").read_bytes() == b"mine"


# -- what cannot be deleted ------------------------------------------------------------------------


def keep_damaged(found: Path) -> None:
    """As an operator does who restores the body from a backup."""
    body = found / "_metadata"
    body.rename(found / "_metadata.damaged")
    body.write_bytes((found / "_metadata.damaged").read_bytes())


def fill(found: Path) -> None:
    (found / "_metadata").unlink()
    (found / "_metadata").mkdir()
    (found / "_metadata" / "note").touch()


ADDED: dict[str, Callable[[Path], object]] = {
    "the damaged body beside the restored one": keep_damaged,
    "a file of a desktop": lambda found: (found / ".DS_Store").touch(),
    "a checksum": lambda found: (found / "._metadata.crc").touch(),
    "a folder": lambda found: (found / "old").mkdir(),
    "a folder under the name of a torn body": lambda found: (found / ".tmp-_metadata-1").mkdir(),
    "a filled folder in the place of the body": fill,
}


@pytest.mark.parametrize("add", ADDED.values(), ids=ADDED.keys())
def test_a_subsumed_body_s_folder_to_which_something_was_added_is_left_with_a_warning(
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    add: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = decide(store, 0)
    commit(log, first)
    add(folder / first.folder)
    for number in range(1, 40):
        commit(log, decide(store, number))
        assert [gone.checkpoint for gone in store.subsume()] == [number - 1]
    assert bodies(folder) in ([39], [0, 39])
    assert any((folder / first.folder).iterdir())
    [warning] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "is no longer needed, cannot be deleted and is left" in warning.getMessage()
    assert first.folder in warning.getMessage()
    assert len(list((folder / "log").iterdir())) < module._FOLD_AT


@pytest.mark.parametrize("add", ADDED.values(), ids=ADDED.keys())
def test_every_start_goes_on_although_the_folder_of_a_dead_attempt_holds_more(
    restarted: CompletedCheckpointStore,
    folder: Path,
    add: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    [dead] = (folder / "chk").glob("*-1-*")
    add(dead)
    (folder / "chk" / f"{LINEAGE}-1-1.9").mkdir()
    for _ in range(2):
        restarted.sweep()
    assert len(caplog.records) == 2
    assert {path.name for path in (folder / "chk").iterdir()} == {
        f"{LINEAGE}-0-1.1",
        dead.name,
    }

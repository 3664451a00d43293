"""The job's log: one writer, totally ordered, and damaged nowhere without being noticed
(invariants I7 and I9).
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

from harness.selection import first_of
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
from tests.state.files.test_codec import BODIES, VALUES, framed
from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    FencedError,
    InDoubtError,
    NewerFormatError,
    StopJobError,
)
from twophase.ids import Attempt
from twophase.internals.json_values import to_json
from twophase.internals.record import digest
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files import codec
from twophase.state.files.storage import CrashPoints, LocalStorage, Storage, UnclearOutcomeError
from twophase.state.journal.entries import CommittedRecord, Decision, FenceRecord
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog, LogEntry

pytestmark = pytest.mark.part("state")

Patch = pytest.MonkeyPatch


def again(folder: Path, job: str = JOB) -> JobLog:
    """The log as another driver finds it."""
    log = JobLog(LocalStorage(folder), job)
    log.read()
    return log


def record(folder: Path, sequence: int) -> Path:
    return folder / "log" / f"{sequence:010d}"


@pytest.fixture
def full(folder: Path, log: JobLog, store: CompletedCheckpointStore) -> Path:
    """A log with a record of every kind: 1 FENCE, 2 LINEAGE, 3 DECIDED, 4 COMMITTED,
    5 FENCE, 6 DECIDED.
    """
    decide(store, 0)
    log.append(CommittedRecord(LINEAGE, 0))
    log.append(FenceRecord(2))
    log.append(Decision(LINEAGE, 1, Attempt(2, 1), "hash", "digest"))
    return folder


@pytest.fixture
def folded(full: Path) -> Path:
    """The same history in one SUBSUMED record, 7, and a FENCE, 8."""
    log = again(full)
    log.fold(log.history)
    log.append(FenceRecord(3))
    return full


# -- one writer ------------------------------------------------------------------------------------


def test_a_new_log_has_no_history(storage: LocalStorage) -> None:
    assert JobLog(storage, JOB).read() == History()


def test_what_one_driver_appends_another_reads(folder: Path, log: JobLog) -> None:
    assert again(folder).history == log.history
    assert log.history.generation == 1


def test_records_are_files_numbered_from_1_without_gaps(full: Path) -> None:
    assert [path.name for path in sorted((full / "log").iterdir())] == [
        f"{number:010d}" for number in range(1, 7)
    ]


def test_a_driver_that_meets_a_foreign_record_is_fenced(folder: Path, log: JobLog) -> None:
    again(folder).append(FenceRecord(2))
    with pytest.raises(FencedError, match="record 3 of its log was written by another driver"):
        log.append(FenceRecord(2))
    assert log.history.generation == 1


def test_a_fenced_driver_stays_fenced(folder: Path, log: JobLog) -> None:
    rival = again(folder)
    rival.append(FenceRecord(2))
    for generation in (3, 4):
        rival.append(FenceRecord(generation))
        with pytest.raises(FencedError):
            log.append(FenceRecord(9))


def test_h43_a_driver_paused_between_reading_and_appending_is_fenced(
    folder: Path, log: JobLog
) -> None:
    paused = again(folder)
    again(folder).append(FenceRecord(2))
    with pytest.raises(FencedError):
        paused.append(Decision(LINEAGE, 0, Attempt(1, 1), "hash", "digest"))
    assert again(folder).history.decisions == ()


def test_a_record_that_contradicts_the_history_is_not_written(folder: Path, log: JobLog) -> None:
    before = snapshot(folder)
    with pytest.raises(ValueError, match="committed without a decision"):
        log.append(CommittedRecord(LINEAGE, 0))
    assert snapshot(folder) == before


# -- fold ------------------------------------------------------------------------------------------


def test_a_folded_log_has_the_same_history(folded: Path) -> None:
    history = again(folded).history
    assert (history.generation, len(history.lineages)) == (3, 1)
    assert [(found.checkpoint, found.committed) for found in history.decisions] == [
        (0, True),
        (1, False),
    ]
    assert [path.name for path in sorted((folded / "log").iterdir())] == [
        "0000000007",
        "0000000008",
    ]


def test_records_are_deleted_oldest_first(full: Path, monkeypatch: Patch) -> None:
    deleted: list[str] = []
    log = again(full)
    monkeypatch.setattr(LocalStorage, "delete", lambda self, name: deleted.append(name))
    log.fold(log.history)
    assert deleted == [f"log/{number:010d}" for number in range(1, 7)]


def test_what_cannot_be_deleted_of_a_folded_log_is_left_with_a_warning(
    full: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = again(full)
    record(full, 3).unlink()
    (record(full, 3) / "notes").mkdir(parents=True)
    (full / "log" / ".tmp-0000000002-0011223344556677").mkdir()
    log.fold(log.history)
    assert {path.name for path in (full / "log").iterdir()} == {
        "0000000003",
        "0000000007",
        ".tmp-0000000002-0011223344556677",
    }
    assert [one.levelname for one in caplog.records] == ["WARNING"] * 2
    assert again(full).history == log.history
    again(full).append(FenceRecord(3))


def test_a_crash_in_the_middle_of_a_fold_loses_nothing(full: Path, monkeypatch: Patch) -> None:
    log = again(full)
    history = log.history
    delete, left = LocalStorage.delete, [3]

    def die_after_three(self: LocalStorage, name: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", die_after_three)
        with pytest.raises(KeyboardInterrupt):
            log.fold(history)
    assert not record(full, 3).exists()
    assert record(full, 4).exists()
    after = again(full)
    assert after.history == history
    after.append(FenceRecord(3))
    assert again(full).history.generation == 3


def test_a_driver_that_appends_after_a_folded_log_is_fenced(full: Path) -> None:
    zombie, rival = again(full), again(full)
    rival.append(FenceRecord(3))
    rival.fold(rival.history)
    with pytest.raises(FencedError, match="record 6 of its log was folded by another driver"):
        zombie.append(FenceRecord(3))
    assert again(full).history == rival.history


def test_the_stray_record_of_one_fenced_driver_does_not_let_another_in(full: Path) -> None:
    first, second = again(full), again(full)
    second.append(FenceRecord(3))
    third = again(full)
    third.append(FenceRecord(4))
    third.fold(third.history)
    with pytest.raises(FencedError):
        first.append(FenceRecord(3))
    assert record(full, 7).exists()
    with pytest.raises(FencedError, match="record 7 of its log was folded by another driver"):
        second.append(Decision(LINEAGE, 2, Attempt(3, 1), "hash", "digest"))
    assert again(full).history == third.history


def test_a_log_that_is_folded_while_it_is_read_is_read_again(
    full: Path, monkeypatch: Patch
) -> None:
    owner, reader = again(full), JobLog(LocalStorage(full), JOB)
    read, left = LocalStorage.read, [1]

    def fold_in_between(self: LocalStorage, name: str) -> bytes:
        if left[0] and name == "log/0000000004":
            left[0] = 0
            owner.fold(owner.history)
        return read(self, name)

    monkeypatch.setattr(LocalStorage, "read", fold_in_between)
    assert reader.read() == owner.history
    assert left == [0]


# -- the outcome of an append ----------------------------------------------------------------------


class Unreliable(Storage):
    """A storage whose `create` and `read` can be made to fail, once."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.before_create: Exception | None = None
        self.after_create: Exception | None = None
        self.on_read: Exception | None = None

    @staticmethod
    def _fail(error: Exception | None) -> None:
        if error is not None:
            raise error

    def create(self, name: str, data: bytes, crash_points: CrashPoints = CrashPoints()) -> None:  # noqa: B008
        self._fail(self.before_create)
        self.inner.create(name, data, crash_points)
        self._fail(self.after_create)

    def append(self, name: str, data: bytes) -> int:
        return self.inner.append(name, data)

    def read(self, name: str) -> bytes:
        self._fail(self.on_read)
        return self.inner.read(name)

    def sync(self, folder: str) -> None:
        self.inner.sync(folder)

    def names(self, folder: str) -> list[str]:
        return self.inner.names(folder)

    def delete(self, name: str) -> None:
        self.inner.delete(name)

    def delete_temporary(self, folder: str, is_over: Callable[[str], bool]) -> None:
        self.inner.delete_temporary(folder, is_over)


@pytest.fixture
def unreliable(full: Path) -> tuple[Unreliable, JobLog]:
    storage = Unreliable(LocalStorage(full))
    log = JobLog(storage, JOB)
    log.read()
    return storage, log


def test_an_error_before_the_create_is_certain(
    unreliable: tuple[Unreliable, JobLog], full: Path
) -> None:
    storage, log = unreliable
    storage.before_create = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        log.append(FenceRecord(3))
    storage.before_create = None
    log.append(FenceRecord(3))
    assert again(full).history.generation == 3


def test_a_lost_reply_is_in_doubt_and_names_the_record(
    unreliable: tuple[Unreliable, JobLog], full: Path
) -> None:
    storage, log = unreliable
    storage.after_create = UnclearOutcomeError("reply lost")
    with pytest.raises(InDoubtError, match="log record 7 is unknown: reply lost") as caught:
        log.append(FenceRecord(3))
    assert "recovery reads the log" in str(caught.value)
    assert log.history.generation == 2
    assert again(full).history.generation == 3


def test_after_a_lost_reply_nobody_appends_until_the_log_is_read_again(
    unreliable: tuple[Unreliable, JobLog],
) -> None:
    """Another thread may be about to append: whether the place is taken is what nobody knows."""
    storage, log = unreliable
    storage.after_create = UnclearOutcomeError("reply lost")
    with pytest.raises(InDoubtError):
        log.append(FenceRecord(3))
    storage.after_create = None
    with pytest.raises(InDoubtError):
        log.append(FenceRecord(4))
    assert log.read().generation == 3
    log.append(FenceRecord(4))


def test_after_a_lost_reply_no_thread_takes_its_own_driver_s_record_for_a_newer_one_s(
    unreliable: tuple[Unreliable, JobLog],
) -> None:
    """Found by the simulation: the thread that commits, which called the driver overtaken, so that
    it was not started again.
    """
    storage, log = unreliable
    storage.after_create = UnclearOutcomeError("reply lost")
    with pytest.raises(InDoubtError):
        log.append(FenceRecord(3))
    with pytest.raises(InDoubtError):
        log.check_fence()
    log.read()
    log.check_fence()


def test_exists_already_is_settled_by_reading_the_nonce_back(
    full: Path, monkeypatch: Patch
) -> None:
    """A storage that repeats a request whose reply was lost finds its own record."""
    log, create = again(full), LocalStorage.create

    def twice(self: LocalStorage, *arguments: Any) -> None:
        create(self, *arguments)
        create(self, *arguments)

    monkeypatch.setattr(LocalStorage, "create", twice)
    log.append(FenceRecord(3))
    assert log.history.generation == again(full).history.generation == 3


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), OSError(24, "Too many open files")]
)
def test_an_error_after_the_record_is_durable_is_in_doubt_never_certain(
    unreliable: tuple[Unreliable, JobLog], full: Path, error: OSError
) -> None:
    storage, log = unreliable
    storage.on_read = error
    with pytest.raises(InDoubtError):
        log.append(FenceRecord(3))
    assert again(full).history.generation == 3


def torn(full: Path) -> Path:
    record(full, 6).write_bytes(record(full, 6).read_bytes()[:-1])
    return record(full, 6)


def of_another_job(full: Path) -> Path:
    entry = codec.decode("DECIDED", record(full, 6).read_bytes(), "", LogEntry)
    record(full, 6).write_bytes(codec.encode("DECIDED", replace(entry, job="returns")))
    return record(full, 6)


def stray(full: Path) -> Path:
    (full / "log" / "0000000006.bak").write_bytes(b"")
    return full / "log" / "0000000006.bak"


def stray_of_a_newer_version(full: Path) -> Path:
    (full / "log" / "index").write_bytes(b"twophase/2 INDEX 0")
    return full / "log" / "index"


BESIDE: dict[Callable[[Path], Path], tuple[type[StopJobError], str]] = {
    torn: (CorruptRecordError, "restore this file from a backup"),
    of_another_job: (CorruptRecordError, "restore the job's folder from a backup"),
    stray: (CorruptRecordError, "find out what wrote it, and remove it."),
    stray_of_a_newer_version: (NewerFormatError, "start the newer version again."),
}


@pytest.mark.parametrize("damage", BESIDE)
def test_damage_beside_a_record_that_is_durable_leaves_it_in_doubt_and_nobody_is_fenced(
    full: Path, damage: Callable[[Path], Path]
) -> None:
    """The next start says what is damaged, and stops; when that is mended, the record is there."""
    log, whole = again(full), record(full, 6).read_bytes()
    damaged, (kind, remedy) = damage(full), BESIDE[damage]
    with pytest.raises(InDoubtError, match="writing log record 7 is unknown") as caught:
        log.append(FenceRecord(3))
    assert isinstance(caught.value.__cause__, kind)
    assert caught.value.remedy.startswith(remedy)
    assert "Nothing was written" not in str(caught.value)
    assert record(full, 7).exists()
    for other_thread in (log.check_fence, lambda: log.append(FenceRecord(4))):
        with pytest.raises(InDoubtError, match="writing log record 7 is unknown"):
            other_thread()
    assert refuses(full, error=kind).remedy == caught.value.remedy
    if damaged == record(full, 6):
        damaged.write_bytes(whole)
    else:
        damaged.unlink()
    assert again(full).history.generation == 3


def test_a_record_in_the_way_that_cannot_be_read_may_be_ours(
    full: Path, monkeypatch: Patch
) -> None:
    """A storage that repeats a request, whose own record was damaged in between."""
    log, create = again(full), LocalStorage.create

    def twice(self: LocalStorage, *arguments: Any) -> None:
        create(self, *arguments)
        record(full, 7).write_bytes(b"twophase/1 FENCE")
        create(self, *arguments)

    monkeypatch.setattr(LocalStorage, "create", twice)
    with pytest.raises(InDoubtError, match="log/0000000007 is damaged"):
        log.append(FenceRecord(3))
    with pytest.raises(InDoubtError):
        log.check_fence()


def test_a_record_that_was_in_the_way_and_is_folded_means_fenced(
    full: Path, monkeypatch: Patch
) -> None:
    zombie, rival = again(full), again(full)
    rival.append(FenceRecord(3))
    read = LocalStorage.read

    def fold_before_the_nonce_is_read(self: LocalStorage, name: str) -> bytes:
        if record(full, 7).exists():
            monkeypatch.setattr(LocalStorage, "read", read)
            rival.fold(rival.history)
        return read(self, name)

    monkeypatch.setattr(LocalStorage, "read", fold_before_the_nonce_is_read)
    with pytest.raises(FencedError):
        zombie.append(FenceRecord(3))


def test_what_is_found_is_synced_before_it_is_returned(full: Path, monkeypatch: Patch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalStorage, "sync", lambda self, folder: synced.append(folder))
    again(full)
    assert synced == ["log"]


def test_what_cannot_be_synced_is_not_returned(full: Path, monkeypatch: Patch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    log = JobLog(LocalStorage(full), JOB)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        log.read()
    assert log.history == History()


# -- damage ----------------------------------------------------------------------------------------


def refuses(
    folder: Path, match: str | None = None, error: type[StopJobError] = CorruptRecordError
) -> StopJobError:
    """Reading refuses the log, as damaged unless another error is expected, and writes nothing."""
    before = snapshot(folder)
    with pytest.raises(error, match=match) as caught:
        again(folder)
    assert snapshot(folder) == before
    return caught.value


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("damage", [truncations, bit_flips])
@pytest.mark.parametrize("sequence", first_of(4, range(1, 7)))
def test_i9_no_truncation_and_no_changed_bit_of_any_record_is_accepted(
    full: Path, sequence: int, damage: Any
) -> None:
    refuses_all(full, sequence, damage)


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("damage", [truncations, bit_flips])
def test_i9_no_truncation_and_no_changed_bit_of_a_folded_history_is_accepted(
    folded: Path, damage: Any
) -> None:
    refuses_all(folded, 7, damage)


class Damaged(LocalStorage):
    """A folder of which one file reads otherwise than it was written."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root)
        self.name = name
        self.damaged: bytes | None = None

    def read(self, name: str) -> bytes:
        return super().read(name) if name != self.name or self.damaged is None else self.damaged


def refuses_all(folder: Path, sequence: int, damage: Callable[[bytes], Any]) -> None:
    """Reading refuses the log with every damage to one record; it writes nothing and keeps
    to what it had read.
    """
    storage = Damaged(folder, f"log/{sequence:010d}")
    log = JobLog(storage, JOB)
    healthy, before = log.read(), snapshot(folder)
    for damaged in damage(record(folder, sequence).read_bytes()):
        storage.damaged = damaged
        with pytest.raises(REFUSED):
            log.read()
    assert log.history == healthy
    assert snapshot(folder) == before


def test_torn_temporary_names_are_ignored(full: Path) -> None:
    history = again(full).history
    (full / "log" / ".tmp-0000000007-0011223344556677").write_bytes(b"twophase/1 DEC")
    assert again(full).history == history


@pytest.mark.parametrize("sequence", [2, 3, 4, 5])
def test_a_missing_record_between_others_stops(full: Path, sequence: int) -> None:
    whole = snapshot(full)
    shutil.copytree(full, full.with_name("backup"))
    record(full, sequence).unlink()
    error = refuses(full, f"log record log/{sequence:010d} cannot be used: it is missing")
    assert "Nothing was written or deleted. Next: restore the job's folder" in str(error)
    shutil.rmtree(full)
    full.with_name("backup").rename(full)
    again(full).append(FenceRecord(3))
    assert {**snapshot(full), **whole} == snapshot(full)


def test_a_missing_first_record_stops(full: Path) -> None:
    record(full, 1).unlink()
    refuses(full, "log/0000000001 cannot be used: it is missing")


def test_a_missing_record_after_a_folded_history_stops(folded: Path) -> None:
    log = again(folded)
    log.append(FenceRecord(4))
    record(folded, 8).unlink()
    refuses(folded, "log/0000000008 cannot be used: it is missing")


def test_a_missing_folded_history_stops(folded: Path) -> None:
    record(folded, 7).unlink()
    refuses(folded, "log/0000000007 cannot be used: it is missing")


def test_a_record_under_the_number_of_another_stops(full: Path) -> None:
    shutil.copy(record(full, 5), record(full, 7))
    refuses(full, "log/0000000007 cannot be used: it is record 5 of job 'orders'")


def test_swapped_records_stop(full: Path) -> None:
    third, fourth = record(full, 3), record(full, 4)
    third.rename(full / "swap")
    fourth.rename(third)
    (full / "swap").rename(fourth)
    refuses(full, "it is record 3 of job 'orders'")


def test_a_record_of_another_job_stops(full: Path, tmp_path: Path) -> None:
    other = JobLog(LocalStorage(tmp_path / "other"), "payments")
    other.append(FenceRecord(1))
    shutil.copy(record(tmp_path / "other", 1), record(full, 1))
    refuses(full, "it is record 1 of job 'payments'")


def test_the_log_of_another_job_stops(full: Path) -> None:
    """Somebody has given the job another name over its folder; it is not damaged."""
    with pytest.raises(ConfigError, match="is the folder of job 'orders'") as caught:
        again(full, "payments")
    assert caught.value.remedy.startswith("name the job 'orders' again")


def test_a_record_of_an_older_copy_with_another_history_stops(full: Path) -> None:
    """Every file is whole and in its place, but they do not add up."""
    stale = codec.encode("FENCE", body(FenceRecord(1), 5))
    record(full, 5).write_bytes(stale)
    refuses(full, "it contradicts the records before it: fence 1 after 1")


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "000000001",
        "00000000001",
        "-000000001",
        "0000000000",
        "000000000x",
        "٠٠٠٠٠٠٠٠٠١",
        "1",
        ".hidden",
    ],
)
def test_a_foreign_name_stops(full: Path, name: str) -> None:
    (full / "log" / name).write_bytes(b"")
    assert name in str(refuses(full, "which is not a record"))
    (full / "log" / name).unlink()
    again(full).append(FenceRecord(3))


@pytest.mark.parametrize("damaged", [b"", b"twophase/1 DECIDED 7", b"something else"])
def test_a_damaged_record_that_is_restored_from_a_backup_is_read_again(
    full: Path, damaged: bytes
) -> None:
    history, whole = again(full).history, record(full, 6).read_bytes()
    record(full, 6).write_bytes(damaged)
    error = refuses(full, "log/0000000006 is damaged")
    assert error.remedy.startswith("restore this file from a backup of the job's folder.")
    record(full, 6).write_bytes(whole)
    assert again(full).history == history


def test_a_linked_record_stops(full: Path) -> None:
    record(full, 3).rename(full / "elsewhere")
    record(full, 3).symlink_to(full / "elsewhere")
    refuses(full, "0000000003 is a symbolic link")


def test_a_folder_in_the_place_of_a_record_stops(full: Path) -> None:
    record(full, 7).mkdir()
    refuses(full, "0000000007 is not a regular file")


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_record_stops_and_does_not_hang(full: Path) -> None:
    os.mkfifo(record(full, 7))
    with pytest.raises(CorruptRecordError, match="0000000007 is not a regular file"):
        again(full)


def test_a_file_in_the_place_of_the_log_stops(folder: Path) -> None:
    folder.mkdir()
    (folder / "log").write_bytes(b"")
    refuses(folder, "log is not a folder")


def test_an_oversized_record_stops_without_being_read(full: Path) -> None:
    os.truncate(record(full, 6), codec.MAX_BYTES + 1)
    with pytest.raises(CorruptRecordError, match="67108865 bytes long, more than 67108864"):
        again(full)


def test_an_unknown_kind_stops_and_names_the_version_as_remedy(full: Path) -> None:
    path = record(full, 6)
    path.write_bytes(path.read_bytes().replace(b" DECIDED ", b" RESCALE ", 1))
    assert "start the newer version again" in str(
        refuses(full, "unknown kind 'RESCALE'", NewerFormatError)
    )


def body(record: FenceRecord, sequence: int) -> dict[str, Any]:
    return {"job": JOB, "sequence": sequence, "nonce": "0" * 32, "record": to_json(record)}


@pytest.mark.parametrize("missing", ["job", "sequence", "nonce", "record"])
def test_a_record_without_one_of_its_fields_is_refused(
    folder: Path, log: JobLog, missing: str
) -> None:
    fields = body(FenceRecord(2), 3)
    del fields[missing]
    record(folder, 3).write_bytes(codec.encode("FENCE", fields))
    refuses(folder, f"missing .'{missing}'.", NewerFormatError)


KINDS = ["FENCE", "LINEAGE", "DECIDED", "COMMITTED", "SUBSUMED", "OTHER"]
FIELDS = [
    "generation",
    "lineage",
    "decision",
    "checkpoint",
    "history",
    "attempt",
    "decisions",
    "lineages",
    "start",
    "id",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "job"
    LocalStorage(folder).create("log/0000000001", b"")
    return folder


@given(
    kind=st.sampled_from(KINDS),
    content=VALUES
    | st.dictionaries(
        st.sampled_from(FIELDS),
        VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    ),
)
def test_whatever_a_whole_record_holds_it_is_understood_or_refused(
    hostile: Path, kind: str, content: Any
) -> None:
    fields = {"job": JOB, "sequence": 1, "nonce": "0", "record": content}
    record(hostile, 1).write_bytes(codec.encode(kind, fields))
    try:
        assert isinstance(again(hostile).history, History)
    except REFUSED:
        return


@given(kind=st.sampled_from(KINDS), fields=BODIES)
def test_whatever_json_stands_in_for_a_record_is_refused_as_of_another_version(
    hostile: Path, kind: str, fields: dict[str, Any]
) -> None:
    record(hostile, 1).write_bytes(codec.encode(kind, fields))
    with pytest.raises(NewerFormatError):
        again(hostile)


@given(st.binary(max_size=200))
def test_whatever_bytes_stand_in_for_a_record_are_refused_as_damaged(
    hostile: Path, data: bytes
) -> None:
    for content in (data, framed(data)):
        record(hostile, 1).write_bytes(content)
        with pytest.raises(CorruptRecordError):
            again(hostile)


def test_the_digest_in_the_log_is_that_of_the_body(
    folder: Path, store: CompletedCheckpointStore
) -> None:
    decision = decide(store, 0)
    assert decision.body_digest == digest((folder / decision.folder / "_metadata").read_bytes())
    assert again(folder).history.decisions == (decision,)
    assert store.read(decision) == checkpoint(0)

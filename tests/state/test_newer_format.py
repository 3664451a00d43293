"""What a newer version of twophase has written is refused by its version, and nothing
deletes or replaces it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.state.conftest import JOB, LINEAGE, bit_flips, checkpoint, decide, snapshot
from twophase.errors import CorruptRecordError, FencedError, NewerFormatError
from twophase.internals.json_values import to_json
from twophase.internals.record import digest, newer_version, unframe
from twophase.state.checkpoints import store as module
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord, Decision, FenceRecord
from twophase.state.journal.history import History, SubsumedRecord
from twophase.state.journal.log import JobLog, job_of

FORMS = {
    "the same frame": lambda data: data.replace(b"twophase/1 ", b"twophase/2 ", 1),
    "another checksum": lambda data: (
        b"twophase/2 " + data.split(b" ", 2)[1] + b" crc32c 00c0ffee\n" + data
    ),
    "no text": lambda data: b"twophase/17 \x28\xb5\x2f\xfd" + digest(data).encode(),
}
forms = pytest.mark.parametrize("form", FORMS)


def renew(path: Path, form: str = "another checksum") -> bytes:
    """Write a file as a newer version would, and return its content."""
    content: bytes = FORMS[form](path.read_bytes())
    path.write_bytes(content)
    return content


def body(folder: Path, decision: Decision) -> Path:
    return folder / decision.folder / "_metadata"


@pytest.fixture
def full(log: JobLog, store: CompletedCheckpointStore, folder: Path) -> Path:
    """Records 1 to 5: FENCE, LINEAGE, DECIDED and COMMITTED of checkpoint 0, DECIDED of 1."""
    log.append(CommittedRecord(LINEAGE, decide(store, 0).checkpoint))
    decide(store, 1)
    return folder


# -- told apart from damage ------------------------------------------------------------------------


def test_the_error_says_which_version_and_what_to_do() -> None:
    with pytest.raises(NewerFormatError) as caught:
        codec.decode(
            "FENCE", FORMS["another checksum"](codec.encode("FENCE", {})), "log/0000000003", dict
        )
    assert str(caught.value) == (
        "The durable file log/0000000003 was written by a newer twophase (format 2; "
        "this one reads up to 1). No data is lost: the file was left unchanged. Next: start the "
        "newer version again. If none has ever run here, it is damaged: restore it from a backup; "
        "do not delete it."
    )
    assert (caught.value.exit_code, caught.value.restartable) == (3, False)


@pytest.mark.parametrize(
    "word", [b"twophase/2", b"twophase/2x ", b"twophase/0 ", b"twophase/02 ", b"twophases/2 ", b""]
)
def test_what_does_not_begin_with_a_version_is_damaged(word: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec.decode("FENCE", word, "here", dict)


def test_damage_looks_newer_only_if_it_is_in_the_version() -> None:
    data = codec.encode("FENCE", {"generation": 1})
    looks_newer = [flipped for flipped in bit_flips(data) if codec.is_newer(flipped)]
    assert looks_newer
    assert {flipped[:9] + flipped[10:] for flipped in looks_newer} == {data[:9] + data[10:]}


def test_each_format_has_versions_of_its_own() -> None:
    data = b"twophase-files/2 manifest 1 x\n"
    assert newer_version("twophase-files/1", data) == 2
    assert newer_version("twophase-files/2", data) is None
    assert newer_version("twophase-delta/1", data) is None
    with pytest.raises(
        NewerFormatError, match=r"The durable file /t/manifest .*format 2; this one reads up to 1"
    ):
        unframe("twophase-files/1", "manifest", data, "/t/manifest")


# -- the log ---------------------------------------------------------------------------------------


@forms
@pytest.mark.parametrize("sequence", range(1, 6))
def test_a_newer_record_of_the_log_stops_the_start_and_nothing_is_written(
    full: Path, sequence: int, form: str
) -> None:
    renew(full / f"log/{sequence:010d}", form)
    before = snapshot(full)
    with pytest.raises(
        NewerFormatError, match=f"log/{sequence:010d} was written by a newer twophase"
    ):
        JobLog(LocalStorage(full), JOB).read()
    assert snapshot(full) == before


def test_a_flipped_version_digit_costs_nothing_either(full: Path) -> None:
    record = full / "log/0000000003"
    data = record.read_bytes()
    record.write_bytes(data.replace(b"twophase/1 ", b"twophase/3 ", 1))
    with pytest.raises(
        NewerFormatError, match="If none has ever run here, it is damaged: restore it from a backup"
    ):
        JobLog(LocalStorage(full), JOB).read()
    record.write_bytes(data)
    assert len(JobLog(LocalStorage(full), JOB).read().decisions) == 2


def test_whose_the_log_is_is_not_guessed(full: Path) -> None:
    renew(full / "log/0000000005")
    with pytest.raises(NewerFormatError, match="log/0000000005"):
        job_of(LocalStorage(full))


def test_a_file_that_a_newer_version_has_added_to_the_log_is_not_to_be_removed(full: Path) -> None:
    (full / "log/index").write_bytes(b"twophase/2 INDEX\n")
    with pytest.raises(NewerFormatError, match="log/index was written by a newer twophase"):
        JobLog(LocalStorage(full), JOB).read()


def test_a_driver_of_a_newer_version_fences_this_one(full: Path, log: JobLog) -> None:
    theirs = full / "log/0000000006"
    theirs.write_bytes(codec.encode("FENCE", {}))
    content = renew(theirs)
    with pytest.raises(FencedError, match="record 6 of its log was written by another driver"):
        log.append(CommittedRecord(LINEAGE, 1))
    assert theirs.read_bytes() == content


def test_a_fold_deletes_no_newer_record(full: Path, log: JobLog) -> None:
    content = renew(full / "log/0000000002")
    log.fold(log.history)
    assert sorted(path.name for path in (full / "log").iterdir()) == ["0000000002", "0000000006"]
    assert (full / "log/0000000002").read_bytes() == content
    again = JobLog(LocalStorage(full), JOB)
    assert again.read() == log.history
    again.append(FenceRecord(2))


# -- bodies ----------------------------------------------------------------------------------------


@forms
def test_a_body_that_is_not_the_decided_one_is_damaged_whatever_its_first_word_says(
    full: Path, log: JobLog, store: CompletedCheckpointStore, form: str
) -> None:
    """The log has its digest: a repair can lead out."""
    decision = log.history.decisions[1]
    renew(body(full, decision), form)
    before = snapshot(full)
    with pytest.raises(CorruptRecordError, match="is not the one that was decided"):
        store.read(decision)
    assert snapshot(full) == before


def test_a_newer_body_that_an_older_record_has_decided_is_newer(
    storage: LocalStorage, log: JobLog
) -> None:
    data = FORMS["another checksum"](codec.encode("CHECKPOINT", to_json(checkpoint(0))))
    decision = Decision(LINEAGE, 0, checkpoint(0).attempt, checkpoint(0).offsets.hash, digest(data))
    storage.create(f"{decision.folder}/_metadata", data)
    with pytest.raises(NewerFormatError):
        CompletedCheckpointStore(storage, log, 1).read(decision)


def test_a_sweep_deletes_no_newer_body(full: Path, storage: LocalStorage) -> None:
    again = JobLog(storage, JOB)
    again.read()
    again.append(FenceRecord(2))
    store = CompletedCheckpointStore(storage, again, 1)
    kept, swept = (store.prepare(checkpoint(2, counter)) for counter in (8, 9))
    content = renew(body(full, kept))
    store.sweep()
    assert body(full, kept).read_bytes() == content
    assert not body(full, swept).exists()


def test_retention_deletes_no_newer_body(
    full: Path, log: JobLog, store: CompletedCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log.history.decisions[0]
    content = renew(body(full, first))
    log.append(CommittedRecord(LINEAGE, 1))
    monkeypatch.setattr(module, "_FOLD_AT", 1)
    assert store.subsume() == [first]
    assert log.history.decisions == (log.history.decisions[-1],)
    store.sweep()
    assert body(full, first).read_bytes() == content


def test_a_discarded_attempt_of_this_version_still_goes(
    full: Path, store: CompletedCheckpointStore
) -> None:
    decision = store.prepare(checkpoint(2))
    store.discard(LINEAGE, 2, decision.attempt)
    assert not body(full, decision).exists()


def test_a_newer_fold_is_refused_whole(full: Path, log: JobLog) -> None:
    log.append(SubsumedRecord(History(lineages=log.history.lineages)))
    renew(full / "log/0000000006")
    before = snapshot(full)
    with pytest.raises(NewerFormatError, match="log/0000000006"):
        JobLog(LocalStorage(full), JOB).read()
    assert snapshot(full) == before

"""Files of large operator states: durable before the body that names them, checked when they are
read, and deleted with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.state.conftest import JOB, bit_flips, checkpoint, snapshot, truncations
from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    FencedError,
    NewerFormatError,
)
from twophase.functions.operator_state import Redistribution, SerializedState
from twophase.ids import Attempt
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError
from twophase.internals.json_values import to_json
from twophase.internals.record import digest
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.function_state import FunctionState
from twophase.state.checkpoints.state_files import read_states
from twophase.state.checkpoints.store import CompletedCheckpointStore, decode_body
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord, Decision, FenceRecord
from twophase.state.journal.log import JobLog

Patch = pytest.MonkeyPatch


def state(name: str, *entries: bytes) -> FunctionState:
    return FunctionState.of(SerializedState(name, Redistribution.SPLIT, ("bytes",), entries))


SMALL, LARGE, RAW = state("small", b"a", b""), state("large", b"x" * 30_000), state("", b"\0\xff")


def with_states(number: int, **options: Any) -> CompletedCheckpoint:
    return replace(
        checkpoint(number, **options), function_states={"dedup": (SMALL, LARGE), "other": (RAW,)}
    )


def framed_body(body: dict[str, Any]) -> bytes:
    return codec.encode("CHECKPOINT", body)


def files(folder: Path) -> list[str]:
    """Every name below the folder of state files."""
    return [name for name in snapshot(folder) if name.startswith("state/")]


def take(store: CompletedCheckpointStore, log: JobLog, number: int) -> Decision:
    """Decide and commit a checkpoint with states."""
    decision = store.prepare(with_states(number, generation=log.history.generation))
    store.decide(decision)
    log.append(CommittedRecord(decision.lineage, decision.checkpoint))
    return decision


@pytest.fixture
def decision(store: CompletedCheckpointStore, log: JobLog) -> Decision:
    return take(store, log, 0)


@pytest.fixture
def file(folder: Path, decision: Decision) -> Path:
    """The one file of the decided checkpoint."""
    return folder / decision.folder.replace("chk/", "state/") / "0"


# -- write and read --------------------------------------------------------------------------------


def test_states_are_read_as_they_were(store: CompletedCheckpointStore, decision: Decision) -> None:
    found = store.read_with_states(decision)
    [small, large], [raw] = found.function_states["dedup"], found.function_states["other"]
    assert (small, raw) == (SMALL, RAW)
    assert large == LARGE
    assert [one.serialized().entries for one in (small, large, raw)] == [
        (b"a", b""),
        (b"x" * 30_000,),
        (b"\0\xff",),
    ]


def test_a_body_is_read_without_its_files(
    store: CompletedCheckpointStore, decision: Decision, file: Path
) -> None:
    file.unlink()
    assert store.read(decision).function_states["dedup"][1].data is None


def test_the_body_names_its_files_with_length_and_digest(
    store: CompletedCheckpointStore, folder: Path, decision: Decision, file: Path
) -> None:
    [(path, named)] = store.read(decision).state_files.items()
    assert folder / path == file
    assert named.length == file.stat().st_size
    body = (folder / decision.folder / "_metadata").read_bytes()
    assert named.sha256.encode() in body


@pytest.mark.parametrize(("beyond", "count"), [(0, 0), (1, 1)], ids=["at", "above"])
def test_the_threshold_divides_what_is_inline_from_what_has_a_file(
    storage: LocalStorage, log: JobLog, beyond: int, count: int
) -> None:
    assert LARGE.data is not None
    store = CompletedCheckpointStore(storage, log, 1, memory_threshold=len(LARGE.data) - beyond)
    decision = store.prepare(with_states(0))
    assert len(store.read(decision).state_files) == count
    assert store.read_with_states(decision).function_states["dedup"][1] == LARGE


def test_a_threshold_of_zero_gives_every_state_a_file(storage: LocalStorage, log: JobLog) -> None:
    store = CompletedCheckpointStore(storage, log, 1, memory_threshold=0)
    assert [*store.read(store.prepare(with_states(0))).state_files] == [
        f"{with_states(0).state_folder}/{name}" for name in "012"
    ]


def test_files_are_durable_before_the_body(
    store: CompletedCheckpointStore, monkeypatch: Patch
) -> None:
    created: list[str] = []
    create = LocalStorage.create

    def note(self: LocalStorage, name: str, *rest: Any) -> None:
        create(self, name, *rest)
        created.append(name)

    monkeypatch.setattr(LocalStorage, "create", note)
    decision = store.prepare(with_states(0))
    assert created == [f"{with_states(0).state_folder}/0", f"{decision.folder}/_metadata"]


def test_a_checkpoint_that_is_written_again_has_files_of_its_own(
    store: CompletedCheckpointStore, folder: Path, decision: Decision, log: JobLog
) -> None:
    """As a rewrite of lost pieces does, under a new attempt."""
    log.append(FenceRecord(2))
    again = store.prepare(replace(store.read_with_states(decision), attempt=Attempt(2, 1)))
    store.discard(decision.lineage, 0, decision.attempt)
    assert store.read_with_states(again).function_states["dedup"][1] == LARGE
    attempt = f"state/{Path(again.folder).name}"
    assert files(folder) == [attempt, f"{attempt}/0"]


# -- what was done to the files --------------------------------------------------------------------


def remove(file: Path) -> None:
    file.unlink()


def link(file: Path) -> None:
    other = file.rename(file.with_name("elsewhere"))
    file.symlink_to(other)


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def edit(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"xxx", b"xyx", 1))


DAMAGE = pytest.mark.parametrize(
    ("damage", "error"),
    [
        (remove, CheckpointMissingError),
        (link, CorruptRecordError),
        (tear, CorruptRecordError),
        (empty, CorruptRecordError),
        (edit, CorruptRecordError),
    ],
)


@DAMAGE
def test_a_file_that_is_not_what_was_decided_is_named(
    store: CompletedCheckpointStore,
    decision: Decision,
    file: Path,
    damage: Callable[[Path], None],
    error: type[Exception],
) -> None:
    whole = file.read_bytes()
    damage(file)
    with pytest.raises(error) as caught:
        store.read_with_states(decision)
    assert f"{file.parent.name}/0" in str(caught.value)
    file.unlink(missing_ok=True)
    file.write_bytes(whole)
    assert store.read_with_states(decision).function_states["dedup"] == (SMALL, LARGE)


@DAMAGE
def test_its_state_is_left_out_where_it_may_be_and_that_is_said(
    store: CompletedCheckpointStore,
    decision: Decision,
    file: Path,
    damage: Callable[[Path], None],
    error: type[Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(file)
    found = store.read_with_states(decision, may_drop=True)
    assert found.function_states == {"dedup": (SMALL,), "other": (RAW,)}
    assert f"{file.parent.name}/0" in caplog.text


def test_a_file_that_a_newer_driver_deleted_is_no_loss(
    storage: LocalStorage, store: CompletedCheckpointStore, decision: Decision, file: Path
) -> None:
    newer = JobLog(storage, JOB)
    newer.read()
    newer.append(FenceRecord(2))
    file.unlink()
    for may_drop in (False, True):
        with pytest.raises(FencedError):
            store.read_with_states(decision, may_drop=may_drop)


@pytest.mark.usefixtures("no_sync")
def test_every_truncation_and_every_flipped_bit_is_refused(
    storage: LocalStorage, log: JobLog, folder: Path
) -> None:
    store = CompletedCheckpointStore(storage, log, 1, memory_threshold=0)
    small = replace(checkpoint(0), function_states={"dedup": (SMALL,)})
    decision = store.prepare(small)
    file = folder / small.state_folder / "0"
    whole = file.read_bytes()
    for data in [*truncations(whole), *bit_flips(whole)]:
        file.write_bytes(data)
        with pytest.raises(CorruptRecordError):
            store.read_with_states(decision)


def test_a_file_of_a_newer_version_is_named_and_stays(
    storage: LocalStorage, store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    """Its body is of this version: a newer one may change the form of the files alone."""
    renewed = LARGE.data or b""
    decision = store.prepare(with_states(0))
    file = folder / with_states(0).state_folder / "0"
    data = file.read_bytes().replace(b"twophase/1 ", b"twophase/2 ", 1)
    assert renewed in data
    file.write_bytes(data)
    body = folder / decision.folder / "_metadata"
    old = store.read(decision).state_files[f"{with_states(0).state_folder}/0"]
    changed = replace(
        with_states(0),
        function_states={
            "dedup": (replace(LARGE, data=None, file=replace(old, sha256=digest(data))),)
        },
    )
    from_newer = to_json(changed)
    assert decode_body(framed_body(from_newer), "here").state_files
    with pytest.raises(NewerFormatError, match="newer twophase"):
        read_states(storage, decode_body(framed_body(from_newer), "here"))
    body.unlink()
    log.append(FenceRecord(2))
    store.sweep()
    assert file.read_bytes() == data


# -- the body --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "scattered"},
        {"more": 1},
        {"data": "AA=="},
        {"file": None},
        {"data": "AA", "file": None},
        {"file": {"name": "../../etc/passwd", "length": 1, "sha256": ""}},
        {"file": {"name": "0", "length": 1, "sha256": "", "more": 1}},
    ],
    ids=str,
)
def test_a_state_of_another_form_is_a_newer_versions(change: dict[str, Any]) -> None:
    body = to_json(with_states(0))
    body["function_states"]["dedup"] = [
        {"name": "s", "scheme": "split", "serializers": ["json"], "entries": 1, "data": None}
        | {"file": {"name": "0", "length": 1, "sha256": ""}}
    ]
    assert decode_body(framed_body(body), "here").state_files
    body["function_states"]["dedup"][0] |= change
    with pytest.raises(NewerFormatError):
        decode_body(framed_body(body), "here")


# -- nothing grows for ever ------------------------------------------------------------------------


def test_a_subsumed_checkpoint_loses_its_files(
    store: CompletedCheckpointStore, log: JobLog, folder: Path, decision: Decision
) -> None:
    newer = take(store, log, 1)
    store.subsume()
    assert files(folder) == [
        f"state/{Path(newer.folder).name}",
        f"state/{Path(newer.folder).name}/0",
    ]


def test_a_declined_attempt_loses_its_files(store: CompletedCheckpointStore, folder: Path) -> None:
    decision = store.prepare(with_states(0))
    store.discard(decision.lineage, 0, decision.attempt)
    assert files(folder) == []


@pytest.mark.parametrize("point", ["O01", "O02", "O03", "O04", "O05", "before the decision"])
def test_files_of_a_driver_that_died_are_swept_by_the_next(
    storage: LocalStorage,
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    monkeypatch: Patch,
    point: str,
) -> None:
    kept = take(store, log, 0)
    if point == "before the decision":
        store.prepare(with_states(1))
    else:
        monkeypatch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
        monkeypatch.setattr(failpoints, "_hits", {})
        # a driver that is killed cleans nothing up
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(FailpointError):
            store.prepare(with_states(1))
        monkeypatch.undo()
    assert [name for name in (folder / "state").iterdir() if "-1-1." in name.name]
    restarted = JobLog(storage, JOB)
    restarted.read()
    restarted.append(FenceRecord(2))
    CompletedCheckpointStore(storage, restarted, 1).sweep()
    assert [name.name for name in (folder / "state").iterdir()] == [Path(kept.folder).name]


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_a_driver_that_died_while_it_deleted_is_finished_by_the_next(
    storage: LocalStorage, log: JobLog, folder: Path, monkeypatch: Patch, hit: int
) -> None:
    store = CompletedCheckpointStore(storage, log, 1, memory_threshold=0)
    take(store, log, 0)
    newer = take(store, log, 1)
    monkeypatch.setattr(failpoints, "_rules", failpoints._parse(f"O06=raise@{hit}"))
    monkeypatch.setattr(failpoints, "_hits", {})
    with pytest.raises(FailpointError):
        store.subsume()
    monkeypatch.undo()
    restarted = JobLog(storage, JOB)
    restarted.read()
    restarted.append(FenceRecord(2))
    CompletedCheckpointStore(storage, restarted, 1).subsume()
    assert [name.name for name in (folder / "state").iterdir()] == [Path(newer.folder).name]


def test_files_of_a_newer_driver_stay(
    storage: LocalStorage, store: CompletedCheckpointStore, log: JobLog, folder: Path
) -> None:
    theirs = with_states(1, generation=9)
    store.prepare(theirs)
    store.sweep()
    assert f"{theirs.state_folder}/0" in files(folder)


def test_what_is_not_named_like_an_attempt_stays(
    store: CompletedCheckpointStore, folder: Path, log: JobLog
) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "notes").write_text("mine")
    log.append(FenceRecord(2))
    store.sweep()
    assert files(folder) == ["state/notes"]


def fill(folder: Path) -> None:
    (folder / "0").unlink()
    (folder / "0").mkdir()
    (folder / "0" / "note").touch()


def replace_by_a_file(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.touch()


@pytest.mark.parametrize("change", [fill, replace_by_a_file])
def test_what_cannot_be_deleted_is_left_with_a_warning_and_nothing_else(
    store: CompletedCheckpointStore,
    log: JobLog,
    folder: Path,
    decision: Decision,
    change: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    mine = folder / "state" / Path(decision.folder).name
    change(mine)
    take(store, log, 1)
    assert store.subsume() == [log.history.decisions[0]]
    assert not (folder / decision.folder).exists()
    assert mine.exists()
    assert not (mine / "1").exists()
    [warning] = caplog.records
    assert "is no longer needed, cannot be deleted and is left" in warning.getMessage()

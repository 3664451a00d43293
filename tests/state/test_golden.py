"""What format version 1 has written is readable for ever: files that are checked in, against values
that are written here.

`golden/make.py` tells how they were made. Where a test fails, the product has lost the ability to
read an old folder; the files are never the ones to change.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from twophase.contract.committable import Committable
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest, SinkContext, SinkHistory
from twophase.contract.source import SourceLeg
from twophase.engine.host import Plan
from twophase.functions.operator_state import Redistribution
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.json_values import from_json, to_json
from twophase.internals.record import kind_of
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.manifest import Manifest as StateManifest
from twophase.operations.savepoint.manifest import SavedFile, decode_manifest
from twophase.operations.savepoint.restore import load_restore
from twophase.operations.savepoint.savepoint_restore import (
    LAID_BY,
    SavepointRestore,
    load_savepoint,
)
from twophase.options.job_options import JobOptions
from twophase.sinks.common.staging.manifest import Manifest, StagedFile
from twophase.sinks.common.staging.names import Owner as IcebergOwner
from twophase.sinks.common.staging.rewound import Places
from twophase.sinks.delta import records as delta
from twophase.sinks.delta.high_water_marks import _MARK
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.names import Owner as DeltaOwner
from twophase.sinks.delta.names import PieceName as DeltaPieceName
from twophase.sinks.delta.names import data_prefix, fence_attempt, fence_version
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.pending import PendingPartitions
from twophase.sinks.iceberg import records as iceberg
from twophase.sinks.iceberg.proofs import FenceRecord as IcebergFence
from twophase.sinks.iceberg.proofs import LineageProof, Proofs
from twophase.sinks.kafka import chunks
from twophase.sinks.kafka import records as kafka
from twophase.sinks.kafka.names import name_of
from twophase.sinks.kafka.rows import KafkaRecord
from twophase.sinks.kafka.staging import Place
from twophase.sinks.mysql.xid import FORMAT_ID, Xid
from twophase.sinks.mysql.xid import Owner as MySqlOwner
from twophase.sinks.paimon import records as paimon
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.sources.kafka.range_digest import RangeDigest
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets, SourceState
from twophase.state.checkpoints.store import CompletedCheckpointStore, decode_body, encode_body
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import (
    AbandonedRewind,
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Note,
    Proof,
    Release,
    Rescale,
    Rewinding,
    Rewrite,
)
from twophase.state.journal.history import (
    _KINDS,
    History,
    Record,
    SubsumedRecord,
    record_from_json,
)
from twophase.state.journal.log import JobLog, LogEntry, job_of
from twophase.state.journal.stats import CheckpointStats, DeclinedAttempt

GOLDEN = Path(__file__).with_name("golden")
A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
NOTE = Note("ann@host", 1_700_000_000_000, "rolled back by hand")
FACTS, LAKE = "mysql:db.facts", "file:/srv/lake"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy: whatever reads a folder durably also syncs it."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return tmp_path / "golden"


def test_no_file_changes_and_none_goes() -> None:
    """Format 1 is frozen: `sha256sum --check SHA256SUMS`. Files of a newer one come beside them."""
    sums = [one.split("  ") for one in (GOLDEN / "SHA256SUMS").read_text().splitlines()]
    for digest, name in sums:
        assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == digest, name
    tools = {GOLDEN / "make.py", GOLDEN / "SHA256SUMS"}
    found = {path for path in GOLDEN.rglob("*") if path.is_file()} - tools
    unlisted = found - {GOLDEN / name for _, name in sums}
    assert not [one for one in unlisted if "__pycache__" not in one.parts]


# -- the expected values ---------------------------------------------------------------------------


def line(first: int, second: int, begin: str = "null") -> str:
    """A line of the Kafka source, as it is in the files."""
    entry = (
        '{"topic": "orders", "topic_id": "id-1", "partition": %d, "offset": %d, "leader_epoch": %d}'
    )
    entries = f"[{entry % (0, first, 3)}, {entry % (1, second, 3)}]"
    return written(entries, begin)


def written(entries: str, begin: str = "null", released: str = "[]") -> str:
    """A line of these entries."""
    return (
        f'{{"version": 1, "source": "kafka", "partitions": {entries}, "begin": {begin}, '
        f'"released": {released}}}'
    )


AT_ZERO = (
    '[{"topic": "orders", "topic_id": "id-1", "partition": 0, "offset": 0, "leader_epoch": -1}, '
    '{"topic": "orders", "topic_id": "id-1", "partition": 1, "offset": 0, "leader_epoch": -1}]'
)
NOTHING = written(AT_ZERO)
ENDS = [line(10, 11, AT_ZERO), line(20, 21), line(30, 31), line(40, 41), line(50, 51)]
OFFSETS = [
    FrozenOffsets((start,), (end,)) for start, end in zip([NOTHING, *ENDS], ENDS, strict=False)
]
HASHES = {
    0: "d14554eb8ced108e1a37353567ff3d9fb74a295203e1b8f33ef90f0c0e60675a",
    1: "654563ba8971fc2979138f46dbe7b7d910de2df7727be892ad75c9e5e7fa75cf",
    2: "2b391a5f5f3db9d7707e06308704fd3b97373b985923a87c1e4e05afdd12f2a7",
    3: "8f16bf6b468da9b0ed5021fc628f5f38a11d593746299073352de5a91f8db7e2",
    4: "edbe819ed2cb9b9f5c960b56ee83ba683607e60f74ab488a311fe4bf26d8fa17",
}


def proofs(*found: tuple[str, str, int]) -> tuple[Proof, ...]:
    targets = {"facts": FACTS, "lake": LAKE}
    return tuple(Proof(sink, lineage, number, targets[sink]) for sink, lineage, number in found)


P0 = proofs(("facts", A, 0), ("lake", A, 0))
P1 = proofs(("facts", A, 1), ("lake", A, 0))
P2 = proofs(("facts", A, 2), ("lake", A, 2))
P3 = proofs(("facts", B, 1), ("lake", B, 1))
P4 = proofs(("facts", B, 1), ("lake", B, 2))
D0 = Decision(
    A,
    0,
    Attempt(1, 1),
    HASHES[0],
    "f411ac90b6e35095cfda7292096f1f11337243ab0ddd3d8325416293d94c4ff2",
    proofs=P0,
)
D1 = Decision(
    A,
    1,
    Attempt(1, 3),
    HASHES[1],
    "4ac3137d415acb0a97fc03aa61144e4bde5b53bde7a401adb281586b6270ccb5",
    proofs=P1,
)
D2 = Decision(
    A,
    2,
    Attempt(2, 1),
    HASHES[2],
    "8d9f4ea3a841aabbd14165bdd4fef6f5090fa8cc42a873d5e0efdb66d304d22a",
    proofs=P2,
)
D2_AGAIN = Decision(
    A,
    2,
    Attempt(2, 2),
    HASHES[2],
    "706625d5a3db07ffbc1110a8f3906141790c6f118700fee2dcee5f264c13c688",
    proofs=P2,
)
D3 = Decision(
    B,
    1,
    Attempt(3, 1),
    HASHES[3],
    "c560e6bf8be60e741419b411d8b87f415f672df2bf1e8731e196141ecd4a0941",
    proofs=P3,
)
D4 = Decision(
    B,
    2,
    Attempt(3, 2),
    HASHES[4],
    "1a1a2b2ec4fc4a5e6e7cafe542027401e69e030421bd9612fd6729afccbc82f9",
    proofs=P4,
)
ADOPTED = Lineage(B, "", 1, (ENDS[2],), {A: 2}, P2)
REPAIRS = (
    Rewrite(NOTE, D2_AGAIN, Attempt(2, 1), "facts", ("1.101",), 5),
    AcceptedLoss(
        NOTE,
        A,
        2,
        "lake",
        ("0.100",),
        5,
        (ENDS[1],),
        (ENDS[2],),
        emptied=False,
        before=(),
    ),
    Adoption(NOTE, ADOPTED, (f"chk/{A}-2-2.2",)),
)
RECORDS: list[Record] = [
    FenceRecord(1),
    Lineage(A),
    D0,
    CommittedRecord(A, 0),
    D1,
    FenceRecord(2),
    CommittedRecord(A, 1),
    D2,
    *(repair for repair in REPAIRS[:2]),
    CommittedRecord(A, 2),
    FenceRecord(3),
    REPAIRS[2],
    D3,
    CommittedRecord(B, 1),
    D4,
]
LINEAGES = (Lineage(A), ADOPTED)
COMMITTED_D3 = Decision(B, 1, Attempt(3, 1), HASHES[3], D3.body_digest, committed=True, proofs=P3)
HISTORY = History(3, LINEAGES, (COMMITTED_D3, D4), REPAIRS)
RESTORED = Lineage(C, f"/chk/orders/chk/{B}-2-3.2", 1, (ENDS[4],), {A: 2, B: 2}, P3)


def piece(
    sink: str, lineage: str, number: int, at: int, attempt: Attempt, task: int
) -> Committable:
    handles: dict[str, dict[str, Any]] = {
        "facts": {"session": 17},
        "lake": {"manifest_sha256": "ab" * 32, "files": 1, "bytes": 970},
    }
    transaction = TransactionId("orders", lineage, number, attempt, sink, HASHES[at])
    return Committable(
        transaction,
        Subtask(task, 100 + task),
        {"facts": FACTS, "lake": LAKE}[sink],
        5,
        handles[sink],
    )


def checkpoint(
    lineage: str,
    number: int,
    at: int,
    attempt: Attempt,
    before: tuple[Proof, ...],
    **pieces: tuple[Committable, ...],
) -> CompletedCheckpoint:
    entries = tuple(
        {
            "topic": "orders",
            "topic_id": "id-1",
            "partition": index,
            "offset": 10 * at + 10 + index,
            "leader_epoch": 3,
        }
        for index in (0, 1)
    )
    time_ms = 1_700_000_000_000 + number
    return CompletedCheckpoint(
        "orders",
        lineage,
        number,
        attempt,
        time_ms,
        OFFSETS[at],
        {"dedup": {"seen": ["ä", 7, None, 0.5]}},
        pieces,
        840,
        predecessors=before,
        sources=(SourceState("twophase-kafka", "kafka", Redistribution.SPLIT, entries),),
    )


def pieces(
    sink: str, lineage: str, number: int, at: int, attempt: Attempt, *tasks: int
) -> tuple[Committable, ...]:
    return tuple(piece(sink, lineage, number, at, attempt, task) for task in tasks)


_2 = Attempt(2, 1)
BODIES = {
    f"{A}-0-1.1": checkpoint(
        *(A, 0, 0, Attempt(1, 1), ()),
        facts=pieces("facts", A, 0, 0, Attempt(1, 1), 0, 1),
        lake=pieces("lake", A, 0, 0, Attempt(1, 1), 0),
    ),
    f"{A}-1-1.3": checkpoint(
        A, 1, 1, Attempt(1, 3), P0, facts=pieces("facts", A, 1, 1, Attempt(1, 3), 0), lake=()
    ),
    f"{A}-2-2.1": checkpoint(
        A,
        2,
        2,
        _2,
        P1,
        facts=pieces("facts", A, 2, 2, _2, 0, 1),
        lake=pieces("lake", A, 2, 2, _2, 0, 1),
    ),
    f"{A}-2-2.2": checkpoint(
        *(A, 2, 2, Attempt(2, 2), P1),
        facts=(piece("facts", A, 2, 2, _2, 0), piece("facts", A, 2, 2, Attempt(2, 2), 2)),
        lake=pieces("lake", A, 2, 2, _2, 0, 1),
    ),
    f"{A}-3-2.3": checkpoint(
        A, 3, 3, Attempt(2, 3), P2, facts=pieces("facts", A, 3, 3, Attempt(2, 3), 0)
    ),
    f"{B}-1-3.1": checkpoint(
        *(B, 1, 3, Attempt(3, 1), P2),
        facts=pieces("facts", B, 1, 3, Attempt(3, 1), 0),
        lake=pieces("lake", B, 1, 3, Attempt(3, 1), 0),
    ),
    f"{B}-2-3.2": checkpoint(
        B, 2, 4, Attempt(3, 2), P3, facts=(), lake=pieces("lake", B, 2, 4, Attempt(3, 2), 1)
    ),
}


# -- the job's folder ------------------------------------------------------------------------------


def read_record(path: Path) -> Record:
    data = path.read_bytes()
    kind = kind_of(data)
    return record_from_json(kind, codec.decode(kind, data, path.name, LogEntry).record, path.name)


@pytest.mark.parametrize("sequence", range(1, 17))
def test_each_record_is_what_it_was(sequence: int) -> None:
    assert read_record(GOLDEN / f"job/log/{sequence:010d}") == RECORDS[sequence - 1]


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/log/*")), ids=lambda path: path.relative_to(GOLDEN).as_posix()
)
def test_each_record_is_written_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    kind, body = kind_of(data), codec.decode("", data, path.name, LogEntry)
    record = read_record(path)
    assert record.kind == kind
    assert codec.encode(kind, replace(body, record=record)) == data


@pytest.mark.parametrize(
    "path",
    sorted(GOLDEN.glob("*/chk/*/_metadata")),
    ids=lambda path: path.relative_to(GOLDEN).as_posix(),
)
def test_each_body_is_written_as_it_was(path: Path) -> None:
    assert encode_body(decode_body(path.read_bytes(), path.name)) == path.read_bytes()


@pytest.mark.parametrize("folder", ["savepoint", "rescaled"])
def test_each_manifest_is_written_as_it_was(folder: str) -> None:
    data = (GOLDEN / folder / "_savepoint").read_bytes()
    manifest = decode_manifest("SAVEPOINT", data, "_savepoint")
    assert codec.encode("SAVEPOINT", to_json(manifest)) == data


def test_every_kind_of_record_is_there() -> None:
    found = {
        read_record(path).kind
        for folder in ("job", "folded", "rewinding", "ahead")
        for path in (GOLDEN / folder / "log").iterdir()
    }
    assert found == {*_KINDS}


def test_the_log_is_what_it_was(golden: Path) -> None:
    assert job_of(LocalStorage(golden / "job")) == "orders"
    assert JobLog(LocalStorage(golden / "job"), "orders").read() == HISTORY


def test_the_folded_log_is_what_it_was(golden: Path) -> None:
    assert read_record(golden / "folded/log/0000000017") == SubsumedRecord(HISTORY)
    committed = Decision(B, 2, Attempt(3, 2), HASHES[4], D4.body_digest, committed=True, proofs=P4)
    found = JobLog(LocalStorage(golden / "folded"), "orders").read()
    assert found == History(4, (*LINEAGES, RESTORED), (COMMITTED_D3, committed), REPAIRS)


@pytest.mark.parametrize("folder", BODIES)
def test_each_body_is_what_it_was(folder: str) -> None:
    assert (
        decode_body((GOLDEN / "job/chk" / folder / "_metadata").read_bytes(), folder)
        == BODIES[folder]
    )


def test_every_body_is_compared() -> None:
    assert {path.name for path in (GOLDEN / "job/chk").iterdir()} == {*BODIES}


@pytest.mark.parametrize("at", range(5))
def test_the_hash_of_offsets_is_what_it_was(at: int) -> None:
    assert OFFSETS[at].hash == HASHES[at]


def test_a_driver_goes_on_with_the_folder(golden: Path) -> None:
    storage = LocalStorage(golden / "job")
    log = JobLog(storage, "orders")
    history = log.read()
    store = CompletedCheckpointStore(storage, log, num_retained=1)
    assert [store.read(decision) for decision in history.uncommitted()] == [BODIES[f"{B}-2-3.2"]]
    log.append(FenceRecord(4))
    log.append(CommittedRecord(B, 2))
    store.subsume()
    store.sweep()
    # checkpoint 1 has the newest rows of a sink
    assert {path.name for path in (golden / "job/chk").iterdir()} == {f"{B}-1-3.1", f"{B}-2-3.2"}


def test_a_job_restores_from_the_folder(golden: Path, tmp_path: Path) -> None:
    class Dedup:
        """Takes the state."""

    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "new")}, "job")
    states = OperatorStates([SourceLeg("twophase-kafka", {})], {"dedup": Dedup()})  # type: ignore[dict-item]
    path = golden / f"job/chk/{B}-2-3.2"
    found = load_restore("orders", str(path), LocalStorage(tmp_path / "new"), states, options)
    assert found is not None
    assert found.checkpoint == BODIES[f"{B}-2-3.2"]
    lineage = found.lineage
    assert (lineage.restored_from, lineage.first_checkpoint) == (str(path), 1)
    assert (lineage.start, lineage.ancestors, lineage.proofs) == ((ENDS[4],), {A: 2, B: 2}, P4)


# -- states of functions ---------------------------------------------------------------------------

STATES = f"{A}-1-1.2"
LARGE = [bytes([number]) * 600 for number in range(4)]
FILES = {
    f"state/{STATES}/0": (
        1_295,
        "9cf328cf45b920edc221daf7fca927470142af9608aa45ddf9aa4f350fb37dbc",
    ),
    f"state/{STATES}/1": (
        2_815,
        "c4fb3882a9d2838d850d3feed097f3bdcc162635756e9501a72c7ac11dcb5530",
    ),
}


def test_the_files_of_states_are_what_they_were() -> None:
    body = decode_body((GOLDEN / "states/chk" / STATES / "_metadata").read_bytes(), STATES)
    assert {path: (file.length, file.sha256) for path, file in body.state_files.items()} == FILES
    assert [path.name for path in (GOLDEN / "states/state").iterdir()] == [STATES]


def test_the_states_of_a_function_are_what_they_were(golden: Path) -> None:
    storage = LocalStorage(golden / "states")
    log = JobLog(storage, "orders")
    decision = log.read().decisions[-1]
    store = CompletedCheckpointStore(storage, log, num_retained=1)
    checkpoint = store.read_with_states(decision)
    contexts: list[InitializationContext] = []

    class Rules:
        """Takes the state."""

        def initialize_state(self, context: InitializationContext) -> None:
            contexts.append(context)

        def snapshot_state(self, context: SnapshotContext) -> None:
            raise AssertionError

    options = JobOptions.parse({"checkpointLocation": str(golden / "states")}, "job")
    states = OperatorStates([SourceLeg("twophase-kafka", {})], {"rules": Rules()})
    states.initialize(checkpoint, options)
    [context] = contexts
    given = context.operator_state_store
    assert (context.is_restored, context.state) == (True, {})
    assert given.get_list_state("seen").get() == ["ä", 7, None, 0.5, {"deep": [True]}]
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, None], "at": [b"\0", None, b""]})
    assert given.get_union_list_state("batches", "arrow").get() == [batch, batch.slice(1)]
    limits = given.get_broadcast_state("limits", "json", "bytes")
    assert limits.items() == [("low", b"\1"), ("high", b"\xff")]
    assert given.get_list_state("large", "bytes").get() == LARGE
    assert given.get_list_state("empty").get() == []
    assert context.raw_operator_state_inputs == [b"raw \0\xff", b""]


# -- a rescale -------------------------------------------------------------------------------------


def test_a_rescale_is_what_it_was(golden: Path) -> None:
    rescaled = (Rescale(3, 3), Rescale(4, 1))
    lineage = Lineage(C, "/saved", 5, (), {A: 2, B: 2}, (), rescaled)
    assert read_record(golden / "rescaled/log/0000000002") == lineage
    assert JobLog(LocalStorage(golden / "rescaled"), "orders").read().lineage == lineage
    history = History(1, (lineage,))
    assert from_json(History, to_json(history), "here") == history
    body = SavedFile("checkpoints/b", 0, 4, "ab" * 32)
    data = (golden / "rescaled/_savepoint").read_bytes()
    assert decode_manifest("SAVEPOINT", data, "_savepoint") == StateManifest(
        *("orders", B, 2, body.path, (), {A: 2}, 1_700_000_000_000, (body,), 16, rescaled)
    )


# -- a savepoint -----------------------------------------------------------------------------------


class Dedup:
    """Takes the state."""

    def snapshot_state(self, context: object) -> dict[str, Any]:
        raise NotImplementedError

    def initialize_state(self, context: object) -> None:
        """Nothing to do."""


def savepoint_restore(golden: Path, root: Path) -> SavepointRestore:
    (golden / "savepoint").chmod(0o700)
    root.mkdir(mode=0o700)
    options = JobOptions.parse({"checkpointLocation": str(root)}, "job")
    states = OperatorStates([SourceLeg("twophase-kafka", {})], {"dedup": Dedup()})
    found = load_savepoint(
        *("orders", str(golden / "savepoint"), LocalStorage(root), states, options),
        Plan(stateful=True, keeps_state=True),
    )
    assert found is not None
    return found


def test_the_savepoint_is_what_it_was(golden: Path) -> None:
    found = open_savepoint(str(golden / "savepoint"))
    found.verify()
    manifest = found.manifest
    assert (manifest.job, manifest.lineage, manifest.checkpoint) == ("orders", B, 2)
    assert (manifest.ancestors, manifest.created_ms) == ({A: 2}, 1_700_000_000_000)
    assert not found.is_committed
    assert found.checkpoint() == BODIES[f"{B}-2-3.2"]
    assert found.pending() == (BODIES[f"{B}-2-3.2"],)


def test_a_job_restores_from_the_savepoint(golden: Path, tmp_path: Path) -> None:
    found = savepoint_restore(golden, tmp_path / "new")
    lineage = found.restore.lineage
    assert (lineage.first_checkpoint, lineage.start) == (3, ())
    assert (lineage.ancestors, lineage.proofs) == ({A: 2, B: 2}, P4)
    assert found.restore.adopting == (BODIES[f"{B}-2-3.2"],)
    found.write_folder(tmp_path / "new", generation=4)
    folder = SparkFolder(tmp_path / "new/spark" / lineage.id, lineage)
    folder.prepare(None)
    assert (folder.planned(), folder.finished()) == (2, 2)
    assert folder.offsets(2) == OFFSETS[4]
    files = {
        path.relative_to(folder.path).as_posix(): path.read_text()
        for path in folder.path.rglob("*")
        if path.is_file()
    }
    schema = "state/0/_stateSchema/default/0_5ca64ce9"
    described = files.pop("state/0/_metadata/v2/0")
    assert f'"stateSchemaFilePaths":["file:{folder.path}/{schema}"]' in described
    assert json.loads(files.pop("metadata")) == {"id": lineage.id}
    assert files.pop(LAID_BY) == "4"
    assert files == {
        "offsets/1": f'v1\n{{"batchWatermarkMs":1}}\n{ENDS[3]}',
        "offsets/2": f'v1\n{{"batchWatermarkMs":2}}\n{ENDS[4]}',
        "commits/2": 'v1\n{"nextBatchWatermarkMs":3}',
        "sources/0/0": "v1\n{}",
        schema: "v3\nfields",
        "state/0/0/2.delta": "version 2",
        "state/0/0/2.snapshot": "versions 1 and 2",
        "state/0/0/3.delta": "version 3",
    }


# -- what sources and sinks keep -------------------------------------------------------------------


def test_the_offset_of_the_kafka_source_is_what_it_was() -> None:
    entries = tuple(PartitionOffset("orders", "id-1", index, 10 + index, 3) for index in (0, 1))
    begin = tuple(PartitionOffset("orders", "id-1", index, 0, -1) for index in (0, 1))
    assert SourceOffset.parse(BODIES[f"{A}-0-1.1"].offsets.end[0] or "") == SourceOffset(
        "kafka", entries, begin
    )


def test_the_digest_of_a_range_is_what_it_was() -> None:
    expected = RangeDigest(100, 5_950, 3_735_928_559)
    kept = (GOLDEN / "ranges/digest").read_bytes()
    assert codec.decode("RANGE", kept, "here", RangeDigest) == expected
    assert codec.encode("RANGE", expected) == kept


FIELDS = pa.schema([("id", pa.int64()), ("day", pa.string())])


def test_a_manifest_of_staged_files_is_what_it_was() -> None:
    [path] = GOLDEN.glob("files/_twophase~orders~lake/fence-1.3/staged/*/manifest")
    files = (
        StagedFile(
            0,
            ("2026-08-01",),
            1,
            9,
            "1ca5c4db56f4d95854b8b9a5cef70bd3844b657b93cfebd6037221b1ae74c5d0",
        ),
        StagedFile(
            1, (None,), 1, 10, "1cd664b093c84348f1d04f58b1b3136225f0e781ec739075984372e186cd00e7"
        ),
    )
    transaction = TransactionId("orders", A, 2, Attempt(1, 3), "lake", "2f" * 32)
    assert Manifest.decode(path.read_bytes(), "here") == Manifest(
        transaction, Subtask(0, 102), files
    )


def test_a_table_of_files_goes_on(golden: Path) -> None:
    declared = FileSink(path=str(golden / "files"), format="json", partition_by=["day"])
    sink = declared.open(SinkContext("orders", "lake", FIELDS, parallelism=2))
    assert sink.history() == SinkHistory(1, {A: 1})
    assert list(sink.committed_pieces(A, 1)) == ["1.2/0.101"]
    [waiting] = sink.in_doubt()
    transaction = TransactionId("orders", A, 2, Attempt(1, 3), "lake", "2f" * 32)
    assert (waiting.transaction, waiting.subtask, waiting.rows) == (transaction, Subtask(0, 102), 2)
    assert sink.commit([CommitRequest(waiting)]) == [Committed()]
    assert sink.commit([CommitRequest(waiting)]) == [AlreadyCommitted("done marker")]
    names = [path.name for path in sorted((golden / "files/day=2026-08-01").iterdir())]
    assert names == [
        (
            f"twophase-bb9828b81bc9-{A}-{number}-1.{number + 1}-0.{100 + number}-"
            f"{f'{number}f' * 6}-0.json"
        )
        for number in range(3)
    ]


def test_the_note_of_a_rewind_of_files_is_what_it_was() -> None:
    path = GOLDEN / "rewound" / "places"
    places = Places.read(path)
    assert places.paths == {
        "0": "day=2026-08-01/ä-0.json",
        "1": "day=__HIVE_DEFAULT_PARTITION__/b-1.json",
    }
    assert places.encode() == path.read_bytes()


def test_partitions_that_wait_for_the_metastore_are_what_they_were(golden: Path) -> None:
    pending = PendingPartitions(golden / "hive")
    assert pending.partitions() == [("2026-08-01", None, "ä")]
    assert pending.watermark_us() == 1_700_000_000_000_000
    pending.remove([("2026-08-01", None, "ä")])
    assert pending.partitions() == []


DELTA = TransactionId("orders", A, 7, Attempt(2, 3), "lake", "ab" * 32)


def test_the_records_of_a_delta_piece_are_what_they_were() -> None:
    intent = delta.Intent(DELTA, "0a1b2c3d-0000-4000-8000-000000000000", 41, 6)
    columns: tuple[dict[str, Any], ...] = tuple(
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "p")
    )
    layout = TableLayout(columns, ("p",), ("appendOnly",), {"delta.appendOnly": "true"})
    assert delta.decode_intent((GOLDEN / "delta/intent").read_bytes(), "intent") == intent
    manifest = delta.decode_manifest((GOLDEN / "delta/manifest").read_bytes(), "manifest")
    assert (manifest.intent, manifest.layout) == (intent, layout)
    [file] = map(delta.data_file, manifest.actions)
    assert file == delta.DataFile("p=%C3%A4/twophase-x-part-00000.parquet", 9, 3)


def test_the_records_of_an_iceberg_table_are_what_they_were() -> None:
    statistics = iceberg.FileStatistics(
        column_sizes={"1": 40, "2": 52},
        value_counts={"1": 3, "2": 3},
        null_value_counts={"1": 1, "2": 0},
        nan_value_counts={"3": 2},
        lower_bounds={"1": bytes(8), "2": "ä".encode()},
        upper_bounds={"1": b"\x09" + bytes(7)},
        split_offsets=(4, 970),
    )
    file = iceberg.StagedFile(0, (b"\x11\x4f\0\0", None), 3, 1_970, "cd" * 32, statistics)
    fields = {"1": "long", "2": "string required", "3": "double"}
    manifest = iceberg.Manifest(DELTA, Subtask(0, 102), (file,), 1, fields)
    data = (GOLDEN / "iceberg/manifest").read_bytes()
    assert iceberg.Manifest.decode(data, "manifest") == manifest
    order = '{"order-id":1,"fields":[{"source-id":1}]}'
    of_version_2 = iceberg.SortedManifest(DELTA, Subtask(0, 102), (file,), 1, fields, order)
    data = (GOLDEN / "iceberg/manifest-2").read_bytes()
    assert iceberg.Manifest.decode(data, "manifest") == of_version_2
    assert of_version_2.encode() == data
    found = Proofs(
        IcebergOwner("orders", "lake"),
        {
            f"twophase/orders/lake/{A}": (GOLDEN / "iceberg/proof").read_text(),
            "twophase-fence/orders/lake": (GOLDEN / "iceberg/fence").read_text(),
        },
    )
    assert found.lineage(A) == LineageProof(
        mark=5,
        pieces={"6": ("2.1/0.100",), "7": ("2.3/0.102", "2.3/1.103")},
        snapshot=5_395_604_375_822_749_580,
        sequence=12,
        first=3_775_396_607_982_654_621,
    )
    assert found.fence() == IcebergFence(2, 3, "0f" * 16)


def test_what_the_snapshots_of_an_iceberg_table_say_is_what_it_was() -> None:
    owner = {"twophase.job": "orders", "twophase.sink": "lake"}
    of = {"twophase.lineage": A, "twophase.checkpoint": "7", "twophase.attempt": "2.3"}
    assert iceberg.summary_of_piece(DELTA) == owner | of
    rewind = iceberg.summary_of_rewind(IcebergOwner("orders", "lake"), Attempt(3, 0))
    assert rewind == owner | {"twophase.rewind": "3.0"}


def test_the_records_of_a_paimon_table_are_what_they_were() -> None:
    file = paimon.StagedFile(0, 3, 1_970, "cd" * 32, b"\0\0\0\x0e\xff")
    fields = {"0": "BIGINT", "1": "STRING required"}
    data = (GOLDEN / "paimon/manifest").read_bytes()
    manifest = paimon.Manifest(DELTA, Subtask(0, 102), (file,), 41, 14, fields)
    assert paimon.decode_manifest(data, "manifest") == manifest
    text = (GOLDEN / "paimon/pieces").read_text()
    assert paimon.decode_pieces(text, "it") == paimon.SnapshotPieces(
        "orders", "lake", A, 7, ("2.3/0.102", "2.3/1.103")
    )
    data = (GOLDEN / "paimon/commit").read_bytes()
    assert paimon.decode_commit(data, "it") == paimon.CommitRecord(42, "0f" * 16, ("2.3/0.102",))
    assert paimon.Note.parse(f"{A}~7~42") == paimon.Note(42, A, 7)
    assert str(paimon.Note(42, A, 7)) == f"{A}~7~42"


def test_the_records_of_a_kafka_sink_are_what_they_were() -> None:
    target, subtask = "kafka:c/out/i/l", Subtask(0, 102)
    transaction = replace(DELTA, sink="log")
    name = f"twophase/out/orders/log/{A}-7-2.3-0.102"
    waiting = {"id": name, "until": 1_700_000_900, "topics": {"other": "Zm9v"}}
    place = Place("twophase-staging-orders-log-0a1b2c3d", "YmFy", 1, 40, 43, 2)
    piece = Committable(transaction, subtask, target, 3, waiting)
    staged = replace(piece, handle=place.handle())
    records = {
        "piece": piece,
        "staged": staged,
        "mark": kafka.Mark("out", "orders", "log", A, 7, target),
        "fence": kafka.Fence("out", "orders", "log", 2, 3),
    }
    for file, record in records.items():
        assert kafka.decoded((GOLDEN / "kafka" / file).read_bytes(), file) == record
    assert name_of("out", piece) == name
    assert Place.of(staged) == place


def test_staged_rows_of_a_kafka_sink_are_what_they_were() -> None:
    first = KafkaRecord(b"v", b"k", [("h", b"1"), ("n", None)], 2, 1_700_000_000_123)
    for version, topic in ((1, None), (2, "other")):
        data = (GOLDEN / f"kafka/rows-{version}").read_bytes()
        chunk = chunks.decoded(data, "it")
        assert chunk.number == version - 1
        assert chunk.records == [replace(first, topic=topic), KafkaRecord(None)]


def test_the_names_in_a_delta_table_are_what_they_were() -> None:
    owner = DeltaOwner("orders", "lake")
    assert owner.folder == "_twophase/orders/lake"
    assert owner.app_id(A) == f"twophase/orders/lake/{A}"
    assert owner.fence_id == "twophase-fence/orders/lake"
    assert data_prefix(owner, DELTA) == f"twophase-bb9828b81bc9-{A}-7-2.3-abababababab-"
    assert DeltaPieceName.parse(f"{A}-7-2.3") == DeltaPieceName.of(DELTA)
    mark = _MARK.fullmatch(f"{A}-7.42.0a1b2c3d-0000-4000-8000-000000000000.proof")
    assert mark is not None
    assert mark.groupdict() == {
        "lineage": A,
        "checkpoint": "7",
        "version": "42",
        "table": "0a1b2c3d-0000-4000-8000-000000000000",
    }
    assert (fence_version(Attempt(2, 3)), fence_attempt(4_294_967_299)) == (
        4_294_967_299,
        Attempt(2, 3),
    )


def test_the_id_of_an_xa_branch_is_what_it_was() -> None:
    owner = MySqlOwner("0a1b2c3d-0000-4000-8000-000000000000", "orders", "facts")
    transaction = TransactionId("orders", A, 7, Attempt(2, 3), "facts", "ab" * 32)
    gtrid, bqual = (
        "63eea80b2e0d-aaaaaaaa000040008000000000000000-7",
        "2.3-5b744e6ea503-1.101-abababab-17",
    )
    xid = Xid.of(owner, transaction, Subtask(1, 101), 17)
    assert (FORMAT_ID, xid.gtrid, xid.bqual) == (1_953_984_616, gtrid, bqual)
    found = Xid.from_recover((1_953_984_616, len(gtrid), len(bqual), f"{gtrid}{bqual}".encode()))
    assert found is not None
    assert found.belongs_to(owner)
    short = TransactionId("orders", A, 7, Attempt(2, 3), "facts", "abababab")
    assert (found.identify(owner), found.session) == ((short, Subtask(1, 101)), 17)


def test_the_history_of_checkpoints_is_what_it_was(golden: Path) -> None:
    found = JobLog(LocalStorage(golden / "stats"), "orders").read()
    declined = (
        DeclinedAttempt(Attempt(1, 2), "CHECKPOINT_EXPIRED"),
        DeclinedAttempt(Attempt(1, 3), "TASK_FAILURE", "a task failed: ä."),
    )
    assert found.stats == (
        CheckpointStats(A, 0, 700, 20, 95, 1_234),
        CheckpointStats(A, 1, 701, 20, 95, 1_234, declined),
    )
    assert [one.committed for one in found.decisions] == [True, True]


def test_a_rewind_that_was_begun_is_known(golden: Path) -> None:
    found = JobLog(LocalStorage(golden / "rewinding"), "orders").read()
    assert found.rewinding == Rewinding("/savepoints/orders-1", {A: 0})
    assert (found.generation, [one.checkpoint for one in found.decisions]) == (2, [0, 1])


def test_a_rewind_that_was_given_up_is_known(golden: Path) -> None:
    found = JobLog(LocalStorage(golden / "abandoned"), "orders").read()
    assert found.rewinding is None
    loss, abandoned = found.repairs
    assert abandoned == AbandonedRewind(
        NOTE, Rewinding("/savepoints/orders-1", {A: 0}), (), ("lake",)
    )
    assert isinstance(loss, AcceptedLoss)
    assert (loss.sink, loss.checkpoint, loss.rows, loss.note) == ("facts", 1, 5, NOTE)
    assert [(one.sink, one.checkpoint) for one in found.committed_proofs()] == [
        ("facts", 0),
        ("lake", 1),
    ]


def test_what_was_released_is_known(golden: Path) -> None:
    first, second = (PartitionOffset("orders", "id-1", n, 10 + n, 3) for n in (0, 1))
    found = JobLog(LocalStorage(golden / "released"), "orders").read()
    parts = SourceOffset("kafka", (second,)).to_line()
    assert found.repairs == (Release(NOTE, A, 0, (parts,)),)
    line = (golden / "released/line").read_text()
    assert SourceOffset.parse(line) == SourceOffset("kafka", (first,), released=(second,))
    assert SourceOffset.parse(line).to_line() == line


def test_sinks_that_commit_ahead_are_known(golden: Path) -> None:
    found = JobLog(LocalStorage(golden / "ahead"), "orders").read()
    assert [(one.sink, one.checkpoint, one.attempt) for one in found.sink_decisions] == [
        ("facts", 1, Attempt(2, 1)),
        ("lake", 1, Attempt(3, 1)),
    ]
    [pieces, _] = [one.pieces for one in found.sink_decisions]
    assert [str(piece.subtask) for piece in pieces] == ["0.100", "1.101"]
    assert [one.checkpoint for one in found.decisions] == [0]

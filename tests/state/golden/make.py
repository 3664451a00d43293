"""Makes the golden files: what format version 1 has written, checked in so that it stays
readable for ever.

    .venv/bin/python -m tests.state.golden.make FOLDER

It was run by twophase 0.1.0, and what it wrote is beside it, with its digests in SHA256SUMS. No
test runs it: format 1 is frozen, and the files are never made again. A new version of a format gets
golden files of its own beside these, and these stay.

    job/       a job's folder: a Kafka source, sinks `facts` and `lake`, a function `dedup`;
               every kind of record
    folded/    the same log, folded into a SUBSUMED record, and what came after
    files/     the table of a file sink: a committed piece and mark, a decided piece that waits
    rewound/   the note of where the files of a piece were that a rewind has moved
    hive/      a partition that waits for the metastore, and the watermark
    ranges/    the digest of a range
    delta/     the intent and the manifest of a Delta piece
    iceberg/   the manifest of an Iceberg piece, and version 2 of it, with a sort order; proof and
               fence, the properties of a table
    paimon/    the manifest of a Paimon piece, the property of a snapshot, and the note of a commit
    kafka/     what a ledger says of a piece in a transaction and of a staged one, a mark and a
               fence; two chunks of staged rows, of which `rows-2` names topics
    states/    a job's folder: two checkpoints of a function `rules` with state of every form, in
               the body and in files; the first is subsumed
    savepoint/ of `job`, whose checkpoint 2 of lineage B waits for its commit, with the state of a
               `transformWithState`
    rewinding/ a job's folder in the middle of a rewind
    abandoned/ the same, when it was given up: `facts` was rewound, `lake` was not
    ahead/     a job's folder in which a sink commits checkpoint 1 ahead, with a folded log
    released/  a log in which an operator has released a partition, and the offset line after that
    stats/     a log with the history of two checkpoints, one of them folded

The story of the job: driver 1 decides and commits checkpoint 0. Its attempt 1.2 at checkpoint 1 is
declined, because a target rejects rows; 1.3 is decided. Driver 2 commits it and decides 2. A piece
of `facts` is lost and is written again, one of `lake` is given up. A body of 3 stays undecided. The
folder is lost; driver 3 adopts what the targets have, in lineage B.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.contract.source import SourceLeg
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.clock import SystemClock
from twophase.internals.json_values import to_json
from twophase.operations.savepoint import manifest as savepoint_manifest
from twophase.operations.savepoint.format import KINDS, MANIFEST
from twophase.operations.savepoint.make import SavepointMaker
from twophase.options.job_options import JobOptions
from twophase.sinks.common.staging.rewound import Places
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.records import Intent, Manifest, encode_intent, encode_manifest
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.pending import PendingPartitions
from twophase.sinks.iceberg import records as iceberg
from twophase.sinks.iceberg.proofs import FenceRecord as IcebergFence
from twophase.sinks.iceberg.proofs import LineageProof, encode_fence, encode_proof
from twophase.sinks.kafka import records as kafka
from twophase.sinks.kafka.chunks import Chunk
from twophase.sinks.kafka.rows import KafkaRecord
from twophase.sinks.kafka.staging import Place
from twophase.sinks.paimon import records as paimon
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.sources.kafka.range_digest import RangeDigest
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files import codec
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import (
    AbandonedRewind,
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    FenceRecord,
    Lineage,
    Note,
    Proof,
    Release,
    Rescale,
    Rewinding,
    Rewrite,
    SinkDecision,
)
from twophase.state.journal.log import JobLog
from twophase.state.journal.stats import CheckpointStats, DeclinedAttempt

JOB = "orders"
A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
DECLINED = (
    (),
    (
        DeclinedAttempt(Attempt(1, 2), "CHECKPOINT_EXPIRED"),
        DeclinedAttempt(Attempt(1, 3), "TASK_FAILURE", "a task failed: ä."),
    ),
)
"""Before checkpoints 0 and 1 of `stats`."""
NOTE = Note("ann@host", 1_700_000_000_000, "rolled back by hand")
TARGETS = {"facts": "mysql:db.facts", "lake": "file:/srv/lake"}


class Dedup:
    """A function with state."""

    def snapshot_state(self, context: object) -> dict[str, object]:
        return {"seen": ["ä", 7, None, 0.5]}


def offset(number: int) -> str:
    """The offset line at which checkpoint `number` ends."""
    found = [
        PartitionOffset("orders", "id-1", index, 10 * (number + 1) + index, 3) for index in (0, 1)
    ]
    begin = (
        tuple(replace(entry, offset=0, leader_epoch=-1) for entry in found) if number == 0 else None
    )
    return SourceOffset("kafka", tuple(found), begin).to_line()


def checkpoint(
    lineage: str,
    number: int,
    attempt: Attempt,
    tasks: dict[str, Sequence[int]],
    before: tuple[Proof, ...],
) -> CompletedCheckpoint:
    """A checkpoint with one piece of 5 rows for each task of each sink."""
    at = number + 2 if lineage == B else number  # B begins where checkpoint 2 of A has ended
    start = SourceOffset.parse(offset(0)).start.to_line() if at == 0 else offset(at - 1)
    offsets = FrozenOffsets((start,), (offset(at),))
    states = OperatorStates([SourceLeg("twophase-kafka", {})], {"dedup": Dedup()})  # type: ignore[dict-item]
    pieces = {
        sink: [
            Committable(
                TransactionId(JOB, lineage, number, attempt, sink, offsets.hash),
                Subtask(task, 100 + task),
                TARGETS[sink],
                5,
                {"manifest_sha256": "ab" * 32, "files": 1, "bytes": 970}
                if sink == "lake"
                else {"session": 17},
            )
            for task in found
        ]
        for sink, found in tasks.items()
    }
    state = states.snapshot(number, offsets)
    return CompletedCheckpoint(
        JOB,
        lineage,
        number,
        attempt,
        1_700_000_000_000 + number,
        offsets,
        state["functions"],
        pieces,
        840,
        before,
        state["sources"],
    )


class Rules:
    """A function with state of every form."""

    def initialize_state(self, context: InitializationContext) -> None:
        store = context.operator_state_store
        store.get_list_state("seen").update(["ä", 7, None, 0.5, {"deep": [True]}])
        columns = {"id": [1, 2, None], "at": [b"\0", None, b""]}
        batch = pa.RecordBatch.from_pydict(columns)
        store.get_union_list_state("batches", "arrow").update([batch, batch.slice(1)])
        store.get_broadcast_state("limits", "json", "bytes").put_all(
            {"low": b"\1", "high": b"\xff"}
        )
        store.get_list_state("large", "bytes").update(
            [bytes([number]) * 600 for number in range(4)]
        )
        store.get_list_state("empty")

    def snapshot_state(self, context: SnapshotContext) -> None:
        context.raw_operator_state_output.write(b"raw ")
        context.raw_operator_state_output.write(b"\0\xff")
        context.raw_operator_state_output.start_new_partition()


def make_states(root: Path) -> None:
    """Write `states`."""
    storage = LocalStorage(root / "states")
    log = JobLog(storage, JOB)
    store = CompletedCheckpointStore(storage, log, num_retained=1, memory_threshold=1000)
    log.read()
    log.append(FenceRecord(1))
    log.append(Lineage(A))
    states = OperatorStates([SourceLeg("twophase-kafka", {})], {"rules": Rules()})
    states.initialize(None, JobOptions.parse({"checkpointLocation": "/chk/orders"}, "job"))
    for number in (0, 1):
        plain = checkpoint(A, number, Attempt(1, number + 1), {"facts": [0]}, ())
        listed = states.snapshot(number, plain.offsets)
        functions, states_of = listed["functions"], listed["function_states"]
        whole = replace(plain, functions=functions, function_states=states_of)
        store.decide(store.prepare(whole))
        log.append(CommittedRecord(A, number))
        store.subsume()


def rewritten(old: CompletedCheckpoint) -> CompletedCheckpoint:
    """The same checkpoint with another piece in place of the one of task 1 in `facts`."""
    kept, lost = old.committables["facts"]
    new = replace(
        lost, transaction=replace(lost.transaction, attempt=Attempt(2, 2)), subtask=Subtask(2, 102)
    )
    return replace(
        old, attempt=Attempt(2, 2), committables={**old.committables, "facts": [kept, new]}
    )


def make_job(root: Path) -> None:
    """Write `job` and `folded`."""
    storage = LocalStorage(root / "job")
    log = JobLog(storage, JOB)
    store = CompletedCheckpointStore(storage, log, num_retained=100)
    log.read()
    log.append(FenceRecord(1))
    log.append(Lineage(A))
    first = checkpoint(A, 0, Attempt(1, 1), {"facts": [0, 1], "lake": [0]}, ())
    store.decide(store.prepare(first))
    log.append(CommittedRecord(A, 0))
    second = checkpoint(A, 1, Attempt(1, 3), {"facts": [0], "lake": []}, first.proofs)
    store.decide(store.prepare(second))
    log.append(FenceRecord(2))
    log.append(CommittedRecord(A, 1))
    third = checkpoint(A, 2, Attempt(2, 1), {"facts": [0, 1], "lake": [0, 1]}, second.proofs)
    store.decide(store.prepare(third))
    new = store.prepare(rewritten(third))
    log.append(Rewrite(NOTE, new, third.attempt, "facts", ("1.101",), 5))
    lines = third.offsets
    log.append(
        AcceptedLoss(
            NOTE, A, 2, "lake", ("0.100",), 5, lines.start, lines.end, emptied=False, before=()
        )
    )
    log.append(CommittedRecord(A, 2))
    store.prepare(checkpoint(A, 3, Attempt(2, 3), {"facts": [0]}, third.proofs))
    log.append(FenceRecord(3))
    adopted = Lineage(B, "", 1, (offset(2),), {A: 2}, third.proofs)
    log.append(Adoption(NOTE, adopted, (f"chk/{A}-2-2.2",)))
    fourth = checkpoint(B, 1, Attempt(3, 1), {"facts": [0], "lake": [0]}, third.proofs)
    store.decide(store.prepare(fourth))
    log.append(CommittedRecord(B, 1))
    store.decide(
        store.prepare(checkpoint(B, 2, Attempt(3, 2), {"facts": [], "lake": [1]}, fourth.proofs))
    )
    shutil.copytree(root / "job" / "log", root / "folded" / "log")
    folded = JobLog(LocalStorage(root / "folded"), JOB)
    folded.fold(folded.read())
    folded.append(FenceRecord(4))
    folded.append(CommittedRecord(B, 2))
    folded.append(
        Lineage(C, f"/chk/orders/chk/{B}-2-3.2", 1, (offset(4),), {A: 2, B: 2}, fourth.proofs)
    )


def begun(folder: Path, num_retained: int) -> tuple[JobLog, CompletedCheckpointStore]:
    """Begin lineage A in a job's folder."""
    storage = LocalStorage(folder)
    log = JobLog(storage, JOB)
    log.read()
    log.append(FenceRecord(1))
    log.append(Lineage(A))
    return log, CompletedCheckpointStore(storage, log, num_retained)


def make_rewinding(root: Path) -> None:
    """Write `rewinding`."""
    rewinding(root / "rewinding")


def make_abandoned(root: Path) -> None:
    """Write `abandoned`."""
    log, found = rewinding(root / "abandoned")
    offsets, [piece] = found.offsets, found.committables["facts"]
    gone = Proof("facts", A, 1, piece.target)
    loss = AcceptedLoss(
        *(NOTE, A, 1, "facts", (str(piece.subtask),), 5, offsets.start, offsets.end, True),
        before=(replace(gone, checkpoint=0),),
        lacks=(gone,),
    )
    log.append(FenceRecord(3))
    begun = log.history.rewinding
    assert begun is not None
    log.append(AbandonedRewind(NOTE, begun, (loss,), ("lake",)))


def rewinding(root: Path) -> tuple[JobLog, CompletedCheckpoint]:
    """Write a job's folder in the middle of a rewind; return its newest checkpoint."""
    log, store = begun(root, num_retained=2)
    proofs: tuple[Proof, ...] = ()
    for number in (0, 1):
        found = checkpoint(A, number, Attempt(1, number + 1), {"facts": [0], "lake": [0]}, proofs)
        store.decide(store.prepare(found))
        log.append(CommittedRecord(A, number))
        proofs = found.proofs
    log.append(FenceRecord(2))
    log.append(Rewinding("/savepoints/orders-1", {A: 0}))
    return log, found


def make_ahead(root: Path) -> None:
    """Write `ahead`."""
    log, store = begun(root / "ahead", num_retained=2)
    first = checkpoint(A, 0, Attempt(1, 1), {"facts": [0], "lake": [0]}, ())
    store.decide(store.prepare(first))
    log.append(CommittedRecord(A, 0))
    for number, sink in enumerate(("facts", "lake")):
        log.append(FenceRecord(2 + number))
        found = checkpoint(A, 1, Attempt(2 + number, 1), {sink: [0, 1]}, first.proofs)
        offsets, pieces = found.offsets, tuple(found.committables[sink])
        decided = SinkDecision(
            *(A, 1, sink, found.attempt, offsets.hash, offsets.start, offsets.end, pieces)
        )
        log.append(decided)
        if number == 0:
            log.fold(log.history)


def make_released(root: Path) -> None:
    """Write `released`."""
    log, store = begun(root / "released", num_retained=2)
    first = checkpoint(A, 0, Attempt(1, 1), {"facts": [0], "lake": [0]}, ())
    store.decide(store.prepare(first))
    log.append(CommittedRecord(A, 0))
    log.append(FenceRecord(2))
    end = SourceOffset.parse(offset(0))
    parts = SourceOffset.of("kafka", (end.partitions or ())[1:])
    log.append(Release(NOTE, A, 0, (parts.to_line(),)))
    line = SourceOffset.of("kafka", end.partitions or ()).releasing(end, parts).to_line()
    (root / "released" / "line").write_text(line)


def make_stats(root: Path) -> None:
    """Write `stats`."""
    log, store = begun(root / "stats", num_retained=2)
    proofs: tuple[Proof, ...] = ()
    for number, declined in enumerate(DECLINED):
        attempt = Attempt(1, 1 + 3 * number)
        found = checkpoint(A, number, attempt, {"facts": [0], "lake": [0]}, proofs)
        store.decide(store.prepare(found))
        proofs = found.proofs
        stats = CheckpointStats(A, number, 700 + number, 20, 95, 1_234, declined)
        log.append(CommittedRecord(A, number, stats))
        if number == 0:
            log.fold(log.history)


def make_files(root: Path) -> None:
    """Write `files`: checkpoint 0 is in the mark, 1 in `done`, 2 waits."""
    fields = pa.schema([("id", pa.int64()), ("day", pa.string())])
    declared = FileSink(path=str(root / "files"), format="json", partition_by=["day"])
    sink = declared.open(SinkContext(JOB, "lake", fields, parallelism=2))
    sink.fence(Attempt(1, 1))
    for number in range(3):
        transaction = TransactionId(
            JOB, A, number, Attempt(1, 1 + number), "lake", f"{number}f" * 32
        )
        sink.fence(transaction.attempt)
        writer = sink.writers()(transaction, Subtask(0, 100 + number))
        rows = [{"id": number, "day": "2026-08-01"}, {"id": 10 + number, "day": None}]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=fields))
        piece = writer.pre_commit()
        assert piece is not None
        if number < 2:
            sink.commit([CommitRequest(piece)])
        if number == 0:
            sink.subsume(A, 0)


def make_others(root: Path) -> None:
    """Write `rewound`, `hive`, `ranges` and `delta`."""
    (root / "rewound").mkdir()
    places = {"0": "day=2026-08-01/ä-0.json", "1": "day=__HIVE_DEFAULT_PARTITION__/b-1.json"}
    (root / "rewound" / "places").write_bytes(Places(places).encode())
    (root / "hive").mkdir()
    pending = PendingPartitions(root / "hive")
    pending.create()
    pending.add([("2026-08-01", None, "ä")])
    pending.raise_watermark([1_700_000_000_000_000])
    (root / "ranges").mkdir()
    (root / "ranges" / "digest").write_bytes(
        codec.encode("RANGE", asdict(RangeDigest(100, 5_950, 3_735_928_559)))
    )
    transaction = TransactionId(JOB, A, 7, Attempt(2, 3), "lake", "ab" * 32)
    intent = Intent(transaction, "0a1b2c3d-0000-4000-8000-000000000000", 41, 6)
    columns: list[dict[str, Any]] = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "p")
    ]
    layout = TableLayout(tuple(columns), ("p",), ("appendOnly",), {"delta.appendOnly": "true"})
    add = {
        "path": "p=%C3%A4/twophase-x-part-00000.parquet",
        "size": 9,
        "partitionValues": {"p": "ä"},
    }
    action = json.dumps({"add": add | {"stats": json.dumps({"numRecords": 3})}}, ensure_ascii=False)
    (root / "delta").mkdir()
    (root / "delta" / "intent").write_bytes(encode_intent(intent))
    (root / "delta" / "manifest").write_bytes(encode_manifest(Manifest(intent, layout, (action,))))


def make_iceberg(root: Path) -> None:
    """Write `iceberg`."""
    (root / "iceberg").mkdir()
    transaction = TransactionId(JOB, A, 7, Attempt(2, 3), "lake", "ab" * 32)
    statistics = iceberg.FileStatistics(
        *({"1": 40, "2": 52}, {"1": 3, "2": 3}, {"1": 1, "2": 0}, {"3": 2}),
        *({"1": bytes(8), "2": "ä".encode()}, {"1": b"\x09" + bytes(7)}),
        (4, 970),
    )
    file = iceberg.StagedFile(0, (b"\x11\x4f\0\0", None), 3, 1_970, "cd" * 32, statistics)
    fields = {"1": "long", "2": "string required", "3": "double"}
    manifest = iceberg.Manifest(transaction, Subtask(0, 102), (file,), 1, fields)
    (root / "iceberg" / "manifest").write_bytes(manifest.encode())
    order = '{"order-id":1,"fields":[{"source-id":1}]}'
    of_version_2 = iceberg.SortedManifest(transaction, Subtask(0, 102), (file,), 1, fields, order)
    (root / "iceberg" / "manifest-2").write_bytes(of_version_2.encode())
    pieces = {"6": ["2.1/0.100"], "7": ["2.3/0.102", "2.3/1.103"]}
    proof = LineageProof(5, pieces, 5_395_604_375_822_749_580, 12, 3_775_396_607_982_654_621)
    (root / "iceberg" / "proof").write_text(encode_proof(proof))
    (root / "iceberg" / "fence").write_text(encode_fence(IcebergFence(2, 3, "0f" * 16)))


def make_paimon(root: Path) -> None:
    """Write `paimon`."""
    (root / "paimon").mkdir()
    transaction = TransactionId(JOB, A, 7, Attempt(2, 3), "lake", "ab" * 32)
    file = paimon.StagedFile(0, 3, 1_970, "cd" * 32, b"\0\0\0\x0e\xff")
    fields = {"0": "BIGINT", "1": "STRING required"}
    manifest = paimon.Manifest(transaction, Subtask(0, 102), (file,), 41, 14, fields)
    (root / "paimon" / "manifest").write_bytes(manifest.encode())
    proof = paimon.SnapshotPieces(JOB, "lake", A, 7, ("2.3/0.102", "2.3/1.103"))
    (root / "paimon" / "pieces").write_text(paimon.encode_pieces(proof))
    note = paimon.CommitRecord(42, "0f" * 16, ("2.3/0.102",))
    (root / "paimon" / "commit").write_bytes(paimon.encode_commit(note))


def make_kafka(root: Path) -> None:
    """Write `kafka`."""
    (root / "kafka").mkdir()
    transaction = TransactionId(JOB, A, 7, Attempt(2, 3), "log", "ab" * 32)
    name = f"twophase/out/{JOB}/log/{A}-7-2.3-0.102"
    waiting = {"id": name, "until": 1_700_000_900, "topics": {"other": "Zm9v"}}
    place = Place("twophase-staging-orders-log-0a1b2c3d", "YmFy", 1, 40, 43, 2)
    records: dict[str, kafka.Record] = {
        "piece": Committable(transaction, Subtask(0, 102), "kafka:c/out/i/l", 3, waiting),
        "staged": Committable(transaction, Subtask(0, 102), "kafka:c/out/i/l", 3, place.handle()),
        "mark": kafka.Mark("out", JOB, "log", A, 7, "kafka:c/out/i/l"),
        "fence": kafka.Fence("out", JOB, "log", 2, 3),
    }
    for file, record in records.items():
        (root / "kafka" / file).write_bytes(kafka.encoded(record))
    rows = [
        KafkaRecord(b"v", b"k", [("h", b"1"), ("n", None)], 2, 1_700_000_000_123),
        KafkaRecord(None),
    ]
    (root / "kafka" / "rows-1").write_bytes(Chunk(0, rows).encoded())
    routed = [replace(rows[0], topic="other"), rows[1]]
    (root / "kafka" / "rows-2").write_bytes(Chunk(1, routed).encoded())


def make_savepoint(root: Path) -> None:
    """Write `savepoint`."""
    spark = root / "job" / "spark" / B
    schema = f"file:{spark}/state/0/_stateSchema/default/0_5ca64ce9"
    stores = [{"storeName": "default", "stateSchemaFilePaths": [schema], "numPartitions": 1}]
    described = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": stores}
    for name, text in {
        "metadata": json.dumps({"id": B}),
        **{f"offsets/{n}": f'v1\n{{"batchWatermarkMs":{n}}}\n{offset(n + 2)}' for n in (0, 1, 2)},
        **{f"commits/{n}": f'v1\n{{"nextBatchWatermarkMs":{n + 1}}}' for n in (0, 1, 2)},
        "sources/0/0": "v1\n{}",
        "state/0/_metadata/v2/0": f"v2\n{json.dumps(described)}",
        "state/0/_stateSchema/default/0_5ca64ce9": "v3\nfields",
        **{f"state/0/0/{n}.delta": f"version {n}" for n in (1, 2, 3)},
        "state/0/0/2.snapshot": "versions 1 and 2",
    }.items():
        (spark / name).parent.mkdir(parents=True, exist_ok=True)
        (spark / name).write_text(text)

    class Noon(SystemClock):
        def unix_ms(self) -> int:
            return 1_700_000_000_000

    maker = SavepointMaker(JOB, root / "job", Noon())
    maker.make(str(root / "savepoint"), still_waiting=lambda: False)
    shutil.rmtree(root / "job" / "spark")


def make_rescaled(root: Path) -> None:
    """Write `rescaled`: a manifest without its data, and the log of a job restored from it."""
    storage = LocalStorage(root / "rescaled")
    rescaled = (Rescale(3, 3), Rescale(4, 1))
    log = JobLog(storage, JOB)
    log.read()
    log.append(FenceRecord(1))
    log.append(Lineage(C, "/saved", 5, (), {A: 2, B: 2}, (), rescaled))
    body = savepoint_manifest.SavedFile("checkpoints/b", 0, 4, "ab" * 32)
    at = 1_700_000_000_000
    manifest = savepoint_manifest.Manifest(
        *(JOB, B, 2, body.path, (), {A: 2}, at, (body,), 16, rescaled)
    )
    storage.create(MANIFEST, codec.encode(KINDS[MANIFEST], to_json(manifest)))


def main(root: Path) -> None:
    """Write all of them below a new folder."""
    root.mkdir()
    make_job(root)
    make_savepoint(root)
    make_rescaled(root)
    make_files(root)
    make_others(root)
    make_iceberg(root)
    make_paimon(root)
    make_kafka(root)
    make_states(root)
    make_rewinding(root)
    make_abandoned(root)
    make_ahead(root)
    make_released(root)
    make_stats(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

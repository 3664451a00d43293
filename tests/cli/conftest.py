"""A job's folder as drivers leave it, made without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.contract.committable import Committable
from twophase.functions.operator_state import Redistribution
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets, SourceState
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord, FenceRecord, Lineage
from twophase.state.journal.log import JobLog

LINEAGE = "11111111-2222-3333-4444-555555555555"


class JobFolder:
    """Writes checkpoints of two pieces and 30 rows each, from two Kafka partitions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self.log = JobLog(self.storage, "orders")
        self.store = CompletedCheckpointStore(self.storage, self.log, num_retained=1)
        self.log.append(FenceRecord(1))
        self.log.append(Lineage(LINEAGE))

    def decide(self, number: int) -> None:
        self.store.decide(self.store.prepare(self.checkpoint(number)))

    def commit(self, number: int) -> None:
        self.decide(number)
        self.log.append(CommittedRecord(LINEAGE, number))
        self.store.subsume()

    def body(self, number: int) -> Path:
        return self.root / "chk" / f"{LINEAGE}-{number}-1.{number + 1}" / "_metadata"

    @staticmethod
    def checkpoint(number: int) -> CompletedCheckpoint:
        attempt = Attempt(1, number + 1)
        offsets = FrozenOffsets((None,), (f'{{"n": {number}}}',))
        transaction = TransactionId("orders", LINEAGE, number, attempt, "facts", offsets.hash)
        entries = tuple(
            {"topic": "orders", "partition": index, "offset": 100 * number + index}
            for index in (0, 1)
        )
        return CompletedCheckpoint(
            job="orders",
            lineage=LINEAGE,
            checkpoint=number,
            attempt=attempt,
            trigger_time_ms=1_700_000_000_000,
            offsets=offsets,
            sources=(SourceState("twophase-kafka", "", Redistribution.SPLIT, entries),),
            committables={
                "facts": [
                    Committable(transaction, Subtask(index, index), "t", 10 + 10 * index)
                    for index in (0, 1)
                ]
            },
            duration_ms=840,
        )


@pytest.fixture
def job_folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "job")

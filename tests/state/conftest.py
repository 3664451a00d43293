"""A job's folder with a little history in it, and files in it that somebody damages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from twophase.errors import CorruptRecordError, NewerFormatError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.entries import Decision, FenceRecord, Lineage
from twophase.state.log import JobLog
from twophase.state.storage import LocalStorage
from twophase.state.store import CompletedCheckpointStore

JOB = "orders"
REFUSED = (CorruptRecordError, NewerFormatError)
"""Damage may happen to look like a newer version: then it is refused as that, and
changes nothing either.
"""
LINEAGE = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that read thousands of times and are not about durability."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def storage(folder: Path) -> LocalStorage:
    return LocalStorage(folder)


@pytest.fixture
def log(storage: LocalStorage) -> JobLog:
    """The log of a driver that has taken the job over and begun a lineage: records 1 and 2."""
    log = JobLog(storage, JOB)
    log.read()
    log.append(FenceRecord(1))
    log.append(Lineage(LINEAGE))
    return log


@pytest.fixture
def store(storage: LocalStorage, log: JobLog) -> CompletedCheckpointStore:
    return CompletedCheckpointStore(storage, log, num_retained=1)


def checkpoint(number: int, counter: int | None = None, generation: int = 1) -> CompletedCheckpoint:
    attempt = Attempt(generation, number + 1 if counter is None else counter)
    offsets = FrozenOffsets((f'{{"next":{number}}}',), (f'{{"next":{number + 1}}}',))
    transaction = TransactionId(JOB, LINEAGE, number, attempt, "facts", offsets.hash)
    piece = Committable(transaction, Subtask(0, 7), "memory:x", 5, {"key": "value"})
    return CompletedCheckpoint(
        JOB, LINEAGE, number, attempt, 0, offsets, {"source": [1]}, {"facts": (piece,), "lake": ()}
    )


def decide(store: CompletedCheckpointStore, number: int) -> Decision:
    decision = store.prepare(checkpoint(number))
    store.decide(decision)
    return decision


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every name below `folder`, and what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def truncations(data: bytes) -> Iterator[bytes]:
    return (data[:length] for length in range(len(data)))


def bit_flips(data: bytes) -> Iterator[bytes]:
    for index in range(len(data)):
        for bit in range(8):
            yield data[:index] + bytes([data[index] ^ 1 << bit]) + data[index + 1 :]

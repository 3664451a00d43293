"""The application ids of a table, read from the files of its log; no Spark job.

Delta's snapshot lists its files: the newest checkpoint, and the commits after it. Delta finds the
version of each application id by replaying the table's whole state. The `txn` actions are a few
lines of the same files, and the same rules apply to them (PROTOCOL.md of Delta,
"Action Reconciliation"):

    checkpoint     at most one `txn` for each application id; in a V2 checkpoint all of them are in
                   the main file, because a sidecar holds file actions only
    commits        in the order of their versions; the latest `txn` of an application id wins
    compaction     `<x>.<y>.compacted.json` stands for the commits x to y
    retention      an id last updated before the table's limit is forgotten, after the
                   latest `txn` has won

Anything else is left to Delta: `UnreadableLogError`, never a guess.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow.parquet as pq

_COMMIT = re.compile(r"(\d{20})(?:\.[0-9a-f-]{36})?\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-f-]{36})?\.(parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")

_MOST_FILES = 250
_MOST_JSON_BYTES = 16 * 2**20
"""Above these limits, Delta's own jobs are faster and use less of the driver's memory."""
_BATCH_ROWS = 65_536


class UnreadableLogError(Exception):
    """The log is not in a form that this reader knows, or too long for it."""


@dataclass(frozen=True)
class Txn:
    """One `txn` action.

    Attributes:
        version: of the application.
        updated_ms: when it was written, according to its writer; None if not recorded.
    """

    version: int
    updated_ms: int | None


Txns = Mapping[str, Txn]
"""By application id."""


@dataclass(frozen=True)
class LogFile:
    """A file of the log, as Delta has listed it. Equal listings mean equal content, for Delta too.

    Attributes:
        name: relative to the table's folder.
        size: bytes.
        modified_ms: Unix time.
    """

    name: str
    size: int
    modified_ms: int

    @property
    def base(self) -> str:
        """Its name without folders."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True)
class LogSegment:
    """The files that make up one snapshot.

    Attributes:
        version: of the snapshot.
        checkpoint: the version of the checkpoint; -1 if there is none.
        checkpoint_files: the parts of a classic checkpoint, or the main file of a V2 checkpoint.
        commits: after the checkpoint, in order.
    """

    version: int
    checkpoint: int
    checkpoint_files: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]

    @property
    def files(self) -> tuple[LogFile, ...]:
        """All files, oldest first."""
        return self.checkpoint_files + self.commits

    def check(self) -> None:
        """Check that the files make up the version, without a gap.

        Raises:
            UnreadableLogError: they do not, or they are too many.
        """
        if len(self.files) > _MOST_FILES:
            raise UnreadableLogError(f"{len(self.files)} files of the log")
        if (
            json_bytes := sum(file.size for file in self.files if file.base.endswith(".json"))
        ) > _MOST_JSON_BYTES:
            raise UnreadableLogError(f"{json_bytes} bytes of JSON in the log")
        self._check_checkpoint()
        reached = self.checkpoint
        for file in self.commits:
            first, last = _commit_range(file.base)
            if first != reached + 1 or last < first:
                raise UnreadableLogError(f"{file.base} after version {reached}")
            reached = last
        if reached != self.version:
            raise UnreadableLogError(f"the log ends at {reached}, the snapshot at {self.version}")

    def _check_checkpoint(self) -> None:
        names = [file.base for file in self.checkpoint_files]
        if self.checkpoint < 0 and not names:
            return
        if (
            len(names) == 1
            and (single := _CHECKPOINT.fullmatch(names[0]))
            and int(single[1]) == self.checkpoint
        ):
            return
        parts = sorted(
            tuple(map(int, match.groups())) for match in map(_PART.fullmatch, names) if match
        )
        if names and parts == [
            (self.checkpoint, part, len(names)) for part in range(1, len(names) + 1)
        ]:
            return
        raise UnreadableLogError(f"the checkpoint of version {self.checkpoint} is {names}")


def _commit_range(name: str) -> tuple[int, int]:
    if match := _COMMIT.fullmatch(name):
        return int(match[1]), int(match[1])
    if match := _COMPACTED.fullmatch(name):
        return int(match[1]), int(match[2])
    raise UnreadableLogError(f"a file of the log that is not a commit: {name}")


def replay(txns: Iterable[Txns], forgotten_until_ms: int | None) -> dict[str, int]:
    """Return the version of every application id.

    Args:
        txns: the txns of each file of a segment, oldest first.
        forgotten_until_ms: ids last updated then or before, or at an unknown time, are
            forgotten; None: none are.
    """
    latest: dict[str, Txn] = {}
    for found in txns:
        latest.update(found)
    return {
        app_id: txn.version
        for app_id, txn in latest.items()
        if forgotten_until_ms is None
        or (txn.updated_ms is not None and txn.updated_ms > forgotten_until_ms)
    }


def check_parts(parts: Sequence[Txns]) -> None:
    """Check that the parts of a checkpoint name every application id only once.

    Raises:
        UnreadableLogError: they do not; which part wins is not defined.
    """
    names = [app_id for part in parts for app_id in part]
    if len(names) != len(set(names)):
        raise UnreadableLogError("an application id is in two parts of a checkpoint")


class Reads(Protocol):
    """The storage of the files."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def opened(self, name: str) -> AbstractContextManager[io.IOBase]:
        """Open a file for reading in parts."""


def read_txns(file: LogFile, storage: Reads) -> Txns:
    """Return the `txn` actions of one file: a commit, a compaction, or a file of a checkpoint.

    Raises:
        UnreadableLogError: it is not as expected.
    """
    if file.base.endswith(".parquet"):
        with storage.opened(file.name) as stream:
            _check_size(file, stream.seek(0, io.SEEK_END))
            return _collect(_in_parquet(stream))
    data = storage.read(file.name)
    if data is None:
        raise UnreadableLogError(f"{file.name} is gone")
    _check_size(file, len(data))
    return _collect(_in_json(data))


def _check_size(file: LogFile, size: int) -> None:
    if not size or size != file.size:
        raise UnreadableLogError(f"{file.name} is {size} bytes long, Delta has listed {file.size}")


def _in_json(data: bytes) -> Iterable[Any]:
    for line in data.splitlines():
        if line.strip():
            action = json.loads(line)
            if not isinstance(action, dict):
                raise UnreadableLogError("an action that is not a JSON object")
            yield action.get("txn")


def _in_parquet(stream: io.IOBase) -> Iterable[Any]:
    """Read only the footer and the column `txn`; the file actions beside it can be gigabytes."""
    with pq.ParquetFile(stream) as file:
        if "txn" not in file.schema_arrow.names:
            raise UnreadableLogError("a checkpoint without the column txn")
        for batch in file.iter_batches(_BATCH_ROWS, columns=["txn"]):
            yield from batch.column(0).drop_null().to_pylist()


def _collect(actions: Iterable[Any]) -> Txns:
    found: dict[str, Txn] = {}
    for action in actions:
        if action is None:
            continue
        app_id, version, updated_ms = action["appId"], action["version"], action.get("lastUpdated")
        whole = type(version) is int and (updated_ms is None or type(updated_ms) is int)
        if not isinstance(app_id, str) or not whole or app_id in found:
            raise UnreadableLogError(f"the action txn {action!r}, once more or of other types")
        found[app_id] = Txn(version, updated_ms)
    return found


class LogFiles:
    """Reads each file once while Delta lists it unchanged, so mostly the new commits only.

    Args:
        storage: the table's storage.
    """

    def __init__(self, storage: Reads) -> None:
        self._storage = storage
        self._known: dict[LogFile, Txns] = {}  # only of the last segment

    def transactions(self, segment: LogSegment, forgotten_until_ms: int | None) -> dict[str, int]:
        """Return the version of every application id.

        Args:
            segment: the files of a snapshot.
            forgotten_until_ms: see `replay`.

        Raises:
            UnreadableLogError: the log is not as this reader knows it.
        """
        segment.check()
        known = self._known
        txns = {
            file: known[file] if file in known else read_txns(file, self._storage)
            for file in segment.files
        }
        check_parts([txns[file] for file in segment.checkpoint_files])
        self._known = txns
        return replay(txns.values(), forgotten_until_ms)

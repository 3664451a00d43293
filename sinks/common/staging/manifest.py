"""The manifest of a piece: durable bytes with version, kind, length and SHA-256 (invariant I9).

    twophase-files/1 manifest 512 9f86d081884c7d65...\n
    {"files":[{"number":0,"partition":["2026-08-01"],"rows":5,"sha256":"...","size":970}], "subtask":{...}, ...}

It holds partition values and numbers, no paths: where a file belongs is worked out by who commits it. It is not in the
checkpoint's body: there can be thousands of files. The committable carries its SHA-256 instead.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from twophase.ids import Attempt, Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.sinks.common.partition_names import Values

FILE = "manifest"
_MAGIC = b"twophase-files/1"


class DamagedRecordError(Exception):
    """The bytes are not what was written: torn, changed, or something else."""


def frame(kind: str, payload: bytes) -> bytes:
    """Put the header before a record's content."""
    return _header(kind, payload) + payload


def unframe(kind: str, data: bytes) -> bytes:
    """The content of a record.

    Raises:
        DamagedRecordError: the header does not match it.
    """
    head, newline, payload = data.partition(b"\n")
    if head + newline != _header(kind, payload):
        raise DamagedRecordError(f"it is no whole {kind} of twophase: its header does not match its content")
    return payload


@dataclass(frozen=True)
class StagedFile:
    """One file of a piece.

    Attributes:
        number: which one; its name in the piece's folder.
        partition: the value of each partition column.
        rows: how many.
        size: bytes.
        sha256: hex digest of its content.
    """

    number: int
    partition: Values
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What one task attempt pre-committed.

    Attributes:
        transaction: whose piece it is.
        subtask: which task attempt wrote it.
        files: all of them, in the order they were written.
        watermark_us: the highest event time of its rows, in microseconds since 1970; None if nobody asks for it.
    """

    transaction: TransactionId
    subtask: Subtask
    files: tuple[StagedFile, ...]
    watermark_us: int | None = None

    def committable(self, target: str) -> Committable:
        """The handle of the piece: the manifest by its SHA-256, and what an operator wants to know."""
        handle: dict[str, str | int] = {
            "manifest_sha256": hashlib.sha256(self.encode()).hexdigest(),
            "files": len(self.files),
            "bytes": sum(file.size for file in self.files),
        }
        if self.watermark_us is not None:
            handle["watermark_us"] = self.watermark_us
        return Committable(self.transaction, self.subtask, target, sum(file.rows for file in self.files), handle)

    def encode(self) -> bytes:
        """As durable bytes."""
        return frame(FILE, json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode("ascii"))

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The reverse of `encode`.

        Raises:
            DamagedRecordError: the bytes are not what was written.
        """
        value = json.loads(unframe(FILE, data))
        transaction = value["transaction"]
        attempt = Attempt(**transaction.pop("attempt"))
        return cls(
            TransactionId(attempt=attempt, **transaction),
            Subtask(**value["subtask"]),
            tuple(StagedFile(**file | {"partition": tuple(file["partition"])}) for file in value["files"]),
            value["watermark_us"],
        )


def _header(kind: str, payload: bytes) -> bytes:
    return b"%s %s %d %s\n" % (_MAGIC, kind.encode(), len(payload), hashlib.sha256(payload).hexdigest().encode())

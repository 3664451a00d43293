"""The two records of a piece next to the table, each with version, kind, length and SHA-256 (I9).

    intent      written before the first data file: their transaction, and the table's
                version before them
    manifest    written after the last one: every data file as Delta's action for it. With it the
                piece is pre-committed

    twophase-delta/1 manifest 5120 9f86d081884c7d65...
    {"actions":[...],"intent":{"after":41,"base":107,"table":"...","transaction":{...}},"layout":{...}}

The actions are not in the checkpoint's body: there can be thousands, each of a kilobyte with its
statistics, and the body has a limit. The committable carries the SHA-256 of the manifest instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import unquote

from twophase.contract.committable import Committable
from twophase.ids import Subtask, TransactionId
from twophase.internals.json_values import decode, encode
from twophase.internals.record import digest
from twophase.sinks.delta.layout import TableLayout

ONLY_SUBTASK = Subtask(0, 0)
"""The subtask of every piece, which holds the rows of all tasks of a checkpoint: Delta's driver
collects their files.
"""

_MAGIC = "twophase-delta/1"


@dataclass(frozen=True)
class Intent:
    """The announcement of a piece that is about to be written.

    Attributes:
        transaction: the transaction of the piece.
        table: the table's id.
        base: the table's version before the first data file: no older version can name one.
        after: the highest committed checkpoint of the lineage at that time; -1 if there is none.
    """

    transaction: TransactionId
    table: str
    base: int
    after: int


@dataclass(frozen=True)
class Manifest:
    """The list of what was written.

    Attributes:
        intent: the announcement.
        layout: the table's layout that the files were written for.
        actions: one per data file, each the JSON text that Delta made.
    """

    intent: Intent
    layout: TableLayout
    actions: tuple[str, ...]

    def committable(self, target: str) -> Committable:
        """Return the piece's committable: the manifest's SHA-256, and details for operators."""
        files = [data_file(action) for action in self.actions]
        handle = {
            "manifest_sha256": digest(encode_manifest(self)),
            "files": len(files),
            "bytes": sum(file.size for file in files),
        }
        return Committable(
            self.intent.transaction, ONLY_SUBTASK, target, sum(file.rows for file in files), handle
        )


@dataclass(frozen=True)
class DataFile:
    """One data file of a manifest.

    Attributes:
        path: relative to the table's folder, as a URI.
        size: bytes.
        rows: the number of rows.
    """

    path: str
    size: int
    rows: int

    @property
    def local_path(self) -> str:
        """The path relative to the table's folder, as file systems write it."""
        return unquote(self.path)


def data_file(action: str) -> DataFile:
    """Return the data file that an `add` action describes.

    Raises:
        ValueError: it is no `add`, or Delta counted no rows.
    """
    content = json.loads(action)
    if set(content) != {"add"}:
        raise ValueError(f"phase 1 of an append returned the action {sorted(content)}")
    add = content["add"]
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    if not isinstance(rows, int):
        raise ValueError(f"the file {add['path']} has no row count")
    return DataFile(add["path"], add["size"], rows)


def encode_intent(intent: Intent) -> bytes:
    """Return an intent as durable bytes."""
    return encode(_MAGIC, "intent", intent)


def decode_intent(data: bytes, where: str) -> Intent:
    """Return the intent in some bytes; the reverse of `encode_intent`.

    Args:
        data: the bytes.
        where: the file's name, for the error.

    Raises:
        NewerFormatError: another version of twophase has written them.
        DamagedRecordError: the bytes are not what was written.
    """
    return decode(_MAGIC, "intent", data, where, Intent)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as durable bytes."""
    return encode(_MAGIC, "manifest", manifest)


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in some bytes; the reverse of `encode_manifest`.

    Args:
        data: the bytes.
        where: the file's name, for the error.

    Raises:
        NewerFormatError: another version of twophase has written them.
        DamagedRecordError: the bytes are not what was written.
    """
    return decode(_MAGIC, "manifest", data, where, Manifest)

"""Durable bytes: version, kind, length and SHA-256 in a header line, then canonical JSON (I9).

    twophase/1 DECIDED 231 9f86d081884c7d65...
    {"checkpoint":7,...}

A reader rejects every truncation and every flipped bit, and a newer version by its version.
"""

from __future__ import annotations

import json
from typing import Any

from twophase.errors import CorruptRecordError
from twophase.internals.record import (
    DamagedRecordError,
    check_version,
    frame,
    header,
    newer_version,
    unframe,
)

VERSION = 1
_MAGIC = f"twophase/{VERSION}"
MAX_BYTES = 64 * 1024 * 1024
_HEADER_MAX_BYTES = 160


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value: ASCII, sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value holds NaN or infinity.
        TypeError: the value holds something that JSON cannot represent.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode(kind: str, body: dict[str, Any]) -> bytes:
    """Frame `body` as a durable record of `kind`."""
    return frame(_MAGIC, kind, canonical_json(body))


def decode(kind: str, data: bytes, where: str) -> dict[str, Any]:
    """Return the body of a record that must be of `kind`.

    Args:
        kind: the expected kind; "" accepts any.
        data: the whole file.
        where: the file's name, for the error.

    Raises:
        CorruptRecordError: the bytes are not what `encode` wrote for this kind.
        NewerFormatError: a newer version of twophase has written them.
    """
    check_readable(data, where)
    head, newline, payload = data.partition(b"\n")
    fields = head[:_HEADER_MAX_BYTES].split(b" ")
    if not newline or len(fields) != 4 or fields[0] != _MAGIC.encode():
        raise _corrupt(where, f"it does not begin with a {_MAGIC} header")
    found = fields[1].decode("ascii", "replace")
    if kind and found != kind:
        raise _corrupt(where, f"it is a {found!r} record where {kind!r} belongs")
    if head + newline != header(_MAGIC, found, payload):
        raise _corrupt(where, "its length or checksum does not match its content")
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _corrupt(where, f"its content is not JSON ({type(error).__name__})") from None
    if not isinstance(body, dict):
        raise _corrupt(where, "its content is not a JSON object")
    return body


def encode_bytes(kind: str, payload: bytes) -> bytes:
    """Frame a payload that is not JSON as a durable record of `kind`."""
    return frame(_MAGIC, kind, payload)


def decode_bytes(kind: str, data: bytes, where: str) -> bytes:
    """Return the payload of a record that `encode_bytes` made.

    Raises:
        CorruptRecordError: the bytes are not what it wrote for this kind.
        NewerFormatError: a newer version of twophase has written them.
    """
    try:
        return unframe(_MAGIC, kind, data, where)
    except DamagedRecordError as error:
        raise _corrupt(where, str(error)) from None


def check_readable(data: bytes, where: str) -> None:
    """Check that no newer version of twophase has written a record.

    Raises:
        NewerFormatError: one has.
    """
    check_version(_MAGIC, data, where)


def is_newer(data: bytes) -> bool:
    """Return whether a newer version has written a record, of which the first bytes are enough."""
    return newer_version(_MAGIC, data) is not None


def kind_of(data: bytes) -> str:
    """Return the kind that a record claims to be; `decode` checks it."""
    fields = data[:_HEADER_MAX_BYTES].split(b" ", 2)
    return fields[1].decode("ascii", "replace") if len(fields) == 3 else ""


def _corrupt(where: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"The durable file {where} is damaged: {reason}. Nothing was written or deleted.",
        remedy="restore this file from a backup of the job's folder. If there is none, run "
        "twophase repair adopt-from-target JOB.yaml; for a damaged record of the log, move the "
        "folder log away first (mv log log.damaged).",
    )

"""Durable bytes: version, kind, length and SHA-256 in a header line, then canonical JSON (I9).

    twophase/1 DECIDED 231 9f86d081884c7d65...
    {"checkpoint":7,...}

A reader rejects every truncation and every flipped bit, and a newer version by its version.
"""

from __future__ import annotations

from typing import Any, TypeVar

from twophase.errors import CorruptRecordError
from twophase.internals import json_values
from twophase.internals.record import (
    DamagedRecordError,
    frame,
    newer_version,
    unframe,
)

T = TypeVar("T")
_MAGIC = "twophase/1"
MAX_BYTES = 64 * 1024 * 1024


def encode(kind: str, body: Any) -> bytes:
    """Return a dataclass, or a mapping of JSON values, as a durable record of `kind`."""
    return json_values.encode(_MAGIC, kind, body)


def decode(kind: str, data: bytes, where: str, form: type[T]) -> T:
    """Return the body of a record that must be of `kind`.

    Args:
        kind: the expected kind; "" accepts any.
        data: the whole file.
        where: the file's name, for the error.
        form: the type of the body.

    Raises:
        CorruptRecordError: the bytes are not what `encode` wrote for this kind.
        NewerFormatError: another version of twophase has written them.
    """
    try:
        return json_values.decode(_MAGIC, kind, data, where, form)
    except DamagedRecordError as error:
        raise _corrupt(where, str(error)) from None


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


def is_newer(data: bytes) -> bool:
    """Return whether a newer version has written a record, of which the first bytes are enough."""
    return newer_version(_MAGIC, data) is not None


def _corrupt(where: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"The durable file {where} is damaged: {reason}. Nothing was written or deleted.",
        remedy="restore this file from a backup of the job's folder. If there is none, run "
        "twophase repair adopt-from-target JOB.yaml; for a damaged record of the log, move the "
        "folder log away first (mv log log.damaged).",
    )

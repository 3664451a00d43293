"""The frame of durable bytes: one header line with format, kind, length and SHA-256, then the payload (invariant I9).

    twophase-files/1 manifest 512 9f86d081884c7d65...\n
    <payload>

A reader accepts exactly the bytes that `frame` has made: every truncation and every changed bit is refused.
"""

from __future__ import annotations

import hashlib


class DamagedRecordError(Exception):
    """The bytes are not those that were written: they are torn, changed, or another record."""


def digest(data: bytes) -> str:
    """Return the hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def header(magic: str, kind: str, payload: bytes) -> bytes:
    """Return the header line of a payload.

    Args:
        magic: the format and its version, such as `twophase-files/1`.
        kind: the kind of the record.
        payload: the content.
    """
    return f"{magic} {kind} {len(payload)} {digest(payload)}\n".encode("ascii", "replace")


def frame(magic: str, kind: str, payload: bytes) -> bytes:
    """Return a payload after its header."""
    return header(magic, kind, payload) + payload


def unframe(magic: str, kind: str, data: bytes) -> bytes:
    """Check the header of a record and return its payload.

    Raises:
        DamagedRecordError: the header does not match the payload, the kind or the format.
    """
    head, newline, payload = data.partition(b"\n")
    if head + newline != header(magic, kind, payload):
        raise DamagedRecordError(f"it is no whole {kind} of twophase: its header does not match its content")
    return payload

"""The frame of durable bytes: format, kind, length and SHA-256 in a header line (invariant I9).

    twophase-files/1 manifest 512 9f86d081884c7d65...
    <payload>

A reader accepts exactly the bytes that `frame` has made: every truncation and every
changed bit is refused.

The first word of every future version of a format is `<format>/<version>`, followed by a space. By
it alone a reader recognises what a newer version has written, before it judges length and checksum:
it reports that by name, and neither reads, replaces nor deletes it (docs/decisions/0041).
"""

from __future__ import annotations

import hashlib
import re

from twophase.errors import NewerFormatError

_HEADER_MAX_BYTES = 160
_VERSION = re.compile(rb"([^ /\n]+)/([1-9][0-9]{0,8}) ")
NEWER_REMEDY = (
    "start the newer version again. If none has ever run here, it is damaged: restore it from a "
    "backup; do not delete it."
)
HEAD_BYTES = 64
"""The number of bytes of a record that are enough for `newer_version`."""


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


def kind_of(data: bytes) -> str:
    """Return the kind that a record claims to be of; `unframe` checks it."""
    fields = data[:_HEADER_MAX_BYTES].split(b" ", 2)
    return fields[1].decode("ascii", "replace") if len(fields) == 3 else ""


def frame(magic: str, kind: str, payload: bytes) -> bytes:
    """Return a payload after its header."""
    return header(magic, kind, payload) + payload


def newer_version(magic: str, data: bytes) -> int | None:
    """Return the version that a record claims if it is of this format and newer; else None."""
    name, _, known = magic.rpartition("/")
    found = _VERSION.match(data[:HEAD_BYTES])
    if found is None or found[1] != name.encode() or int(found[2]) <= int(known):
        return None
    return int(found[2])


def check_version(magic: str, data: bytes, where: str) -> None:
    """Check that no newer version of twophase has written a record.

    Args:
        magic: the format and the newest version of it that the caller reads, such as
            `twophase-files/1`.
        data: the record, or its first `HEAD_BYTES`.
        where: the file's name, for the error.

    Raises:
        NewerFormatError: one has.
    """
    if (found := newer_version(magic, data)) is not None:
        raise newer_format(f"The durable file {where}", found, int(magic.rpartition("/")[2]))


def newer_format(what: str, found: int, known: int) -> NewerFormatError:
    """Return the error for something in a newer format.

    Args:
        what: what is in that format, as the beginning of a sentence.
        found: the version of its format.
        known: the newest version that this twophase reads.
    """
    return NewerFormatError(
        f"{what} was written by a newer twophase (format {found}; this one reads up to {known}).",
        remedy=NEWER_REMEDY,
    )


def unframe(magic: str, kind: str, data: bytes, where: str) -> bytes:
    """Check the header of a record and return its payload.

    Args:
        magic: the format and its version, such as `twophase-files/1`.
        kind: the kind that the record must be of; "" accepts any.
        data: the record.
        where: the file's name, for the error.

    Raises:
        NewerFormatError: a newer version of twophase has written it.
        DamagedRecordError: the header does not match the payload, the kind or the format.
    """
    check_version(magic, data, where)
    head, newline, payload = data.partition(b"\n")
    fields = head[:_HEADER_MAX_BYTES].split(b" ")
    if not newline or len(fields) != 4 or fields[0] != magic.encode():
        raise DamagedRecordError(f"it does not begin with a {magic} header")
    found = fields[1].decode("ascii", "replace")
    if kind and found != kind:
        raise DamagedRecordError(f"it is a {found!r} record where {kind!r} belongs")
    if head + newline != header(magic, found, payload):
        raise DamagedRecordError("its length or checksum does not match its content")
    return payload

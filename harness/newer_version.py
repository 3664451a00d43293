"""Files of a job's folder as a newer version of twophase would have written them."""

from __future__ import annotations

import json
from pathlib import Path

from twophase.internals.record import digest, kind_of
from twophase.state.files import codec


def renew(path: Path) -> bytes:
    """Write a record as a newer version would, and return what it was before."""
    before = path.read_bytes()
    path.write_bytes(before.replace(b"twophase/1 ", b"twophase/2 ", 1))
    return before


def renew_body(root: Path, body: Path) -> dict[Path, bytes]:
    """Write the body of a checkpoint as a newer version would, and its digest into the job's log.

    Args:
        root: the job's folder.
        body: the checkpoint's `_metadata`.

    Returns:
        What the changed files were before.
    """
    before = {body: renew(body)}
    old, new = (digest(data).encode() for data in (before[body], body.read_bytes()))
    for record in sorted((root / "log").iterdir()):
        data = record.read_bytes()
        if old in data:
            before[record] = data
            changed = json.loads(data.partition(b"\n")[2].replace(old, new))
            record.write_bytes(codec.encode(kind_of(data), changed))
    assert len(before) == 2
    return before

"""Partitions with new files that are not committed yet, and the watermark that decides when.

    fence-<...>/pending/<digest>        one partition: its values
    fence-<...>/watermark/<number>      the highest event time of all committed rows, as Unix µs

Both are durable before the files' proof is written, and both changes are idempotent: a repeated
commit adds nothing new.

They are below the fence, and a commit reaches them by the path that was below the fence when it
began. If a newer driver has raised it since, that path leads nowhere. A commit that begins later
finds the older driver's pieces done, because the fence is raised only when they are, and does not
come here: an older driver cannot remove what waits for the newer one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twophase.internals.json_values import decode, encode
from twophase.sinks.common.partition_names import Values
from twophase.sinks.common.staging.disk import sync, write_durably
from twophase.sinks.common.staging.manifest import FORMAT

_KIND = "partition"
_FOLDERS = ("pending", "watermark")
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class _Waiting:
    """The record of one partition."""

    values: Values


class PendingPartitions:
    """The partitions that wait below a fence.

    Args:
        stage: the folder of the fence.
    """

    def __init__(self, stage: Path) -> None:
        self._pending, self._watermark = (stage / name for name in _FOLDERS)

    def create(self) -> None:
        """Create the folders."""
        for folder in (self._pending, self._watermark):
            folder.mkdir(mode=0o700, exist_ok=True)
        sync(self._pending.parent)

    def add(self, partitions: Iterable[Values]) -> None:
        """Add partitions that wait."""
        for values in partitions:
            path = self._path(values)
            if not path.exists():
                path.with_name(f".{path.name}").unlink(missing_ok=True)  # of a driver that died
                write_durably(path, [encode(FORMAT, _KIND, _Waiting(values))])

    def remove(self, partitions: Iterable[Values]) -> None:
        """Remove committed partitions. If a crash brings them back, they are committed again."""
        for values in partitions:
            self._path(values).unlink(missing_ok=True)

    def partitions(self) -> list[Values]:
        """Return all partitions that wait.

        Raises:
            NewerFormatError: a newer version of twophase has added one.
        """
        found = [path for path in sorted(self._pending.iterdir()) if not path.name.startswith(".")]
        return [
            decode(FORMAT, _KIND, path.read_bytes(), str(path), _Waiting).values for path in found
        ]

    def watermark_us(self) -> int | None:
        """Return the highest event time so far; None if there is none."""
        return max(
            (int(path.name) for path in self._watermark.iterdir() if _NUMBER.fullmatch(path.name)),
            default=None,
        )

    def raise_watermark(self, seen_us: Sequence[int]) -> None:
        """Raise the watermark to the highest event time that was seen; never lower it."""
        now, to_us = self.watermark_us(), max(seen_us, default=None)
        if to_us is not None and (now is None or to_us > now):
            (self._watermark / str(to_us)).touch(mode=0o600)  # empty, so never torn
            sync(self._watermark)
            for path in list(self._watermark.iterdir()):
                if _NUMBER.fullmatch(path.name) and int(path.name) < to_us:
                    with suppress(FileNotFoundError):
                        path.unlink()

    def _path(self, values: Values) -> Path:
        return self._pending / hashlib.sha256(json.dumps(values).encode("ascii")).hexdigest()

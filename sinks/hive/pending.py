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


def _beyond(time_us: int, limit_us: int | None) -> bool:
    return limit_us is not None and time_us > limit_us


class PendingPartitions:
    """The partitions that wait below a fence.

    Args:
        stage: the folder of the fence.
    """

    def __init__(self, stage: Path) -> None:
        self._pending, self._watermark = (stage / name for name in _FOLDERS)

    def exist(self) -> bool:
        """Return whether the folders are there."""
        return self._watermark.exists()

    def create(self) -> None:
        """Create the folders if they are missing."""
        if self.exist():
            return
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

    def watermark_us(self, limit_us: int | None = None) -> int | None:
        """Return the highest event time so far; None if there is none.

        Args:
            limit_us: a higher one was recorded by a job with a higher limit, and does not count.
        """
        return max((one for one in self._recorded_us() if not _beyond(one, limit_us)), default=None)

    def raise_watermark(self, seen_us: Sequence[int], limit_us: int | None = None) -> None:
        """Raise the watermark to the highest event time that was seen and counts; lower it only
        from one that does not count.

        Args:
            seen_us: event times.
            limit_us: as in `watermark_us`.
        """
        seen_us = [one for one in seen_us if not _beyond(one, limit_us)]
        now, to_us = self.watermark_us(limit_us), max(seen_us, default=None)
        if to_us is not None and (now is None or to_us > now):
            (self._watermark / str(to_us)).touch(mode=0o600)  # empty, so never torn
            sync(self._watermark)
            for one in self._recorded_us():
                if one < to_us or _beyond(one, limit_us):
                    (self._watermark / str(one)).unlink(missing_ok=True)

    def _recorded_us(self) -> list[int]:
        names = [path.name for path in self._watermark.iterdir()]
        return [int(name) for name in names if _NUMBER.fullmatch(name)]

    def _path(self, values: Values) -> Path:
        return self._pending / hashlib.sha256(json.dumps(values).encode("ascii")).hexdigest()

"""Spark's own file source (`FileSource[folder]`): csv, json, parquet, text and the like.

Its offset line is a number, `{"logOffset": n}`. Which files that means is in Spark's folder, in the
log that the source itself keeps: `sources/<place>/<batch>` has the files that a micro-batch of the
source added, `<batch>.compact` has those of all up to it. So a line means something in its own
folder only, and in a savepoint, which has a copy of that.

A micro-batch lists its files again when it runs, and leaves out those that are gone: Spark only
logs that.
"""

from __future__ import annotations

import errno
import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from twophase.contract.source import Source, SourceLeg, option
from twophase.errors import CorruptRecordError, SourceLossError

_KEY = "logOffset"
_VERSION = "v1"
_COMPACT = ".compact"
_GONE = errno.ENOENT, errno.ENOTDIR, errno.ELOOP
_PATTERN = re.compile(r"[*?\[{]")

_log = logging.getLogger(__name__)


class SparkFileSource(Source):
    """`FileSource`: says whether the files that are to be read, or read again, are still there."""

    def owns(self, line: str) -> bool:
        """See `Source.owns`."""
        try:
            _parsed(line)
        except CorruptRecordError:
            return False
        return True

    def begin_after(self, line: str) -> str:
        """See `Source.begin_after`: the files are all that another job can be given."""
        return f"a source folder without the files that were read up to {line}"

    def bound_to_folder(self) -> str:
        """See `Source.bound_to_folder`."""
        return "Spark keeps in its own folder which files it has read"

    def may_have_noted(self, leg: SourceLeg, log: Path) -> bool:
        """See `Source.may_have_noted`: unless all files are elsewhere."""
        files = {_path(one.path) for one in _read(log)} if log.is_dir() else set()
        given = str(Path(_path(option(leg.options, "path") or "/")).absolute())
        folder, *pattern = _PATTERN.split(given, maxsplit=1)
        below = folder if pattern else folder.rstrip("/") + "/"
        return not files or any(f"{one}/".startswith(below) for one in files)

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        """Look for the files that the source has read since.

        A corrected file is a common reason to rewind, so one that was changed is only logged.

        Returns:
            False if the log of the source is not there, or names files on storage other than a
            local disk.

        Raises:
            SourceLossError: a file is gone.
        """
        since = _parsed(line)
        try:
            read = set() if log is None else {*_read(log)}
        except FileNotFoundError:
            return False  # there is none, or a driver that still runs has just cleaned it up
        if max((file.batch for file in read), default=-1) < since:
            return False
        later = [file for file in read if file.batch > since]
        local = [file for file in later if file.local is not None]
        for file in sorted(local, key=lambda file: file.batch):
            file.check(leg.name)
        return len(local) == len(later)

    def check_present(self, leg: SourceLeg, start: str | None, end: str, log: Path) -> None:
        """See `Source.check_present`: looks for each file on a local disk, unless the source is
        told to ignore missing files.
        """
        if (option(leg.options, "ignoreMissingFiles") or "").lower() == "true":
            return
        for batch in range(_parsed(start) + 1 if start else 0, _parsed(end) + 1):
            for file in _added(log, batch):
                file.check_present(leg.name)


@dataclass(frozen=True)
class _File:
    """A file as the log has it.

    Attributes:
        path: its URI, percent-encoded.
        timestamp_ms: when it was last changed.
        batch: the micro-batch of the source that it was added in.
    """

    path: str
    timestamp_ms: int
    batch: int

    @property
    def local(self) -> Path | None:
        """Where it is on the local disk; None if it is elsewhere."""
        return Path(_path(self.path)) if urlsplit(self.path).scheme in ("", "file") else None

    def check(self, source: str) -> None:
        """Raise SourceLossError if it is gone; log it if it was changed."""
        if (changed := self._changed()) is None:
            raise SourceLossError(
                f"{source}: the file {self.local} was read after this offset, and is gone.",
                remedy="restore it, corrected or as it was.",
            )
        if changed:
            _log.warning(
                "%s: the file %s was changed after it was read: it is read again as it is now",
                *(source, self.local),
            )

    def check_present(self, source: str) -> None:
        """Raise SourceLossError if it is gone before it was read; log it if it was changed."""
        if (changed := self._changed()) is None:
            raise SourceLossError(
                f"{source}: the file {self.local} is gone, and Spark would leave out its rows "
                "without an error.",
                remedy="restore it; or, to go on without its rows, put a file without rows in its "
                "place.",
            )
        if changed:
            _log.warning(
                "%s: the file %s was changed after Spark has found it: it has the rows that it had "
                "when it was read",
                *(source, self.local),
            )

    def _changed(self) -> bool | None:
        """Return whether it was changed; False if it is elsewhere, None if it is gone.

        Raises:
            OSError: that cannot be seen.
        """
        path = self.local
        try:
            return path is not None and path.stat().st_mtime_ns // 1_000_000 != self.timestamp_ms
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise


def _path(uri: str) -> str:
    return unquote(urlsplit(uri).path)


def _parsed(line: str) -> int:
    """Return the micro-batch of the source that a line means.

    Raises:
        CorruptRecordError: the line is not one of Spark's file source.
    """
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.keys() == {_KEY} and type(document[_KEY]) is int:
        return int(document[_KEY])
    raise CorruptRecordError(
        f"Cannot read this offset of Spark's file source: {line[:200]!r}.",
        remedy="check that the offset log and the checkpoint belong to this job.",
    )


def _read(log: Path) -> Iterator[_File]:
    """Yield the files in the log of a source, some of them twice.

    Raises:
        FileNotFoundError: the log, or a file of it, is not there.
        CorruptRecordError: a file of the log has another form than that of Spark 4.2.
    """
    for path in sorted(log.iterdir()):
        if path.name.removesuffix(_COMPACT).isdecimal():
            yield from _entries(path)


def _added(log: Path, batch: int) -> Iterator[_File]:
    """Yield the files that a micro-batch of the source added, some of them twice; none if the log
    has it no more: Spark cannot run it then.

    Raises:
        CorruptRecordError: as `_read`.
    """
    own = [path for name in (batch, f"{batch}{_COMPACT}") if (path := log / str(name)).exists()]
    with suppress(FileNotFoundError):
        found = _entries(own[0]) if own else _read(log)
        yield from (file for file in found if file.batch == batch)


def _entries(path: Path) -> Iterator[_File]:
    version, *lines = path.read_text().splitlines() or [""]
    try:
        if version != _VERSION:
            raise ValueError(f"version {version[:20]!r}")
        for line in lines:
            entry = json.loads(line)
            yield _File(entry["path"], int(entry["timestamp"]), int(entry["batchId"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(
            f"Spark's log of the files that it has read, {path}, cannot be read: {error}.",
            remedy="restore Spark's folder from a backup.",
        ) from error

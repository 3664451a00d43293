"""Spark's own checkpoint folder of one lineage: read, prepared and validated against the store.

    metadata      the query id, which is the lineage id
    offsets/<n>   written by Spark before micro-batch n runs
    commits/<n>   written by Spark after micro-batch n; by us if a driver died between
                  COMMITTED(n) and that
    state/<operator>   if the plan keeps state (spark/folder/state_stores.py)
    ranges/<n>-<generation>   if the plan is known to keep state: what n has read
                              (twophase/state/checkpoints/replay_guard.py)

Formats: Spark's OffsetSeqLog and CommitLog, version 1, as Spark 4.2 writes them. Spark syncs none
of this (measured: it does not mind a checksum file, `.<n>.crc`, that is gone or empty, and fails on
an empty `<n>` with an unspecific error).
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from twophase.contract.source_entry_points import first_line
from twophase.errors import (
    CheckpointMissingError,
    DeclinedError,
    OffsetMismatchError,
    fingerprint_of,
)
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import new_lineage_id
from twophase.spark.folder import state_stores
from twophase.spark.folder.folder_formats import OFFSET_LOG
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.listing import listed_below
from twophase.state.files.storage import (
    AlreadyExistsError,
    LocalStorage,
    sync_file_system,
    sync_path,
)
from twophase.state.journal.entries import Decision, Lineage

_NO_OFFSET = "-"
_VERSION = "v1"
_FIRST_COMMIT = "\n".join([_VERSION, json.dumps({"nextBatchWatermarkMs": 0})])
_LOGS = ("offsets", "commits")
_STATE = "state"
_KEPT = ("sources", _STATE, "ranges")
RESTORE = (
    "restore what the job's folder has below spark/ from a backup, as it was after the newest "
    "checkpoint, and leave the rest of it as it is; or start a new lineage with restore.path set "
    "to the newest checkpoint."
)
"""The remedy for a job of `write_stream` whose folder does not belong to its store."""


class SparkFolder:
    """The folder of one lineage.

    Args:
        path: the folder.
        lineage: the lineage it belongs to.
        remedy: what to do when the folder does not belong to the store.
        conf: of the session, from `noted_settings.noted_conf`; for a lineage whose first offsets
            we write.
    """

    def __init__(
        self,
        path: Path,
        lineage: Lineage,
        remedy: str = RESTORE,
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self._lineage = lineage
        self._remedy = remedy
        self._conf = conf

    @property
    def uri(self) -> str:
        """The folder as a URI, not percent-encoded, like Hadoop's paths."""
        return f"file://{self.path.absolute()}"

    def planned(self) -> int:
        """Return the newest micro-batch whose offsets are frozen; -1 before the first."""
        return self._newest("offsets")

    def finished(self) -> int:
        """Return the newest micro-batch that is noted as finished; -1 before the first."""
        return self._newest("commits")

    def offsets(self, batch: int) -> FrozenOffsets:
        """Return the frozen offsets of micro-batch `batch`, start and end.

        If a source has no line to begin at, its end line may tell where it began (that of
        `twophase-kafka` does).

        Raises:
            OffsetMismatchError: Spark has not written them, or in a format that this
                version does not know.
            OSError: they cannot be read.
        """
        end = self._read_offsets(batch)
        start = self._read_offsets(batch - 1) if batch > 0 else (None,) * len(end)
        if len(start) == len(end):
            start = tuple(
                before or first_line(after) for before, after in zip(start, end, strict=True)
            )
        return FrozenOffsets(start, end)

    def position(self, batch: int) -> tuple[str | None, ...]:
        """Return the offset lines after a micro-batch: for -1, where the first one begins.

        Raises:
            OffsetMismatchError, OSError: as `offsets`.
        """
        if batch >= 0:
            return self._read_offsets(batch)
        return self.offsets(0).start if self.planned() >= 0 else ()

    def freeze(self, batch: int, lines: Sequence[str | None], now_ms: int) -> None:
        """Freeze the offsets of the next micro-batch, in place of those that Spark has frozen.

        Args:
            batch: no checkpoint of it is decided, and the one before it is noted as finished.
            lines: where each source ends.
            now_ms: Unix time, of one that Spark has not planned.

        Raises:
            OSError: they may not be durable. If those of Spark are gone, it plans them again.
        """
        path = self.path / "offsets" / str(batch)
        if path.exists():
            header = path.read_text().split("\n")[1]
        else:
            noted = json.loads((self.path / "offsets" / str(batch - 1)).read_text().split("\n")[1])
            commit = json.loads((self.path / "commits" / str(batch - 1)).read_text().split("\n")[1])
            watermark = commit["nextBatchWatermarkMs"]
            header = json.dumps(
                {**noted, "batchWatermarkMs": watermark, "batchTimestampMs": now_ms}
            )
        path.with_name(f".{batch}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        text = "\n".join([_VERSION, header, *(line or _NO_OFFSET for line in lines)])
        _create(LocalStorage(self.path), f"offsets/{batch}", text)

    def sync(self, batch: int) -> None:
        """Make durable what the decision on micro-batch `batch` relies on.

        A power cut could leave the decision alone. This covers its offsets, the note that the batch
        before is finished, and whatever the state stores, the logs of sources and the tasks that
        read have written meanwhile, which is listed nowhere.

        Args:
            batch: every sink has pre-committed it.

        Raises:
            DeclinedError: it may not be durable, so nothing may be decided.
        """
        try:
            self._sync_logs(batch)
            if any(listed_below(self.path / kept) for kept in _KEPT):
                sync_file_system(self.path)
        except OSError as error:
            raise DeclinedError(
                f"Cannot sync Spark's folder {self.path} to disk: {error}.",
                reason=CheckpointFailureReason.IO_EXCEPTION,
                fingerprint=fingerprint_of(error),
            ) from error

    def _sync_logs(self, batch: int) -> None:
        if batch == self._lineage.first_checkpoint:
            sync_path(self.path / "metadata")
            sync_path(self.path)
        sync_path(self.path / "offsets" / str(batch))
        with suppress(FileNotFoundError):  # before the first micro-batch
            sync_path(self.path / "commits" / str(batch - 1))
        for log in _LOGS:
            sync_path(self.path / log)

    def prepare(self, newest: Decision | None) -> None:
        """Make the folder ready for the start of the query.

        For a lineage without a decision the folder is written: a fresh one starts at batch 0, a
        restored one after a batch 0 that ends at the restored offsets, or after the copy that a
        savepoint holds. Otherwise the folder must be the one that belongs to the store.

        Args:
            newest: the newest decided checkpoint of the lineage.

        Raises:
            CheckpointMissingError: the folder is gone, but the store has decisions.
            OffsetMismatchError: the folder is foreign, an old copy, or damaged.
            OSError: it cannot be read or written.
        """
        if not (self.path / "metadata").exists():
            if newest is not None:
                raise CheckpointMissingError(
                    f"Spark's folder {self.path} is missing, but checkpoint {newest.checkpoint} of "
                    "this lineage is decided. No data is lost; nothing was written.",
                    remedy=self._remedy,
                )
            self._write_new()
        self.check(newest)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove what Spark was writing when its driver died, and checksums of deleted files.

        The former keep Spark 4.2 from starting batch 0 of a stateful plan; the latter it takes
        for another query's.
        """
        for name in _LOGS:
            for path in (self.path / name).glob(".*.tmp*"):  # .0.UUID.tmp, and ..0.UUID.tmp.crc
                path.unlink(missing_ok=True)
            for path in (self.path / name).glob(".*.crc"):
                if not path.with_name(path.name[1:-4]).exists():
                    path.unlink(missing_ok=True)

    def check(self, newest: Decision | None) -> None:
        """Validate the folder against the store.

        Args:
            newest: the newest decided checkpoint of the lineage.

        Raises:
            OffsetMismatchError: the folder is foreign, an old copy, or damaged.
            OSError: it cannot be read.
        """
        if (found := query_id(self.path)) != self._lineage.id:
            raise OffsetMismatchError(
                f"Spark's folder {self.path} belongs to query {found}, not to lineage "
                f"{self._lineage.id}. Nothing was written.",
                remedy=self._remedy,
            )
        decided = newest.checkpoint if newest else self._lineage.first_checkpoint - 1
        self._check_position(decided)
        self._check_not_empty("offsets", durable=decided)
        self._check_not_empty("commits", durable=decided - 1)

    @property
    def has_state(self) -> bool:
        """True if a micro-batch has left state here.

        Raises:
            OSError: the folder cannot be searched.
        """
        with suppress(FileNotFoundError):
            return bool(os.listdir(self.path / _STATE))
        return False

    def finish(self, newest: Decision | None) -> bool:
        """Note the newest micro-batch as finished, before Spark reads its log, if it is committed.

        Spark then does not run it again. Its rows are no longer needed, and its records may have
        expired (hazard H62). Every partition of each state store must have the version that it led
        to. The note has the watermark that the micro-batch ran with: if records move one, note only
        a micro-batch that cannot run again (docs/decisions/0033).

        Args:
            newest: the newest decided checkpoint of the lineage.

        Returns:
            Whether the note was written.

        Raises:
            OSError: the note may not be durable.
        """
        if newest is None or not newest.committed or query_id(self.path) != newest.lineage:
            return False
        number = newest.checkpoint
        if (self.planned(), self.finished()) != (number, number - 1):
            return False
        # Spark runs it, and the handler reports the mismatch
        if self.offsets(number).hash != newest.offsets_hash:
            return False
        if self.has_state:
            if not state_stores.have_version(self.path / _STATE, number + 1):
                return False
            # an unfinished replay may have written some of it once more
            sync_file_system(self.path)
        note = json.dumps({"nextBatchWatermarkMs": self._watermark_ms(number)})
        # A checksum left by a deleted note: Spark would compare ours with it.
        (self.path / "commits" / f".{number}.crc").unlink(missing_ok=True)
        _create(LocalStorage(self.path), f"commits/{number}", f"{_VERSION}\n{note}")
        return True

    def _watermark_ms(self, batch: int) -> int:
        """Return the watermark with which micro-batch `batch` ran."""
        header = (self.path / "offsets" / str(batch)).read_text().split("\n")[1]
        return int(json.loads(header)["batchWatermarkMs"])

    def _write_new(self) -> None:
        """Write each file durably before the next, `metadata` last; files that exist stay."""
        storage = LocalStorage(self.path)
        for log in _LOGS:
            (self.path / log).mkdir(mode=0o700, exist_ok=True)
        if self._lineage.start:
            lines = [line or _NO_OFFSET for line in self._lineage.start]
            header = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {**self._conf}}
            _create(storage, "offsets/0", "\n".join([_VERSION, json.dumps(header), *lines]))
            _create(storage, "commits/0", _FIRST_COMMIT)
        elif self._lineage.restored_from and self.planned() < self._lineage.first_checkpoint - 1:
            raise CheckpointMissingError(
                f"Spark's folder {self.path} is missing: it was copied from savepoint "
                f"{self._lineage.restored_from}, and no checkpoint has followed. Nothing was "
                "written.",
                remedy="restore the same savepoint into a new checkpointLocation.",
            )
        for log in _LOGS:
            storage.sync(log)
        _create(storage, "metadata", json.dumps({"id": self._lineage.id}))

    def _check_position(self, decided: int) -> None:
        """Check that Spark is at the newest decided batch, which it replays, or at the next."""
        planned, finished = self.planned(), self.finished()
        if planned in (decided, decided + 1) and finished in (decided - 1, decided):
            return
        raise OffsetMismatchError(
            f"Spark's folder {self.path} does not match the checkpoint store: Spark planned "
            f"micro-batch {planned} and finished {finished} (-1: none), but the newest decided "
            f"checkpoint is {decided}. Nothing was written.",
            remedy=self._remedy,
        )

    def _check_not_empty(self, log: str, durable: int) -> None:
        """Refuse an empty file, as a power cut can leave it: Spark would fail on it at every start.

        Args:
            log: the folder.
            durable: the newest number in it that a decision relies on. Spark can do without a newer
                one: it plans the micro-batch again, or runs a decided one again,
                which writes nothing.
        """
        number = self._newest(log)
        path = self.path / log / str(number)
        if number < 0 or path.read_bytes().strip(b"\0"):
            return
        checksum = path.with_name(f".{number}.crc")
        delete = (
            "delete it and its checksum, and start again; no decision relies on it, so nothing is "
            f"lost by that ({shlex.join(['rm', '-f', str(path), str(checksum)])})."
        )
        raise OffsetMismatchError(
            f"Spark's log {path} is empty: the machine crashed before the file was on disk. "
            "Nothing was written.",
            remedy=delete if number > durable else self._remedy,
        )

    def _newest(self, log: str) -> int:
        try:
            names = os.listdir(self.path / log)
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _read_offsets(self, batch: int) -> tuple[str | None, ...]:
        path = self.path / "offsets" / str(batch)
        try:
            version, _, *lines = path.read_text().split("\n")
        except (FileNotFoundError, ValueError) as error:
            raise OffsetMismatchError(
                f"Cannot read Spark's offset log {path}: {error}.", remedy=self._remedy
            ) from error
        if version != _VERSION or not lines:
            raise OffsetMismatchError(
                f"Spark's offset log {path} has format {version[:20]!r}, not {_VERSION!r}.",
                remedy=f"leave `{OFFSET_LOG}=1`, Spark's default, and {self._remedy}",
            )
        return tuple(None if line == _NO_OFFSET else line for line in lines)


def write_planned(path: Path, offsets: FrozenOffsets, header: str) -> str:
    """Write a folder in which micro-batch 1 is planned: a query over it runs that first.

    Args:
        path: the folder.
        offsets: where the micro-batch begins and ends.
        header: what Spark noted when it planned it, from `noted_settings.header_of`.

    Returns:
        The folder as a URI for Spark.
    """
    storage, lineage = LocalStorage(path), Lineage(new_lineage_id())
    for number, lines in enumerate((offsets.start, offsets.end)):
        _create(
            storage,
            f"offsets/{number}",
            "\n".join([_VERSION, header, *(line or _NO_OFFSET for line in lines)]),
        )
    _create(storage, "commits/0", _FIRST_COMMIT)
    _create(storage, "metadata", json.dumps({"id": lineage.id}))
    return SparkFolder(path, lineage).uri


def query_id(path: Path) -> str:
    """Return the id of the query of a Spark folder; "unreadable" if it does not say.

    Raises:
        OSError: it cannot be read, which says nothing about whose it is.
    """
    try:
        return str(json.loads((path / "metadata").read_text())["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "unreadable"


def _create(storage: LocalStorage, name: str, text: str) -> None:
    with suppress(AlreadyExistsError):  # it is whole, and has the same content
        storage.create(name, text.encode())

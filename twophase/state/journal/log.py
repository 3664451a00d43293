"""The job's log: fences and decisions in one totally ordered sequence of create-if-absent files.

This makes one driver the only writer (invariant I7): a driver appends at the number after the last
record it has seen. If another driver has written that number first, this one is fenced. The append
itself is the check; no clock and no generation file is trusted (hazard H43).
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from twophase.errors import (
    ConfigError,
    CorruptRecordError,
    FencedError,
    InDoubtError,
    NewerFormatError,
    TwoPhaseError,
)
from twophase.internals.failpoints import failpoint
from twophase.internals.record import HEAD_BYTES, kind_of
from twophase.state.files import codec
from twophase.state.files.storage import (
    DECISION_CRASH_POINTS,
    NO_CRASH_POINTS,
    AlreadyExistsError,
    Storage,
    UnclearOutcomeError,
)
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import (
    History,
    Record,
    SubsumedRecord,
    record_from_json,
)

FOLDER = "log"
_RECORD = re.compile(r"(?!0{10})[0-9]{10}")
_READ_TRIES = 5
_NOTHING = "Nothing was written or deleted."


@dataclass(frozen=True)
class LogEntry:
    """One record with its place, as its file has it.

    Attributes:
        job: the job's name.
        sequence: the record's number, which is the file's name.
        nonce: random, to tell a record from another one under the same number.
        record: of one of the kinds in `Record`, which the header names.
    """

    job: str
    sequence: int
    nonce: str
    record: Any


def job_of(storage: Storage) -> str | None:
    """Return the job that the log in a folder belongs to; None if there is no record.

    Raises:
        CorruptRecordError: the newest record is damaged.
        NewerFormatError: a newer version of twophase has written it.
    """
    names = storage.names(FOLDER)
    if not names:
        return None
    name = f"{FOLDER}/{names[-1]}"
    data = storage.read(name)
    return _decoded(data, name).job


class JobLog:
    """The log of one job, as one driver sees it. Safe to use from several threads.

    Args:
        storage: the job's folder.
        job: the job's name; the log of another job is refused.

    Attributes:
        history: the fold of all records seen so far.
        lock: held by every append; hold it while building a record from the history, so that no
            append intervenes.
    """

    def __init__(self, storage: Storage, job: str) -> None:
        self._storage = storage
        self._job = job
        self._first = 1
        self._last = 0
        self._last_nonce = ""
        self._over: FencedError | InDoubtError | None = None
        self.history = History()
        self.lock = threading.RLock()

    def read(self) -> History:
        """Read the whole log again, durably: the records are synced before they are returned.

        Raises:
            CorruptRecordError: a record is damaged, or missing between others.
            ConfigError: the folder is that of another job.
            NewerFormatError: a newer version of twophase has written a record.
        """
        entries = self._read_entries()
        self._storage.sync(FOLDER)
        history = History()
        for entry in entries:
            try:
                history = history.apply(entry.record)
            except (TypeError, ValueError) as error:
                raise self._corrupt(
                    entry.sequence, f"it contradicts the records before it: {error}"
                ) from None
        self.history = history
        self._first = entries[0].sequence if entries else 1
        self._last = entries[-1].sequence if entries else 0
        self._last_nonce = entries[-1].nonce if entries else ""
        self._over = None
        return history

    def refresh(self) -> History:
        """Read the log again if it has records that this object has not seen.

        Raises:
            CorruptRecordError: as `read`.
        """
        if self._last and self._over is None and max(self._sequences(), default=0) == self._last:
            return self.history
        return self.read()

    def length(self) -> int:
        """Return the number of records that this object has seen; a folded log begins with one."""
        return self._last - self._first + 1

    def append(self, record: Record) -> None:
        """Append durably, as the only writer.

        Raises:
            FencedError: another driver has appended since this one read the log.
            InDoubtError: the outcome is unknown, or it is written and whether as the last record
                is: what is beside it may be damaged. Neither act on the record nor undo what it
                records. After either error, no thread appends anything until the log is read again.
            OSError: the record was certainly not written.
            ValueError: the record contradicts the history; nothing was written.
        """
        with self.lock:
            if self._over is not None:
                raise self._over
            history = self.history.apply(record)
            sequence = self._last + 1
            nonce = secrets.token_hex(16)
            try:
                self._create(sequence, record, nonce)
                with self._doubted(sequence):
                    self._check_predecessor(sequence)
            except (FencedError, InDoubtError) as error:
                self._over = error
                raise
            self._last, self._last_nonce = sequence, nonce
            self.history = history

    def check_fence(self) -> None:
        """Check whether this driver is fenced, without appending.

        To a driver that was overtaken, whatever the newer one has subsumed or advanced looks lost.

        Raises:
            FencedError: another driver has appended since this one read the log.
            InDoubtError: so may this one have, in another thread: see `append`.
        """
        with self.lock:
            if self._over is not None:
                raise self._over
            if (newest := max(self._sequences(), default=0)) > self._last:
                raise self._fenced(f"record {newest} of its log was written by another driver")

    def fold(self, history: History) -> None:
        """Write `history` as the new beginning of the log and delete the records before it."""
        with self.lock:
            self.append(SubsumedRecord(history))
            self._first = self._last
        self.sweep()

    def sweep(self) -> None:
        """Delete the records before the log's first one, and what interrupted appends left.

        No reader looks at them and no append begins there, whether they come from an interrupted
        fold or from a fenced driver. Leftovers for numbers after our last may belong to a newer
        driver, and stay. So do records of a newer version of twophase, wherever they are, and with
        a warning what cannot be deleted.
        """
        with self.lock:
            first, last = self._first, self._last
        for sequence in self._sequences():
            if sequence < first and not self._storage.is_newer(_name(sequence)):
                self._storage.delete_unneeded(_name(sequence))
                failpoint("C17")
        self._storage.delete_temporary(
            FOLDER, lambda name: _RECORD.fullmatch(name) is not None and int(name) <= last
        )

    def _create(self, sequence: int, record: Record, nonce: str) -> None:
        points = DECISION_CRASH_POINTS if isinstance(record, Decision) else NO_CRASH_POINTS
        entry = LogEntry(self._job, sequence, nonce, record)
        try:
            self._storage.create(_name(sequence), codec.encode(record.kind, entry), points)
        except AlreadyExistsError:
            with self._doubted(sequence):
                is_ours = self._nonce_of(sequence) == nonce
            if not is_ours:
                raise self._fenced(
                    f"record {sequence} of its log was written by another driver"
                ) from None
        except FileNotFoundError:
            # a newer driver takes our temporary name for a leftover and deletes it
            self.check_fence()
            raise
        except UnclearOutcomeError as error:
            raise self._in_doubt(sequence, error) from error

    def _check_predecessor(self, sequence: int) -> None:
        """Check that our record is the log's last: a name that a fold deletes can be created again.

        If the predecessor is not the record we know, a newer driver has folded the log in the
        meantime; another fenced driver may have created that name again. Sometimes the predecessor
        proves nothing, because the first record has none or because a fold died before deleting it.
        Then a folded log shows in the records after ours, of which at least one always exists.
        """
        if sequence > 1 and self._nonce_of(sequence - 1) != self._last_nonce:
            raise self._fenced(f"record {sequence - 1} of its log was folded by another driver")
        if (newest := self._newest_beside()) != sequence:
            ended = "was empty" if sequence == 1 else f"ended at {sequence - 1}"
            raise self._fenced(
                f"its log {ended} when it was read, and now has a record {newest} of another driver"
            )

    @contextmanager
    def _doubted(self, sequence: int) -> Iterator[None]:
        """After the create of record `sequence`, any error but a fence leaves it in doubt."""
        try:
            yield
        except (FencedError, InDoubtError):
            raise
        except Exception as error:
            raise self._in_doubt(sequence, error) from error

    def _newest_beside(self) -> int:
        """Return the newest record, which may be beside ours."""
        return max(self._sequences(), default=0)

    def _nonce_of(self, sequence: int) -> str | None:
        """Return the nonce of a record.

        Returns:
            None if it was folded, or if a newer version of twophase has written it, which
            is another driver.
        """
        try:
            return self._read_entry(sequence).nonce
        except (FileNotFoundError, NewerFormatError):
            return None

    def _read_entries(self) -> list[LogEntry]:
        """Return the current records, read again if another driver changes the log meanwhile."""
        for _ in range(_READ_TRIES):
            sequences = self._sequences()
            try:
                self._check_job()
                return self._read_suffix(sequences)
            except (FileNotFoundError, CorruptRecordError):
                if self._sequences() == sequences:
                    raise
        return self._read_suffix(self._sequences())

    def _read_suffix(self, sequences: list[int]) -> list[LogEntry]:
        """Return the newest `SUBSUMED` record and all after it, or the whole log."""
        entries: list[LogEntry] = []
        for sequence in reversed(sequences):
            if entries and entries[-1].sequence != sequence + 1:
                raise self._corrupt(sequence + 1, "it is missing")
            entries.append(self._read_entry(sequence))
            if isinstance(entries[-1].record, SubsumedRecord):
                break
        else:
            if entries and entries[-1].sequence != 1:
                raise self._corrupt(entries[-1].sequence - 1, "it is missing")
        return entries[::-1]

    def _sequences(self) -> list[int]:
        sequences = []
        for name in self._storage.names(FOLDER):
            if not _RECORD.fullmatch(name):
                self._check_foreign(f"{FOLDER}/{name}")
                raise CorruptRecordError(
                    f"The log of job {self._job!r} contains {name!r}, which is not a record.",
                    remedy="find out what wrote it, and remove it.",
                )
            sequences.append(int(name))
        return sequences

    def _check_foreign(self, name: str) -> None:
        """Check that no newer version of twophase has written a file that is not a record."""
        with suppress(OSError, CorruptRecordError):
            codec.decode_bytes("", self._storage.head(name, HEAD_BYTES), name)

    def _read_entry(self, sequence: int) -> LogEntry:
        name = _name(sequence)
        data = self._storage.read(name)
        entry = _decoded(data, name)
        if (entry.job, entry.sequence) != (self._job, sequence):
            raise self._corrupt(sequence, f"it is record {entry.sequence} of job {entry.job!r}")
        return replace(entry, record=record_from_json(kind_of(data), entry.record, name))

    def _corrupt(self, sequence: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"Job {self._job!r}: log record {_name(sequence)} cannot be used: {reason}. "
            "Nothing was written or deleted.",
            remedy="restore the job's folder from a backup. If there is none, move its folder log "
            "away (mv log log.damaged), then: twophase repair adopt-from-target JOB.yaml",
        )

    def _check_job(self) -> None:
        """Check whose log it is, by its newest record."""
        other = job_of(self._storage)
        if other in (None, self._job):
            return
        raise ConfigError(
            f"Job {self._job!r}: its checkpointLocation is the folder of job {other!r}, whose rows "
            "the targets know by that name. Nothing was written or deleted.",
            remedy=f"name the job {other!r} again, or name another checkpointLocation. To go on "
            "under another name, begin a job with a savepoint of this one: "
            "`restore.sink_ahead=fork`.",
        )

    def _in_doubt(self, sequence: int, error: Exception) -> InDoubtError:
        """Return the error that record `sequence` may be written.

        If something in the log is damaged, the next start says so, too, and stops.
        """
        what = f"Job {self._job!r}: the outcome of writing log record {sequence} is unknown:"
        if isinstance(error, TwoPhaseError):
            cause = error.what.replace(_NOTHING, "").strip()
            return InDoubtError(f"{what} {cause}", remedy=error.remedy)
        return InDoubtError(
            f"{what} {error}.",
            remedy="check the disk of the job's folder, then start the job again.",
        )

    def _fenced(self, reason: str) -> FencedError:
        return FencedError(
            f"Job {self._job!r}: this driver is fenced out: {reason}.", remedy="leave it stopped."
        )


def _name(sequence: int) -> str:
    return f"{FOLDER}/{sequence:010d}"


def _decoded(data: bytes, name: str) -> LogEntry:
    """Return an entry whose record is not decoded yet."""
    return codec.decode(kind_of(data), data, name, LogEntry)

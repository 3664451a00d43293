"""Savepoints: self-contained folders that hold one consistent cut of a job (decision 0045).

    _begun            whose it is; written first
    scratch/          while one is rescaled: the folder that Spark works in
    data/<number>     the content of all files, one after the other, in parts of one size
    _savepoint        the manifest: every file with its place, length and SHA-256; written last
    _finished         written when a checkpoint that was not committed has been committed since

A folder without a manifest is not a savepoint: a copy that was cut short, or one that is being made
or disposed of. All paths in it are relative, so it may be moved. Written through `Storage` only, by
create-if-absent, and never changed.
"""

from __future__ import annotations

import errno
import hashlib
import re
import secrets
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twophase.errors import ConfigError, CorruptRecordError, SavepointError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import digest
from twophase.operations.savepoint.manifest import COPY_AGAIN, Manifest, SavedFile, decode_manifest
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import decode_body
from twophase.state.files import codec
from twophase.state.files.storage import AlreadyExistsError, Storage, UnclearOutcomeError

BEGUN, MANIFEST, FINISHED, DATA = "_begun", "_savepoint", "_finished", "data"
SCRATCH = "scratch"
KINDS = {BEGUN: "SAVEPOINT-BEGUN", MANIFEST: "SAVEPOINT", FINISHED: "SAVEPOINT-FINISHED"}
PART_BYTES = 16 * 1024 * 1024
_OWN = {BEGUN, MANIFEST, FINISHED, DATA, SCRATCH}
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK}
_PART = re.compile(r"\d{7}")


@dataclass(frozen=True)
class _Begun:
    job: str
    writer: str


@dataclass(frozen=True)
class _Finished:
    manifest: str


class SavepointWriter:
    """Writes one savepoint. If anything fails, nothing of it is left.

    Args:
        storage: its folder, new or empty.
        where: its path, for errors.
    """

    def __init__(self, storage: Storage, where: str) -> None:
        self._storage = storage
        self._where = where
        self._files: list[SavedFile] = []
        self._waiting = bytearray()
        self._length = 0
        self._parts = 0
        self._begun = b""
        self._is_discarded = self._leaves_a_part = False
        self._part_bytes = PART_BYTES

    def claim(self, job: str) -> None:
        """Claim the folder: from here on nobody else makes a savepoint there.

        Raises:
            SavepointError: something is there already, or it cannot be written.
        """
        check_empty(self._storage, self._where)
        self._begun = codec.encode(KINDS[BEGUN], _Begun(job, secrets.token_hex(16)))
        try:
            self._storage.create(BEGUN, self._begun)
        except AlreadyExistsError:
            raise _taken(self._where, [BEGUN]) from None
        except (OSError, UnclearOutcomeError) as error:
            raise self._failed(error) from error
        failpoint("S01")

    @contextmanager
    def writing(self, outcome: str = "") -> Iterator[None]:
        """Delete what was written if the block fails.

        Args:
            outcome: what has become of the job by then, as a sentence for the error.

        Raises:
            SavepointError: it cannot be written.
        """
        try:
            yield
        except (OSError, UnclearOutcomeError, AlreadyExistsError) as error:
            raise self._failed(error, outcome) from error
        except BaseException as error:
            self.discard()
            if isinstance(error, SavepointError) and outcome:
                raise SavepointError(f"{error.what} {outcome}", remedy=error.remedy) from error
            raise

    def add(self, path: str, content: Iterable[bytes]) -> None:
        """Append a file."""
        start, length, sha256 = self._length, 0, hashlib.sha256()
        for data in content:
            length += len(data)
            sha256.update(data)
            self._waiting += data
            while len(self._waiting) >= self._part_bytes:
                self._write_part()
        self._length += length
        self._files.append(SavedFile(path, start, length, sha256.hexdigest()))

    def complete(self, checkpoint: CompletedCheckpoint, **fields: Any) -> Manifest:
        """Write the manifest: from here on it is a savepoint.

        Args:
            checkpoint: the newest in it.
            fields: the other fields of the manifest.
        """
        if self._waiting:
            self._write_part()
        manifest = Manifest(
            job=checkpoint.job,
            lineage=checkpoint.lineage,
            checkpoint=checkpoint.checkpoint,
            files=tuple(self._files),
            part_bytes=self._part_bytes,
            **fields,
        )
        failpoint("S03")
        self._check_ours()
        self._storage.create(MANIFEST, codec.encode(KINDS[MANIFEST], manifest))
        failpoint("S04")
        return manifest

    def _write_part(self) -> None:
        self._check_ours()
        part = bytes(self._waiting[: self._part_bytes])
        self._storage.create(part_name(self._parts), part)
        failpoint("S02")
        self._parts += 1
        del self._waiting[: self._part_bytes]

    def discard(self) -> None:
        """Delete what this writer has written; an error leaves a folder that is not a savepoint.

        Nothing is deleted of what somebody else has made there, having disposed of this one.
        """
        if self._is_discarded:
            return
        self._is_discarded = True
        try:
            if self._is_ours():
                self._storage.delete(MANIFEST)
                for number in range(self._parts + 1):
                    self._storage.delete(part_name(number))
                self._storage.delete(DATA)
                if self._storage.names("") == [BEGUN]:
                    self._storage.delete(BEGUN)
                else:  # as where Spark's files of a rescale cannot be deleted
                    self._leaves_a_part = True
            if not self._storage.names(""):
                _delete_root(self._storage)
        except OSError:
            self._leaves_a_part = True

    def _check_ours(self) -> None:
        if not self._is_ours():
            raise AlreadyExistsError(self._where)

    def _is_ours(self) -> bool:
        """Return whether the folder is still claimed by this writer."""
        try:
            return self._storage.read(BEGUN) == self._begun
        except FileNotFoundError:
            return False

    def _failed(self, error: Exception, outcome: str = "") -> SavepointError:
        """Delete what was written, and return the error for it."""
        if isinstance(error, AlreadyExistsError) and not self._is_ours():
            return SavepointError(
                f"The savepoint {self._where} was disposed of while it was being made. What "
                f"somebody else has made there was left unchanged.{outcome and ' '}{outcome}",
                remedy="name another folder, then try again.",
            )
        self.discard()
        advice = "make room or name another folder, then try again"
        if isinstance(error, OSError) and error.errno in _NO_HARD_LINKS:
            advice = "name a folder on a file system with hard links, then try again"
        return SavepointError(
            f"The savepoint {self._where} could not be written: {error}. "
            f"{'A part' if self._leaves_a_part else 'Nothing'} of it is left."
            f"{outcome and ' '}{outcome}",
            remedy=f"run: twophase savepoint dispose {shlex.quote(self._where)}; then {advice}."
            if self._leaves_a_part
            else f"{advice}.",
        )


class Savepoint:
    """A savepoint that is there, read-only.

    Args:
        storage: its folder.
        where: its path, for errors.

    Attributes:
        where: as given.
        manifest: what it holds.
        identity: the hex SHA-256 of its manifest: the same for every copy, and for no other one.

    Raises:
        ConfigError: there is none, or it is incomplete.
        CorruptRecordError: its manifest is damaged.
        NewerFormatError: a newer version of twophase has written it.
    """

    def __init__(self, storage: Storage, where: str) -> None:
        self.where = where
        self._storage = storage
        self._part = (-1, b"")
        data = self._read_manifest()
        self.identity = digest(data)
        self.manifest = decode_manifest(KINDS[MANIFEST], data, f"{where}/{MANIFEST}")

    @property
    def is_committed(self) -> bool:
        """Whether every checkpoint in it is known to be committed."""
        return not self.manifest.pending or self._is_finished()

    def _is_finished(self) -> bool:
        try:
            data = self._storage.read(FINISHED)
        except FileNotFoundError:
            return False
        try:
            finished = codec.decode(KINDS[FINISHED], data, FINISHED, _Finished)
        except CorruptRecordError as error:
            raise self._damaged(f"its {FINISHED} cannot be read") from error
        if finished.manifest != self.identity:
            raise self._damaged(
                f"its {FINISHED} is of another one, which it was copied over",
                "copy it again, into an empty folder, or restore from another one.",
            )
        return True

    def checkpoint(self) -> CompletedCheckpoint:
        """Return the newest checkpoint in it."""
        return self._body(self.manifest.body)

    def pending(self) -> tuple[CompletedCheckpoint, ...]:
        """Return the checkpoints that must still be committed, oldest first."""
        return tuple(self._body(path) for path in self.pending_paths())

    def pending_paths(self) -> tuple[str, ...]:
        """Return the paths of their bodies."""
        return () if self.is_committed else self.manifest.pending

    def ancestors(self) -> dict[str, int]:
        """Return the last checkpoint of each lineage that a restored one continues."""
        manifest = self.manifest
        return {**manifest.ancestors, manifest.lineage: manifest.checkpoint}

    def verify(self) -> None:
        """Read every file and compare it with the manifest.

        Raises:
            CorruptRecordError: a file is missing, cut off, changed, or of another savepoint.
        """
        for file in self.manifest.files:
            for _ in self.content(file):
                pass
        self.checkpoint()
        self.pending_paths()

    def content(self, file: SavedFile) -> Iterator[bytes]:
        """Yield the content of a file, and compare it with the manifest at the end.

        Raises:
            CorruptRecordError: it is missing, cut off or changed.
        """
        sha256, at, end = hashlib.sha256(), file.start, file.start + file.length
        while at < end:
            number, offset = divmod(at, self.manifest.part_bytes)
            data = self._read_part(number)[offset : offset + end - at]
            if not data:
                raise self._damaged(f"{part_name(number)} is too short for {file.path}")
            sha256.update(data)
            at += len(data)
            yield data
        if sha256.hexdigest() != file.sha256:
            raise self._damaged(f"the SHA-256 of {file.path} is not the one in the manifest")

    def finish(self, storage: Storage) -> None:
        """Record that every checkpoint in it is committed.

        Args:
            storage: its folder, writable.

        Raises:
            SavepointError: it could not be recorded.
        """
        data = codec.encode(KINDS[FINISHED], _Finished(self.identity))
        try:
            storage.create(FINISHED, data)
        except AlreadyExistsError:
            return
        except (OSError, UnclearOutcomeError) as error:
            raise SavepointError(
                f"The checkpoints of the savepoint {self.where} are committed, but that could not "
                f"be recorded in it: {error}.",
                remedy=f"nothing is missing; to record it, run the same command again once "
                f"{self.where} is writable.",
            ) from error

    def _read_manifest(self) -> bytes:
        try:
            return self._storage.read(MANIFEST)
        except FileNotFoundError:
            found = self._storage.names("")
        if {BEGUN, DATA, SCRATCH} & {*found}:
            raise ConfigError(
                f"The savepoint {self.where} is incomplete: it has no manifest, which is written "
                "last. Creating or copying it was interrupted, or is still in progress. "
                "Nothing was started or written.",
                remedy="copy it again from the original, or create a new one; "
                f"to remove this one: twophase savepoint dispose {shlex.quote(self.where)}",
            )
        raise ConfigError(
            f"{self.where} is not a savepoint.",
            remedy="`twophase savepoint list FOLDER` lists the savepoints in a folder.",
        )

    def _body(self, path: str) -> CompletedCheckpoint:
        [file] = [one for one in self.manifest.files if one.path == path]
        return decode_body(b"".join(self.content(file)), f"{self.where}: {path}")

    def _read_part(self, number: int) -> bytes:
        if self._part[0] != number:
            try:
                self._part = (number, self._storage.read(part_name(number)))
            except FileNotFoundError:
                raise self._damaged(f"{part_name(number)} is missing") from None
        return self._part[1]

    def _damaged(self, what: str, remedy: str = COPY_AGAIN) -> CorruptRecordError:
        return CorruptRecordError(
            f"The savepoint {self.where} is damaged: {what}. Nothing was started or written.",
            remedy=remedy,
        )


def check_empty(storage: Storage, where: str) -> None:
    """Check that nothing is in a folder in which a savepoint is to be made.

    Raises:
        SavepointError: something is.
    """
    if found := storage.names(""):
        raise _taken(where, found)


def part_name(number: int) -> str:
    """Return the name of a part of the data."""
    return f"{DATA}/{number:07d}"


def _taken(where: str, found: list[str]) -> SavepointError:
    dispose = f"if no other process is making it: twophase savepoint dispose {shlex.quote(where)}"
    if MANIFEST in found:
        what, remedy = "already exists and is never overwritten", "name another folder."
    elif BEGUN in found:
        what = "is being created by another process, or was left incomplete by one that was killed"
        remedy = f"wait for it, or name another folder; {dispose}"
    else:
        what, remedy = (
            f"would lie among other files, such as {found[0]}",
            "name an empty folder.",
        )
    return SavepointError(f"The savepoint {where} {what}. Nothing was written.", remedy=remedy)


def dispose(storage: Storage, where: str) -> None:
    """Delete a savepoint, or what an interrupted `dispose` or making has left of one.

    1. `_savepoint`, `_finished`   from here on it is not a savepoint
    2. `scratch/...`, `data/...`
    3. `_begun`, the folder        until then what is left can be recognised, and deleted again

    Args:
        storage: its folder.
        where: its path, for errors.

    Raises:
        ConfigError: it is not one, or also holds other files; nothing was deleted.
        OSError: something could not be deleted; what is left is not a savepoint.
    """
    found = storage.names("")
    parts = storage.names(DATA) if DATA in found else []
    foreign = [name for name in found if name not in _OWN]
    foreign += [f"{DATA}/{name}" for name in parts if not _PART.fullmatch(name)]
    if not {BEGUN, MANIFEST} & {*found}:
        raise ConfigError(
            f"{where} is not a savepoint. Nothing was deleted.", remedy="check the path."
        )
    if storage.is_newer(MANIFEST):  # which may have files that we do not know
        raise ConfigError(
            f"The savepoint {where} was made by a newer version of twophase. Nothing was deleted.",
            remedy="dispose of it with that version.",
        )
    if foreign:
        raise ConfigError(
            f"The folder of the savepoint {where} also holds other files, such as {foreign[0]}. "
            "Nothing was deleted.",
            remedy="move them elsewhere, then try again.",
        )
    for name in (MANIFEST, FINISHED):
        storage.delete(name)
        failpoint("S09")
    if SCRATCH in found:
        shutil.rmtree(Path(where) / SCRATCH)  # Spark's, so it is a local one
    for name in parts:
        storage.delete(f"{DATA}/{name}")
        failpoint("S10")
    for name in (DATA, BEGUN):
        storage.delete(name)
    _delete_root(storage)


def _delete_root(storage: Storage) -> None:
    """Delete the folder of what was a savepoint. A mount point stays, empty."""
    with suppress(OSError):
        storage.delete("")

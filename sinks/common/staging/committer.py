"""Phase 2: files get their final names; the piece's folder, moved to `done`, is the proof.

    1. for each piece       its manifest, or proof that it is committed, or nothing: lost
       the others           proof of the predecessor in this folder; without it, or in another
                            folder, nothing is moved
       for each file        staged, or moved by an earlier try, or gone: its piece is lost,
                            before any file is moved
       a lost piece         its files that are already in the table are renamed
                            back: it is lost whole
    2. for each folder      rename its files into it, never replacing; then sync them all
    3. publish              announce the partitions to a catalogue
    4. for each piece       move its folder from `staged` to `done`, then sync both

After a crash before the end of 4, the commit is repeated from 1. A file that is no longer staged
has to be at its final name with the length and SHA-256 of the manifest: an earlier try has moved
it. A file at both names is not ours, and a file at neither is lost (hazards H23, H25). The
folder of a file is worked out here from its partition values: the manifest holds no path.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, another_target, predecessor_missing
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import Values, folders
from twophase.sinks.common.staging.aborted import restage
from twophase.sinks.common.staging.disk import (
    digest,
    not_overwritten,
    opened_folder,
    rename_new,
    sync,
)
from twophase.sinks.common.staging.manifest import FILE, Manifest, StagedFile
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.rewound import UNFINISHED_REMEDY, moved_out
from twophase.sinks.common.staging.staging_area import DONE, STAGED
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.visible_files import move_back

Publish = Callable[[Sequence[Manifest], Path], None]
"""Called with the pieces whose files are at their final names, before their proof is written, and
with the stage in which they were found; may be called again.
"""


@dataclass(frozen=True)
class _Piece:
    """One piece that is not committed.

    Attributes:
        folder: where it is staged.
        manifest: its manifest.
    """

    folder: Path
    manifest: Manifest

    def source(self, file: StagedFile) -> Path:
        return self.folder / str(file.number)


class Committer:
    """Commits pieces.

    Args:
        table: the table they go to.
        publish: step 3.
    """

    def __init__(self, table: Table, publish: Publish) -> None:
        self._table = table
        self._publish = publish
        self._stage = table.area.stage()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        failpoint("C12")
        pieces = [self._find(request.committable) for request in requests]
        for request, piece in zip(requests, pieces, strict=True):
            if not isinstance(piece, AlreadyCommitted):
                self._check_target(request)
        try:
            outcomes = self._commit([request.committable for request in requests], pieces)
        except OSError as error:
            area = self._table.area
            if not area.exists():
                raise area.missing() from error
            # The next call finds what was done so far.
            later = RetryLater(_reason(error))
            outcomes = [piece if isinstance(piece, AlreadyCommitted) else later for piece in pieces]
        if any(isinstance(outcome, Lost) for outcome in outcomes) and not self._stage.exists():
            return [RetryLater(f"{self._stage} is gone: the fence was raised") for _ in outcomes]
        return outcomes

    def _commit(
        self,
        committables: Sequence[Committable],
        pieces: Sequence[_Piece | AlreadyCommitted | Lost],
    ) -> Sequence[CommitOutcome]:
        """The rest of step 1, and steps 2 to 4."""
        outcomes: list[CommitOutcome] = []
        whole: list[_Piece] = []
        for committable, piece in zip(committables, pieces, strict=True):
            outcome = (self._missing(piece) or Committed()) if isinstance(piece, _Piece) else piece
            if isinstance(outcome, Lost):
                folder = (
                    self._stage
                    / STAGED
                    / str(PieceName.of(committable.transaction, committable.subtask))
                )
                move_back(
                    self._table,
                    committable,
                    folder,
                    piece.manifest if isinstance(piece, _Piece) else None,
                )
            elif isinstance(piece, _Piece):
                whole.append(piece)
            outcomes.append(outcome)
        self._move(whole)
        self._finish(whole)
        return outcomes

    def _check_target(self, request: CommitRequest) -> None:
        """Check that this is the target of a piece without proof, and has its predecessor."""
        committable, before = request.committable, request.predecessor
        if committable.target != self._table.target:
            raise another_target(committable, self._table.target)
        if before is not None and not self._table.area.has(before.lineage, before.checkpoint):
            raise predecessor_missing(request, self._table.target)
        if out := moved_out(self._stage):
            raise StopJobError(
                f"A rewind of {self._table.area.root} has not finished: rows of checkpoints up to "
                f"{max(piece.checkpoint for piece in out)} have left it. Nothing is committed "
                "until it has.",
                remedy=UNFINISHED_REMEDY,
            )

    def _find(self, committable: Committable) -> _Piece | AlreadyCommitted | Lost:
        """Step 1. A piece moves from `staged` to `done` to the mark; look it up in that order."""
        name = PieceName.of(committable.transaction, committable.subtask)
        folder = self._stage / STAGED / str(name)
        data = self._read_manifest(name)
        if data is None:
            return self._proof(name)
        if hashlib.sha256(data).hexdigest() != committable.handle["manifest_sha256"]:
            return Lost(
                f"{folder / FILE} is not the manifest of the checkpoint: its SHA-256 differs"
            )
        try:
            return _Piece(folder, Manifest.decode(data, str(folder / FILE)))
        except DamagedRecordError as error:  # damaged before its digest was taken
            return Lost(f"{folder / FILE}: {error}")

    def _read_manifest(self, name: PieceName) -> bytes | None:
        """Return the manifest of a staged piece; another driver's abort may have hidden it."""
        manifest = self._stage / STAGED / str(name) / FILE
        is_hidden = True
        while is_hidden:
            with suppress(FileNotFoundError):
                return manifest.read_bytes()
            is_hidden = restage(self._stage, name)
        return manifest.read_bytes() if manifest.exists() else None  # staged again in between

    def _proof(self, name: PieceName) -> AlreadyCommitted | Lost:
        done = self._stage / DONE / str(name)
        if done.exists():
            sync(done.parent, self._stage / STAGED)  # its mover may have died before its own sync
            return AlreadyCommitted("done marker")
        mark = self._table.area.marks().get(name.lineage, -1)
        if mark >= name.checkpoint:
            return AlreadyCommitted("high-water mark")
        return Lost(
            f"piece {name} is neither staged nor done, and the high-water mark "
            f"of its lineage is {mark}"
        )

    def _missing(self, piece: _Piece) -> Lost | None:
        """Return the first file of a piece that is missing or truncated."""
        for file in piece.manifest.files:
            source, name = piece.source(file), self._name(piece, file)
            staged = _size(source)
            if staged is not None and staged != file.size:
                return Lost(
                    f"{source} has {staged} bytes, not the {file.size} that were pre-committed"
                )
            if staged is None and not self._is_moved(name, file.partition):
                return Lost(f"{source} is gone, and {name} is not in the folder of its partition")
        return None

    def _is_moved(self, name: str, partition: Values) -> bool:
        with self._opened(partition) as folder:
            return _size(name, folder) is not None

    def _move(self, pieces: Sequence[_Piece]) -> None:
        """Step 2. Folder by folder, so that each is opened once for all pieces.

        All are synced at the end: the first sync makes the file system write all renames at once,
        and leaves the others nothing to write.
        """
        moves: dict[Values, list[tuple[_Piece, StagedFile]]] = defaultdict(list)
        for piece in pieces:
            for file in piece.manifest.files:
                moves[file.partition].append((piece, file))
        for count, (partition, files) in enumerate(moves.items()):
            if count:
                failpoint("F03")
            with self._opened(partition) as folder:
                for piece, file in files:
                    self._move_file(piece, file, folder)
        self._sync(moves)

    def _sync(self, partitions: Iterable[Values]) -> None:
        """Sync the folders of partitions and those above them, as any of them may be new."""
        paths = [folders(self._table.partition_by, partition) for partition in partitions]
        for names in {path[:depth] for path in paths for depth in range(len(path) + 1)}:
            with opened_folder(self._table.area.root, names) as folder:
                os.fsync(folder)

    @contextmanager
    def _opened(self, partition: Values) -> Iterator[int]:
        names = folders(self._table.partition_by, partition)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(opened_folder(self._table.area.root, names))
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                raise StopJobError(
                    f"The folder {shown('/'.join(names))} of a partition of "
                    f"{self._table.area.root} is a link or a file. The decided files wait in the "
                    "staging area; nothing is lost.",
                    remedy="replace it with a plain folder, then start the job again.",
                ) from error
            yield folder

    def _move_file(self, piece: _Piece, file: StagedFile, folder: int) -> None:
        source, name = piece.source(file), self._name(piece, file)
        # in this order: another driver may move it meanwhile
        final, staged = _size(name, folder), _size(source)
        if staged is not None and final is None:
            rename_new(source, name, folder)
            final = _size(name, folder)
        elif staged is not None or digest(name, folder) != file.sha256:
            root = self._table.area.root
            raise not_overwritten(f"{name} in partition {shown(file.partition)} of {root}")
        if final != file.size:  # OK is not believed: the file has to be in the table
            raise OSError(errno.EIO, f"has {final} bytes after it was moved, not {file.size}", name)

    def _name(self, piece: _Piece, file: StagedFile) -> str:
        return file_name(
            piece.manifest.transaction,
            piece.manifest.subtask,
            file.number,
            self._table.format.suffix,
        )

    def _finish(self, pieces: Sequence[_Piece]) -> None:
        """Steps 3 and 4."""
        if not pieces:
            return
        self._publish([piece.manifest for piece in pieces], self._stage)
        failpoint("F04")
        done = self._stage / DONE
        for count, piece in enumerate(pieces):
            if count:
                failpoint("C13")
            try:
                rename_new(piece.folder, done / piece.folder.name)
            except (FileNotFoundError, FileExistsError):
                if not (done / piece.folder.name).exists():  # another driver has done it
                    raise
        failpoint("C14")
        sync(done, self._stage / STAGED)
        failpoint("C15")


def _reason(error: OSError) -> str:
    """Return an error's code and its redacted message: folder names hold values of rows."""
    code = "" if error.errno is None else f" ({errno.errorcode.get(error.errno, error.errno)})"
    return f"{type(error).__name__}{code}: {shown(str(error))}"


def _size(name: str | Path, folder: int | None = None) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None

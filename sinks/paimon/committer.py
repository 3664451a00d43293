"""Phase 2: see `twophase.sinks.common.lake.committer`. The commit is the next snapshot, made under
a name that only one writer can take: it names the files, and proves the pieces. Read back, it is
noted in the staging area.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.contract.sink import Predecessor
from twophase.errors import StopJobError, TargetChangedError
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.sinks.common.lake.committer import LakeCommitter, StagedPiece, altered
from twophase.sinks.common.lake.table import HIDDEN, MOVED, is_moved
from twophase.sinks.common.staging.disk import opened_folder, rename_new, sync
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import DONE, STAGED
from twophase.sinks.paimon.driver_table import DriverTable, Look
from twophase.sinks.paimon.layout import differences
from twophase.sinks.paimon.private_api import ConflictError
from twophase.sinks.paimon.proofs import Found, note_commit
from twophase.sinks.paimon.records import PIECES, Manifest, encode_pieces, pieces_of

Piece = StagedPiece[Manifest]


class Committer(LakeCommitter[Look, Manifest]):
    """Commits pieces.

    Args:
        table: the table they go to.
    """

    conflict = ConflictError

    def __init__(self, table: DriverTable) -> None:
        super().__init__(table)
        self._table = table
        self._found: dict[PieceName, Found] = {}
        self._absent: dict[PieceName, Any] = {}

    def _proven(self, name: PieceName, look: Look) -> AlreadyCommitted | Committed | None:
        proof = look.proofs.noted(name)
        return self._outcome(name, proof) if proof else None

    def _settled(self, piece: Piece, look: Look) -> AlreadyCommitted | Committed | None:
        """Of a piece whose files were not moved, no commit has begun."""
        found = None
        if is_moved(piece.manifest, piece.folder):
            absent = self._absent.get(piece.name)
            found = look.proofs.published(piece.name, piece.manifest, absent)
        if found is None:
            self._absent[piece.name] = look.latest
            return None
        return self._settle(piece.name, found)

    def _settle(self, name: PieceName, found: Found) -> AlreadyCommitted | Committed:
        self._found[name] = found
        return self._outcome(name, f"snapshot {found.snapshot}")

    def _outcome(self, name: PieceName, proof: str) -> AlreadyCommitted | Committed:
        return Committed() if name in self._made else AlreadyCommitted(proof)

    def _find(
        self, committable: Committable, look: Look, stage: Path
    ) -> Piece | AlreadyCommitted | Committed | Lost:
        """Step 1. A piece that is gone from the staging area may be in a snapshot all the same."""
        outcome = super()._find(committable, look, stage)
        if isinstance(outcome, Lost):
            name = PieceName.of(committable.transaction, committable.subtask)
            if (found := look.proofs.anywhere(name)) is not None:
                return self._settle(name, found)
        return outcome

    def _mark(self, lineage: str, look: Look) -> int:
        return look.proofs.mark(lineage)

    def _has(self, checkpoint: Predecessor, look: Look) -> bool:
        lineage, number = checkpoint.lineage, checkpoint.checkpoint
        return look.proofs.has(lineage, number) or any(
            (name.lineage, name.checkpoint) == (lineage, number)
            for name in self._table.unnoted(look)
        )

    def _check_whole(self, committable: Committable, look: Look) -> None:
        if reason := look.proofs.rolled_back():
            raise TargetChangedError(
                f"{committable.transaction} is decided and cannot be committed to "
                f"{self._table.target}: {reason}.",
                remedy=f"restore the table's folder, but for {HIDDEN} in it, where newer pieces "
                "may wait, then start the job again.",
            )

    def _together(self, piece: Piece) -> tuple[str, int]:
        """Lineage and checkpoint."""
        return piece.name.lineage, piece.name.checkpoint

    def _append(self, pieces: Sequence[Piece], look: Look) -> None:
        """Steps 2 and 3."""
        for piece in pieces:
            self._check_layout(piece, look)
        folders = {
            self._final(piece, file).parent for piece in pieces for file in piece.manifest.files
        }
        for folder in folders:
            self._make(folder)
        self._move(pieces)
        self._sync(folders)
        transaction = pieces[0].manifest.transaction
        proof = pieces_of(transaction, [piece.name for piece in pieces])
        failpoint("D01")
        look.table.publish(
            look.latest,
            [file.message for piece in pieces for file in piece.manifest.files],
            f"twophase~{transaction.job}~{transaction.sink}~{transaction.lineage}",
            transaction.checkpoint,
            {PIECES: encode_pieces(proof)},
        )
        failpoint("D02")
        self._made.update(piece.name for piece in pieces)

    def _make(self, folder: Path) -> None:
        names = folder.relative_to(self._table.location).parts
        try:
            with opened_folder(self._table.location, names):
                pass
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise StopJobError(
                f"The folder {shown('/'.join(names))} of {self._table.location} is a link or a "
                "file. The decided files wait in the staging area; nothing is lost.",
                remedy="replace it with a plain folder, then start the job again.",
            ) from error

    def _sync(self, folders: set[Path]) -> None:
        """Sync folders and those above them, as any of them may be new."""
        location = self._table.location
        paths = {above for folder in folders for above in (folder, *folder.parents)}
        sync(*sorted(path for path in paths if path.is_relative_to(location)))

    def _check_layout(self, piece: Piece, look: Look) -> None:
        changes = differences(piece.manifest.fields, look.table.columns)
        if changes:
            raise altered(
                str(piece.manifest.transaction),
                self._table.target,
                changes,
                sum(file.rows for file in piece.manifest.files),
                "remove the newest file in the table's folder schema",
            )

    def _finish(self, stage: Path, names: Sequence[PieceName]) -> None:
        """Step 5: note the snapshots, then move the pieces to `done`."""
        for found in {one.snapshot: one for one in self._found.values()}.values():
            note_commit(stage, found)
        self._found.clear()
        failpoint("F04")
        for name in names:
            staged, done = stage / STAGED / str(name), stage / DONE / str(name)
            for kept in staged.glob(f"*{MOVED}"):
                kept.unlink(missing_ok=True)
            if staged.exists() and not done.exists():
                rename_new(staged, done)
        sync(stage / DONE, stage / STAGED)

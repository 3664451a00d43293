"""Phase 2: all pieces of a checkpoint become visible in one snapshot, with their proof (I4).

    1. for each piece       named by the proof: committed; or its manifest, or nothing: lost
       the others           it is this table, with the proof of the predecessor, and the branch
                            leads to what was committed before; without that nothing is moved
       the table's columns  hold what the files hold; otherwise stop, and say what to undo
    2. move the files       from the staging area into the table's folder, where nothing names them
    3. one commit           a snapshot that names them, and the property that proves them; it
                            requires that the proof, the fence, the branch and the columns are as
                            they were read
    4. read it back         OK is not believed
    5. remove the pieces    from the staging area

A commit that somebody was faster than is tried again from 1. One whose outcome is unknown is left
to the next call, which finds the proof or does all of it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    SetPropertiesUpdate,
)

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, another_target, predecessor_missing
from twophase.errors import StopJobError, TargetChangedError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging.aborted import restage
from twophase.sinks.common.staging.disk import digest, rename_new, sync
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import PieceName, file_name
from twophase.sinks.common.staging.staging_area import STAGED, remove
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.branch import is_missing, rolled_back, set_back
from twophase.sinks.iceberg.catalog import brief
from twophase.sinks.iceberg.driver_table import DATA, DriverTable
from twophase.sinks.iceberg.layout import differences
from twophase.sinks.iceberg.partitions import Partitions
from twophase.sinks.iceberg.proofs import (
    Proofs,
    encode_proof,
    proof_key,
)
from twophase.sinks.iceberg.records import Manifest, StagedFile, summary_of_piece

_TRIES = 10
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class _Piece:
    """One piece that is not committed.

    Attributes:
        name: its name.
        folder: where it is staged.
        manifest: its manifest.
    """

    name: PieceName
    folder: Path
    manifest: Manifest

    @property
    def snapshot(self) -> tuple[str, int, int]:
        """What the pieces of one snapshot have in common: lineage, checkpoint, partition spec."""
        return self.name.lineage, self.name.checkpoint, self.manifest.spec


class Committer:
    """Commits pieces.

    Args:
        table: the table they go to.
        subsumed: by lineage, the checkpoint up to which proofs may be folded.
    """

    def __init__(self, table: DriverTable, subsumed: Mapping[str, int]) -> None:
        self._table = table
        self._subsumed = subsumed
        self._made: set[PieceName] = set()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        failpoint("C12")
        reason = ""
        for _ in range(_TRIES):
            stage = self._table.area.stage()
            try:
                outcomes = self._try(requests, stage)
            except CommitFailedException as error:
                reason = brief(error)
                continue
            except OSError as error:
                reason = brief(error)
                break
            if outcomes is None:
                continue
            if any(isinstance(outcome, Lost) for outcome in outcomes) and not stage.exists():
                reason = f"{stage} is gone: the fence was raised"
                continue
            failpoint("C15")
            return outcomes
        return self._later(requests, reason)

    def _later(self, requests: Sequence[CommitRequest], reason: str) -> Sequence[CommitOutcome]:
        proofs = self._table.proofs(self._table.load())
        names = [_name(request.committable) for request in requests]
        return [self._proven(name, proofs) or RetryLater(reason) for name in names]

    def _try(
        self, requests: Sequence[CommitRequest], stage: Path
    ) -> Sequence[CommitOutcome] | None:
        """Do steps 1 to 3, or 4 and 5 if nothing is left to commit; None if it has to be called
        again.
        """
        loaded = self._table.load()  # first: an abort hides a piece, then writes the fence again
        proofs = self._table.proofs(loaded)
        found = [self._find(request.committable, proofs, stage) for request in requests]
        for request, piece in zip(requests, found, strict=True):
            if not isinstance(piece, AlreadyCommitted | Committed):
                self._check_target(request, loaded, proofs)
        outcomes = [
            (self._missing(piece) or piece) if isinstance(piece, _Piece) else piece
            for piece in found
        ]
        if whole := [piece for piece in outcomes if isinstance(piece, _Piece)]:
            one = whole[0].snapshot
            self._append([piece for piece in whole if piece.snapshot == one], loaded, proofs)
            return None
        failpoint("C14")
        for request, outcome in zip(requests, outcomes, strict=True):
            if not isinstance(outcome, Lost) and (stage / STAGED).exists():
                remove(stage / STAGED / str(_name(request.committable)))
        return [outcome for outcome in outcomes if not isinstance(outcome, _Piece)]

    def _find(
        self, committable: Committable, proofs: Proofs, stage: Path
    ) -> _Piece | AlreadyCommitted | Committed | Lost:
        """Step 1."""
        name = _name(committable)
        if (proven := self._proven(name, proofs)) is not None:
            return proven
        folder = stage / STAGED / str(name)
        data = _read_manifest(stage, name)
        mark = proofs.lineage(name.lineage).mark
        if data is None:
            if mark >= name.checkpoint:
                return AlreadyCommitted("high-water mark")
            return Lost(
                f"piece {name} is neither staged nor named by the table's properties, and the "
                f"high-water mark of its lineage is {mark}"
            )
        if hashlib.sha256(data).hexdigest() != committable.handle["manifest_sha256"]:
            return Lost(
                f"{folder / FILE} is not the manifest of the checkpoint: its SHA-256 differs"
            )
        try:
            manifest = Manifest.decode(data, str(folder / FILE))
        except DamagedRecordError as error:  # damaged before its digest was taken
            return Lost(f"{folder / FILE}: {error}")
        if mark >= name.checkpoint and is_moved(manifest, folder):
            return AlreadyCommitted("high-water mark")
        return _Piece(name, folder, manifest)

    def _proven(self, name: PieceName, proofs: Proofs) -> AlreadyCommitted | Committed | None:
        if not proofs.lineage(name.lineage).names(name):
            return None
        if name in self._made:
            return Committed()
        return AlreadyCommitted(f"property {proof_key(self._table.owner, name.lineage)}")

    def _check_target(self, request: CommitRequest, loaded: Table, proofs: Proofs) -> None:
        """Check that this is the table of a piece without proof, and has what came before."""
        committable, before = request.committable, request.predecessor
        if committable.target != self._table.target:
            raise another_target(committable, self._table.target)
        if before is not None and not proofs.lineage(before.lineage).has(before.checkpoint):
            raise predecessor_missing(request, self._table.target)
        branch = self._table.branch
        reason = rolled_back(loaded.metadata, proofs, branch)
        if not reason and is_missing(loaded.metadata, branch):
            reason = f"branch {branch} is gone: somebody has dropped it"
        if reason:
            raise TargetChangedError(
                f"{committable.transaction} is decided and cannot be committed to "
                f"{self._table.target}: {reason}.",
                remedy=f"{set_back(branch)}, then start the job again.",
            )

    def _missing(self, piece: _Piece) -> Lost | None:
        """Return the first file of a piece that is missing or truncated."""
        for file in piece.manifest.files:
            source, final = piece.folder / str(file.number), self._final(piece, file)
            size = _size(source)
            size = _size(final) if size is None else size
            if size is None:
                return Lost(f"{source} is gone, and {final.name} is not in {final.parent}")
            if size != file.size:
                return Lost(
                    f"{source} or {final.name} has {size} bytes, not the {file.size} that were "
                    "pre-committed"
                )
        return None

    def _append(self, pieces: Sequence[_Piece], loaded: Table, proofs: Proofs) -> None:
        """Steps 2 and 3."""
        for piece in pieces:
            self._check_layout(piece, loaded)
        self._move(pieces)
        made = private_api.append(
            loaded,
            [file for piece in pieces for file in self._data_files(piece, loaded)],
            pieces[0].manifest.spec,
            summary_of_piece(pieces[0].manifest.transaction),
            self._table.branch,
        )
        lineage = pieces[0].name.lineage
        proof = (
            proofs.lineage(lineage)
            .folded(self._subsumed.get(lineage, -1))
            .with_pieces(piece.name for piece in pieces)
            .made_by(made.snapshot, made.sequence)
        )
        properties = {proof_key(self._table.owner, lineage): encode_proof(proof)}
        requirements = [
            *made.requirements,
            *self._table.as_read(loaded, [lineage]),
            AssertCurrentSchemaId(current_schema_id=loaded.metadata.current_schema_id),
        ]
        updates = [*made.updates, SetPropertiesUpdate(updates=properties)]
        failpoint("D01")
        try:
            self._table.catalog.commit(loaded, requirements, updates)
        except CommitFailedException:
            made.discard()
            raise
        failpoint("D02")
        self._made.update(piece.name for piece in pieces)

    def _check_layout(self, piece: _Piece, loaded: Table) -> None:
        changes = differences(piece.manifest, loaded.metadata)
        if changes:
            rows = sum(file.rows for file in piece.manifest.files)
            raise StopJobError(
                f"{piece.manifest.transaction} is decided and cannot be committed to "
                f"{self._table.target}: the table was altered since it was written: "
                f"{'; '.join(changes)}. {rows} rows wait in the staging area.",
                remedy="undo the change (ALTER TABLE, or set the table's schema back), then start "
                "the job again: it commits them.",
            )

    def _move(self, pieces: Sequence[_Piece]) -> None:
        """Step 2."""
        for count, piece in enumerate(pieces):
            if count:
                failpoint("C13")
            for file in piece.manifest.files:
                self._move_file(piece, file)
        sync(self._table.data)

    def _move_file(self, piece: _Piece, file: StagedFile) -> None:
        source, final = piece.folder / str(file.number), self._final(piece, file)
        if not final.exists():
            with suppress(FileExistsError):  # another driver was faster
                rename_new(source, final)
                return
        if source.exists() or digest(final) != file.sha256:
            raise StopJobError(
                f"{final} is not the file that was pre-committed, and is not overwritten. "
                "Someone else created or changed it.",
                remedy="find out who; move that file away, then start the job again.",
            )

    def _final(self, piece: _Piece, file: StagedFile) -> Path:
        return final_path(self._table.data, piece.manifest, file)

    def _data_files(self, piece: _Piece, loaded: Table) -> Sequence[DataFile]:
        metadata = loaded.metadata
        partitions = Partitions(metadata.specs()[piece.manifest.spec], metadata.schema())
        folder = f"{metadata.location.rstrip('/')}/{DATA}"
        order = _sort_order_id(piece.manifest, metadata)
        return [
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{folder}/{self._final(piece, file).name}",
                file_format=FileFormat.PARQUET,
                partition=partitions.record(file.partition),
                record_count=file.rows,
                file_size_in_bytes=file.size,
                sort_order_id=order,
                spec_id=piece.manifest.spec,
                equality_ids=None,
                key_metadata=None,
                **_statistics(file),
            )
            for file in piece.manifest.files
        ]


def final_path(data: Path, manifest: Manifest, file: StagedFile) -> Path:
    """Return the path of a committed data file.

    Args:
        data: the table's folder of data files. All are in it, whatever their partition: the name of
            a partition's folder could be too long, which phase 1 would have to know.
        manifest: of its piece.
        file: the file.
    """
    return data / file_name(manifest.transaction, manifest.subtask, file.number, _SUFFIX)


def _sort_order_id(manifest: Manifest, metadata: TableMetadata) -> int | None:
    """Return the id of the sort order that files were written by; None if they were by none, or
    the table has it no more.
    """
    known = (order for order in metadata.sort_orders if order.model_dump_json() == manifest.order)
    return next((order.order_id for order in known), None)


def is_moved(manifest: Manifest, folder: Path) -> bool:
    """Return whether a commit has taken a file of a piece out of its folder."""
    return any(not (folder / str(file.number)).exists() for file in manifest.files)


def _name(committable: Committable) -> PieceName:
    return PieceName.of(committable.transaction, committable.subtask)


def _read_manifest(stage: Path, name: PieceName) -> bytes | None:
    """Return the manifest of a staged piece; another driver's abort may have hidden it."""
    manifest = stage / STAGED / str(name) / FILE
    is_hidden = True
    while is_hidden:
        with suppress(FileNotFoundError):
            return manifest.read_bytes()
        is_hidden = restage(stage, name)
    return manifest.read_bytes() if manifest.exists() else None  # staged again in between


def _size(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def _statistics(file: StagedFile) -> dict[str, Any]:
    """Return the statistics of a file as Iceberg's manifests have them."""
    found = {
        name: {int(key): value for key, value in getattr(file.statistics, name).items()}
        for name in (
            "column_sizes",
            "value_counts",
            "null_value_counts",
            "nan_value_counts",
            "lower_bounds",
            "upper_bounds",
        )
    }
    return {**found, "split_offsets": [*file.statistics.split_offsets]}

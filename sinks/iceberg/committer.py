"""Phase 2: see `twophase.sinks.common.lake.committer`. The commit is one swap of the table's
metadata: a snapshot that names the files, and the property that proves them. It requires that the
proof, the fence, the branch and the columns are as they were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import Predecessor
from twophase.errors import TargetChangedError
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.lake.committer import LakeCommitter, StagedPiece, altered
from twophase.sinks.common.staging.disk import sync
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import STAGED, remove
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.branch import is_missing, rolled_back, set_back
from twophase.sinks.iceberg.catalog import Change
from twophase.sinks.iceberg.driver_table import DATA, DriverTable, Look
from twophase.sinks.iceberg.layout import differences
from twophase.sinks.iceberg.partitions import Partitions
from twophase.sinks.iceberg.proofs import (
    encode_proof,
    proof_key,
)
from twophase.sinks.iceberg.records import Manifest, StagedFile, summary_of_piece

Piece = StagedPiece[Manifest]


class Committer(LakeCommitter[Look, Manifest]):
    """Commits pieces.

    Args:
        table: the table they go to.
        subsumed: by lineage, the checkpoint up to which proofs may be folded.
    """

    conflict = CommitFailedException

    def __init__(self, table: DriverTable, subsumed: Mapping[str, int]) -> None:
        super().__init__(table)
        self._table = table
        self._subsumed = subsumed

    def _proven(self, name: PieceName, look: Look) -> AlreadyCommitted | Committed | None:
        if not look.proofs.lineage(name.lineage).names(name):
            return None
        if name in self._made:
            return Committed()
        return AlreadyCommitted(f"property {proof_key(self._table.owner, name.lineage)}")

    def _settled(self, piece: Piece, look: Look) -> None:
        """See `LakeCommitter`: the property has all of it."""

    def _mark(self, lineage: str, look: Look) -> int:
        return look.proofs.lineage(lineage).mark

    def _has(self, checkpoint: Predecessor, look: Look) -> bool:
        return look.proofs.lineage(checkpoint.lineage).has(checkpoint.checkpoint)

    def _check_whole(self, committable: Committable, look: Look) -> None:
        loaded, proofs, branch = look.loaded, look.proofs, self._table.branch
        reason = rolled_back(loaded.metadata, proofs, branch)
        if not reason and is_missing(loaded.metadata, branch):
            reason = f"branch {branch} is gone: somebody has dropped it"
        if reason:
            raise TargetChangedError(
                f"{committable.transaction} is decided and cannot be committed to "
                f"{self._table.target}: {reason}.",
                remedy=f"{set_back(branch)}, then start the job again.",
            )

    def _together(self, piece: Piece) -> tuple[str, int, int]:
        """Lineage, checkpoint, partition spec."""
        return piece.name.lineage, piece.name.checkpoint, piece.manifest.spec

    def _append(self, pieces: Sequence[Piece], look: Look) -> None:
        """Steps 2 and 3."""
        loaded, proofs = look.loaded, look.proofs
        for piece in pieces:
            self._check_layout(piece, loaded)
        self._move(pieces)
        sync(self._table.data)
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
        change = Change(loaded, requirements, updates, made.discard, made.snapshot)
        self._table.catalog.commit(change)
        failpoint("D02")
        self._made.update(piece.name for piece in pieces)

    def _check_layout(self, piece: Piece, loaded: Table) -> None:
        changes = differences(piece.manifest, loaded.metadata)
        if changes:
            raise altered(
                str(piece.manifest.transaction),
                self._table.target,
                changes,
                sum(file.rows for file in piece.manifest.files),
                "ALTER TABLE, or set the table's schema back",
            )

    def _finish(self, stage: Path, names: Sequence[PieceName]) -> None:
        """Step 5."""
        if (stage / STAGED).exists():
            for name in names:
                remove(stage / STAGED / str(name))

    def _data_files(self, piece: Piece, loaded: Table) -> Sequence[DataFile]:
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


def _sort_order_id(manifest: Manifest, metadata: TableMetadata) -> int | None:
    """Return the id of the sort order that files were written by; None if they were by none, or
    the table has it no more.
    """
    known = (order for order in metadata.sort_orders if order.model_dump_json() == manifest.order)
    return next((order.order_id for order in known), None)


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

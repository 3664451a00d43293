"""Asks the snapshots of a branch whether it still leads to what was committed.

Proofs are properties of the table. They outlive what others do to a branch: a rollback, a
replacement, its removal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from twophase.sinks.iceberg.proofs import LineageProof, Proofs


def head_of(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the newest snapshot of a branch; None if there is none, or no such branch."""
    ref = metadata.refs.get(branch)
    if ref is None or ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        return None
    return metadata.snapshot_by_id(ref.snapshot_id)


def is_missing(metadata: TableMetadata, branch: str) -> bool:
    """Return whether there is no such branch; main is there before its first snapshot too."""
    return branch != MAIN_BRANCH and head_of(metadata, branch) is None


def missing_commit(metadata: TableMetadata, proofs: Proofs, branch: str) -> str:
    """Return what a branch lacks of what a sink has committed, as far as its snapshots tell.

    The newest commit of a lineage is in the branch if its snapshot is an ancestor of the branch's.
    Snapshots expire: if the ancestors end before one that is older than the commit, the branch
    leads past it.

    Returns:
        The newest snapshot of a lineage; empty if the branch has the commits, or leads past them.
    """
    head = head_of(metadata, branch)
    for lineage, proof in proofs.made().items():
        if not _leads_to(metadata, head, proof):
            return f"snapshot {proof.snapshot}, the newest of lineage {lineage}"
    return ""


def rolled_back(metadata: TableMetadata, proofs: Proofs, branch: str) -> str:
    """Return why a branch lacks what a sink has committed; empty if it has it."""
    lacks = missing_commit(metadata, proofs, branch)
    if lacks and is_missing(metadata, branch):
        return f"branch {branch} is gone, and it led to {lacks}: somebody has dropped it"
    if lacks:
        return (
            f"branch {branch} no longer leads to {lacks}: somebody has rolled it back or replaced "
            "it, or the job wrote to another branch"
        )
    return ""


def set_back(branch: str) -> str:
    """Return how somebody sets a branch back to what it had."""
    how = (
        "CALL system.set_current_snapshot"
        if branch == MAIN_BRANCH
        else f"ALTER TABLE ... CREATE OR REPLACE BRANCH `{branch}` AS OF VERSION ..."
    )
    return f"set branch {branch} back to a snapshot that has it ({how})"


def _leads_to(metadata: TableMetadata, head: Snapshot | None, proof: LineageProof) -> bool:
    if head is None:
        return False
    found: Snapshot | None = head
    made = metadata.snapshot_by_id(proof.snapshot)
    while found is not None:
        if found.snapshot_id == proof.snapshot:
            return True
        if proof.sequence:
            is_older = (found.sequence_number or 0) <= proof.sequence
        else:  # format version 1
            is_older = made is not None and found.timestamp_ms < made.timestamp_ms
        if is_older:
            return False
        before = found.parent_snapshot_id
        found = None if before is None else metadata.snapshot_by_id(before)
    return True

"""The branch that rows go to: main, or one that is audited before its rows are published.

A branch that is missing is created only with `create`: at main's newest snapshot, as Iceberg's own
writers do, so that main can be fast-forwarded to it. In a table without snapshots it begins with an
empty one, which main does not have.

Proofs are properties of the table. They outlive what others do to a branch, a rollback, a
replacement, its removal, so its snapshots are asked whether it still leads to what was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from twophase.errors import ConfigError, TargetChangedError
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.catalog import Change

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from twophase.sinks.iceberg.driver_table import DriverTable
    from twophase.sinks.iceberg.proofs import LineageProof, Proofs


def check_branch(loaded: Table, branch: str, *, must_exist: bool) -> None:
    """Check that a table has a branch, or that it can be created.

    Raises:
        ConfigError: it does not exist, and must; or its name is that of a tag.
    """
    metadata = loaded.metadata
    name = ".".join(loaded.name())
    ref = metadata.refs.get(branch)
    if ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG:
        raise ConfigError(
            f"{branch!r} is a tag of the table {name}, which no rows can be added to.",
            remedy="name a branch.",
        )
    if must_exist and is_missing(metadata, branch):
        raise ConfigError(
            f"The table {name} has no branch {branch!r}.",
            remedy=f"create it (ALTER TABLE {name} CREATE BRANCH `{branch}`), correct branch, or "
            "let the sink create it: `create=true`.",
        )


def create_branch(table: DriverTable) -> None:
    """Create the branch of a sink, unless it exists or is main.

    Raises:
        ConfigError: somebody has made a tag of that name meanwhile.
        TargetChangedError: the job has committed to the branch, it is gone, and main does not have
            these rows.
        TargetUnreachableError: the catalog does not take it.
    """
    if table.branch == MAIN_BRANCH:
        return
    table.catalog.commit_with_retries(
        lambda: _missing_branch(table),
        f"Branch {table.branch!r} of {table.target} could not be created",
    )


def _missing_branch(table: DriverTable) -> Change | None:
    loaded = table.load()
    check_branch(loaded, table.branch, must_exist=False)
    if not is_missing(loaded.metadata, table.branch):
        return None
    if lacks := missing_commit(loaded.metadata, table.proofs(loaded), MAIN_BRANCH):
        raise TargetChangedError(
            f"The table {'.'.join(loaded.name())} has no branch {table.branch!r} any more, and "
            f"it is not created again from main, which lacks {lacks}.",
            remedy=f"{set_back(table.branch)}, then start the job again.",
        )
    return _new_branch(table, loaded)


def _new_branch(table: DriverTable, loaded: Table) -> Change:
    main = head_of(loaded.metadata, MAIN_BRANCH)
    before = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=main.snapshot_id if main else None)
    required = [table.unchanged(), table.catalog.without_ref(table.branch), before]
    if main is not None:
        update = SetSnapshotRefUpdate(  # type: ignore[call-arg]  # its ages have defaults
            ref_name=table.branch, type="branch", snapshot_id=main.snapshot_id
        )
        return Change(loaded, required, [update])
    made = private_api.append(loaded, [], loaded.spec().spec_id, {}, table.branch)
    return Change(loaded, required, made.updates, made.discard, made.snapshot)


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

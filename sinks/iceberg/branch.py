"""The branch that rows go to: main, or one that is audited before its rows are published.

A branch that is missing is created only with `create`: at main's newest snapshot, as Iceberg's own
writers do, so that main can be fast-forwarded to it. In a table without snapshots it begins with an
empty one, which main does not have.
"""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
)

from twophase.errors import ConfigError, TargetChangedError, TargetUnreachableError
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.ancestry import head_of, is_missing, missing_commit, set_back
from twophase.sinks.iceberg.catalog import AssertRef, brief
from twophase.sinks.iceberg.driver_table import DriverTable

_TRIES = 10


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
    failure: Exception | None = None
    for _ in range(_TRIES):
        loaded = table.load()
        check_branch(loaded, table.branch, must_exist=False)
        if not is_missing(loaded.metadata, table.branch):
            return
        if lacks := missing_commit(loaded.metadata, table.proofs(loaded), MAIN_BRANCH):
            raise TargetChangedError(
                f"The table {'.'.join(loaded.name())} has no branch {table.branch!r} any more, and "
                f"it is not created again from main, which lacks {lacks}.",
                remedy=f"{set_back(table.branch)}, then start the job again.",
            )
        try:
            _create(table, loaded)
        except (CommitFailedException, OSError) as error:
            failure = error
    raise TargetUnreachableError(
        f"Branch {table.branch!r} of {table.target} could not be created in {_TRIES} tries: "
        f"{brief(failure) if failure else ''}.",
        remedy="check that the catalog and the table's folder can be written, then start the job "
        "again.",
    )


def _create(table: DriverTable, loaded: Table) -> None:
    main = head_of(loaded.metadata, MAIN_BRANCH)
    before = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=main.snapshot_id if main else None)
    required = [table.unchanged(), AssertRef(ref=table.branch, is_branch=False), before]
    if main is not None:
        update = SetSnapshotRefUpdate(  # type: ignore[call-arg]  # its ages have defaults
            ref_name=table.branch, type="branch", snapshot_id=main.snapshot_id
        )
        table.catalog.commit(loaded, required, [update])
        return
    made = private_api.append(loaded, [], loaded.spec().spec_id, {}, table.branch)
    try:
        table.catalog.commit(loaded, required, made.updates)
    except CommitFailedException:
        made.discard()
        raise

"""Phase 1: data files that no commit names.

    1. intent        the transaction of the files to come, and the table's version before them
    2. fence         closed: nothing is written
    3. data files    by Delta's own writer: statistics, constraints, generated columns, column
                     mapping as the table needs files that it does not list are deleted: of
                     superseded task attempts, and without rows
    4. manifest      the list of files; from here on the piece is pre-committed
    5. fence         raised in the meantime: the piece is removed again (fence.py)

A crash after 1 leaves a piece that recovery finds in doubt.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from twophase.contract.committable import Committable
from twophase.errors import (
    DeclinedError,
    FencedError,
    PreflightError,
    RejectedRowsError,
    StopJobError,
    fingerprint_of,
)
from twophase.ids import TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import as_null_remedy
from twophase.sinks.delta.ddl import add_columns
from twophase.sinks.delta.features import refusals
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.jvm import Jvm, messages
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.names import PieceName
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.records import Intent, Manifest, data_file
from twophase.sinks.delta.rows import AS_NULL, REFUSED, check_rows, reject_bad_partition_values
from twophase.sinks.delta.table import DeltaTable
from twophase.sinks.delta.transaction import Transaction, Transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST_TASK = "-part-00000-"
_SPARK_SHOWN = 600
_SQLSTATE = re.compile(r" ?SQLSTATE: \w{5}$")
"""Added by Spark to each message."""
_OURS = f"[USER_RAISED_EXCEPTION] {REFUSED} "
# The start of a message: its later part may quote a row.
_REJECTED = (
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] ",
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] ",
    _OURS,
)

_REMEDY = "correct or filter these rows before the sink, or change the table."


class Staging:
    """Writes the rows of one checkpoint.

    Args:
        table: the table of the job's sink.
    """

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._pieces: Pieces = table.pieces
        self._fence = Fence(table)

    def pre_commit(self, batch: DataFrame, transaction: TransactionId) -> list[Committable]:
        """See `OpenBatchSink.pre_commit`."""
        jvm = Jvm(batch.sparkSession)
        with jvm.active():
            storage = self._table.log.storage
            log = Log(jvm, storage.root)
            rows = self._fitted(batch, log)
            begun = Transactions(log).begin()
            self._table.check_unchanged(begun.snapshot)
            name, intent = PieceName.of(transaction), self._announce(begun.snapshot, transaction)
            self._check_open(name, log, transaction)
            failpoint("C04")
            manifest = self._write(rows, begun, intent)
            failpoint("C05")
            if not manifest.actions:
                self._pieces.forget(name)
                return []
            self._pieces.finish(manifest)
            self._check_open(name, log, transaction)
        return [manifest.committable(self._table.target)]

    def _announce(self, snapshot: Snapshot, transaction: TransactionId) -> Intent:
        """Step 1."""
        committed = snapshot.checksum_transactions.get(
            self._table.owner.app_id(transaction.lineage), -1
        )
        if committed >= transaction.checkpoint:
            raise StopJobError(
                f"{transaction} is to be written, but the table already has checkpoint "
                f"{committed} of its lineage.",
                remedy="restore the job's folder (checkpointLocation) as it was.",
            )
        intent = Intent(transaction, snapshot.table, snapshot.version, committed)
        self._pieces.begin(intent)
        return intent

    def _check_open(self, name: PieceName, log: Log, transaction: TransactionId) -> None:
        """Steps 2 and 5. Remove what a closed attempt has left so far: the scan may be over."""
        try:
            self._fence.check(log.snapshot(), transaction.attempt)
        except (FencedError, DeclinedError):
            self._pieces.delete_data(self._pieces.get(name), self._table.folder_depth())
            self._pieces.forget(name)
            raise

    def _write(self, rows: DataFrame, begun: Transaction, intent: Intent) -> Manifest:
        """Step 3."""
        prefix = self._pieces.data_prefix(intent.transaction)
        try:
            actions = begun.write_files(rows, prefix)
        except Exception as error:
            if rejection := _rejection(error):
                reason, remedy = rejection
                raise RejectedRowsError(
                    f"{intent.transaction}: {reason}.", remedy=remedy
                ) from error
            raise
        for action in actions:
            _check_name(action, prefix)
        manifest = Manifest(intent, begun.snapshot.layout, tuple(actions))
        if (
            self._table.speculation
            or _has_empty_file(manifest)
            or begun.jvm.has_failed_tasks(prefix)
        ):
            self._pieces.delete_unlisted(manifest, self._table.folder_depth())
        return manifest

    def _fitted(self, batch: DataFrame, log: Log) -> DataFrame:
        """Return the rows with the table's types; add missing columns in a commit of its own."""
        snapshot = log.snapshot()
        self._table.check_unchanged(snapshot)
        refused = refusals(snapshot.layout)
        found = check_rows(
            batch.schema, StructType.fromJson(json.loads(snapshot.schema)), snapshot.layout
        )
        new = [] if self._table.merge_schema else found.missing
        missing = [f"column '{column}' is new" for column in new]
        if refused or found.problems or missing:
            raise StopJobError(
                f"Sink {self._table.owner.sink!r}: the table was altered and the rows "
                f"no longer fit it: {'; '.join([*refused, *found.problems, *missing])}. "
                "Nothing was written.",
                remedy="undo the change, or change the rows, then start the job again.",
            )
        if found.missing:
            add_columns(log, found.missing)
        return reject_bad_partition_values(
            found.apply(batch),
            snapshot.layout.partition_columns,
            in_folder_names=snapshot.names_folders_by_value,
        )


def _has_empty_file(manifest: Manifest) -> bool:
    """Return whether Spark's first task wrote a file without rows, which Delta does not list."""
    return not manifest.layout.partition_columns and not any(
        _FIRST_TASK in action for action in manifest.actions
    )


def _check_name(action: str, prefix: str) -> None:
    """Check that a file can be found by its name, which abort and recovery rely on."""
    try:
        named = data_file(action).local_path.rpartition("/")[2].startswith(prefix)
    except ValueError as error:
        raise DeclinedError(
            f"The statistics of data files are needed for their row counts: {error}.",
            fingerprint=fingerprint_of(error),
        ) from error
    if not named:
        raise PreflightError(
            f"This version of Delta does not prefix the names of data files with {prefix!r}: "
            f"{action[:200]}.",
            remedy="use the version of delta-spark that this sink is tested with.",
        )


def _rejection(error: Exception) -> tuple[str, str] | None:
    """Return why a row was refused, and what to do; None if something else went wrong."""
    found = next((message for message in messages(error) if message.startswith(_REJECTED)), None)
    if found is None:
        return None
    parts = found.removeprefix(_OURS).split(f" {REFUSED} ", 2)
    if not found.startswith(_OURS) or len(parts) < 3:
        return shown(found, _SPARK_SHOWN), _REMEDY
    column, problem, end = parts
    value = _SQLSTATE.sub("", end)
    remedy = as_null_remedy(column, value) if problem == AS_NULL else _REMEDY
    return f"partition column {column!r}: {problem}: {shown(value)}", remedy

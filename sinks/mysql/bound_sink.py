"""The result of `open` in one value, for the driver and for the executors."""

from __future__ import annotations

from dataclasses import dataclass

from twophase.sinks.mysql.client.session_locks import SessionLocks
from twophase.sinks.mysql.identity import TableIdentity
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.options import Endpoint
from twophase.sinks.mysql.rows.loading import Loader
from twophase.sinks.mysql.target_table import TargetTable
from twophase.sinks.mysql.xid import Owner


@dataclass(frozen=True)
class BoundSink:
    """A job's sink, bound to its target.

    Attributes:
        endpoint: where the server is.
        owner: the job and sink that our branches belong to.
        metadata: the sink's own tables.
        session_locks: the locks by which our sessions are found.
        loader: loads rows into the target.
        local_infile: whether writers may use LOAD DATA LOCAL.
        target: the target's identity (I10).
        table: the table when the sink was opened.
        load_rows: rows in one statement, at most.
        load_bytes: approximate bytes in one statement.
        fence_timeout_s: how long to wait for sessions of older attempts to end.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
    """

    endpoint: Endpoint
    owner: Owner
    metadata: MetadataTables
    session_locks: SessionLocks
    loader: Loader
    local_infile: bool
    target: str
    table: TableIdentity
    load_rows: int
    load_bytes: int
    fence_timeout_s: float
    checkpoint_column: str | None = None

    @property
    def targets(self) -> TargetTable:
        """The record of the table that the proofs belong to."""
        return TargetTable(self.metadata.schema)

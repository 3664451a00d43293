"""What `open` found out, in one value: the driver works with it, and it travels to the executors inside the sink."""

from __future__ import annotations

from dataclasses import dataclass

from twophase.sinks.mysql.client.session_locks import SessionLocks
from twophase.sinks.mysql.identity import TableIdentity, TargetTable
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.options import Endpoint
from twophase.sinks.mysql.rows.loading import Loader
from twophase.sinks.mysql.xid import Owner


@dataclass(frozen=True)
class Binding:
    """A sink of a job, bound to its target.

    Attributes:
        endpoint: where the server is.
        owner: whose branches are ours.
        metadata: the sink's own tables.
        session_locks: how our sessions are found.
        loader: how rows get into the target.
        local_infile: whether writers may use LOAD DATA LOCAL.
        target: the target's identity (I10).
        table: the table when the sink was opened.
        load_rows: rows in one statement, at the most.
        load_bytes: bytes in one statement, roughly.
        fence_timeout_s: how long to wait for sessions of older attempts to end.
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

    @property
    def targets(self) -> TargetTable:
        """Which table the proofs are of."""
        return TargetTable(self.metadata.schema)

"""The MySQL sink: appends rows to a table exactly once, by XA transactions.

For MySQL 8 and MariaDB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twophase.errors import PreflightError, StopJobError
from twophase.ids import Attempt, Subtask, TransactionId, check_name
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import CommitOutcome
from twophase.protocol.sink import ArrowSink, CommitRequest, SinkContext, SinkHistory
from twophase.sinks.mysql.bound_sink import BoundSink
from twophase.sinks.mysql.checkpoint_column import MarkedRows, check_column
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.server import Server, read_server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import may_list_transactions
from twophase.sinks.mysql.client.session_locks import SessionLocks
from twophase.sinks.mysql.committer import Committer
from twophase.sinks.mysql.fence import Fence
from twophase.sinks.mysql.identity import TableIdentity, read_identity, why_another
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.options import Endpoint, MySqlOptions
from twophase.sinks.mysql.orphans import Orphans, list_branches, prepared
from twophase.sinks.mysql.preflight import (
    check_any_insert_right,
    check_server,
    check_table,
    find_table,
    may_load_local,
)
from twophase.sinks.mysql.rewind import Rewind
from twophase.sinks.mysql.rows.loading import InsertLoader, LoadDataLoader, Loader
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table
from twophase.sinks.mysql.writer import MySqlWriter
from twophase.sinks.mysql.xid import Owner

_log = logging.getLogger("twophase.sinks.mysql")
_STATEMENT_BYTES = 1_000_000
_WITHOUT_LOAD_DATA = "rows go by INSERT, which is slower than LOAD DATA LOCAL"
_WITHOUT_PROCESS = (
    "this account cannot see when a writer's session has let go of its branch. A commit that comes "
    "too early is noticed, and waits for a restart of the server. GRANT PROCESS ON *.* rules that "
    "out."
)


class MySqlSink(ArrowSink):
    """Appends to one table. Options: `twophase.sinks.mysql.options.MySqlOptions`.

    `open` makes driver-side objects only; none of them is pickled, the executors
    get the `BoundSink`.

    Args:
        options: `url` and `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = MySqlOptions.parse(options, "MySqlSink")
        self._bound_sink: BoundSink | None = None
        self._link: DriverLink | None = None
        self._table: TableIdentity | None = None
        self._may_miss_commits = False

    def __repr__(self) -> str:
        return f"MySqlSink(url={self._options.url!r}, table={self._options.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_link": None}

    def check_connection(self) -> None:
        """See `twophase.protocol.sink.ChecksConnection`."""
        options = self._options
        link = DriverLink(options.endpoint())
        try:
            with link.session() as session:
                server = read_server(session)
                check_server(server, options)
                may_load_local(server, options)
                check_any_insert_right(session, find_table(session, options))
                list_branches(session)  # fails if the account may not
        finally:
            link.close()

    def open(self, context: SinkContext) -> None:
        """See `Sink.open`."""
        self._open(context, partial(check_table, options=self._options, context=context))

    def open_for_repair(self, context: SinkContext) -> None:
        """See `twophase.protocol.sink.OpensForRepair`."""
        self._open(context, lambda session: (find_table(session, self._options), ()))

    def _open(
        self, context: SinkContext, find: Callable[[Session], tuple[Table, tuple[ColumnPlan, ...]]]
    ) -> None:
        check_name("job", context.job)
        check_name("sink", context.sink)
        endpoint = self._options.endpoint()
        self._link = DriverLink(endpoint)
        try:
            with self._link.session() as session:
                server = read_server(session)
                check_server(server, self._options, context)
                table, plans = find(session)
                self._bound_sink = self._bind(session, endpoint, context, server, table, plans)
            self._link.follow(self._bound_sink.endpoint)
        except BaseException:
            self._link.close()
            raise

    def target(self) -> str:
        """See `Sink.target`: server and table.

        MySQL has an id of its server. MariaDB's server_uid is made from the network card's address
        and changes when a container is recreated, so there the id of the metadata tables, which is
        stored with the data, is used instead.
        """
        return self._bound().target

    def history(self) -> SinkHistory:
        """See `Sink.history`."""
        bound = self._bound()
        job, sink = bound.owner.job, bound.owner.sink
        with self._linked().session() as session:
            fence = bound.metadata.read_fence(session, job, sink)
            committed = bound.metadata.committed(session, job, sink)
            known = bound.targets.read(session, job, sink)
            replaced = ""
            if known and committed:
                # The current table: a job that restarts its query opens its sinks only once.
                now = read_identity(session, bound.table.schema, bound.table.name) or bound.table
                replaced = why_another(session, known, now)
                self._table = self._table if replaced else now
            return SinkHistory(fence.generation if fence else 0, committed, replaced)

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`: the rows of the ledger."""
        bound = self._bound()
        with self._linked().session() as session:
            keys = bound.metadata.ledger_of(
                session, bound.owner.job, bound.owner.sink, lineage, checkpoint
            )
        return [
            f"{generation}.{counter}/{task}.{attempt}"
            for generation, counter, task, attempt in keys
        ]

    def fence(self, attempt: Attempt) -> None:
        """See `Sink.fence`. From now on the proofs are of this table: its history is accepted."""
        bound = self._bound()
        Fence(bound, self._linked()).raise_to(attempt)
        self._may_miss_commits = True
        with self._linked().session() as session:
            owner, table = bound.owner, self._table or bound.table
            bound.targets.write(session, owner.job, owner.sink, table)

    def writer(self, transaction: TransactionId, subtask: Subtask) -> MySqlWriter:
        """See `ArrowSink.writer`."""
        return MySqlWriter(self._bound(), transaction, subtask)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `Sink.commit`."""
        committer = Committer(self._bound(), self._linked(), self._table or self._bound().table)
        try:
            return committer.commit(requests)
        finally:
            self._table = committer.table

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `Sink.abort`."""
        Orphans(self._bound(), self._linked()).abort(committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `Sink.in_doubt`. Behind a new fence, commits in flight are waited for: the history
        that is read next has them.
        """
        orphans = Orphans(self._bound(), self._linked())
        found = orphans.in_doubt()
        if found or not self._may_miss_commits:
            return found
        orphans.wait_for_commits()
        self._may_miss_commits = False
        return orphans.in_doubt()

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `Sink.subsume`: raise the mark first, then delete the rows it replaces (H50)."""
        bound = self._bound()
        mine = (bound.owner.job, bound.owner.sink, lineage)
        with self._linked().session() as session:
            proven = bound.metadata.highest_row(session, *mine, checkpoint)
            if proven is not None:
                bound.metadata.raise_high_water(session, *mine, proven)
                bound.metadata.collapse_ledger(session, *mine, proven)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        with self._linked().session() as session:
            Rewind(self._bound(), keep).check(session)

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`: rows and proofs go in one transaction."""
        with self._linked().session() as session:
            Rewind(self._bound(), keep).run(session, attempt)

    def close(self) -> None:
        """See `Sink.close`."""
        if self._link is not None:
            self._link.close()

    def _bind(
        self,
        session: Session,
        endpoint: Endpoint,
        context: SinkContext,
        server: Server,
        table: Table,
        plans: tuple[ColumnPlan, ...],
    ) -> BoundSink:
        options = self._options
        found = read_identity(session, table.schema, table.name)
        metadata = MetadataTables(options.metadata_schema)
        owner = Owner(metadata.create(session, endpoint.user), context.job, context.sink)
        _check_engines(session, metadata)
        column = options.checkpoint_column
        if column is not None:
            column = check_column(session, table, column)
            MarkedRows(metadata).create(session, endpoint.user)
        prepared(session, owner)  # fails if the account may not
        local = may_load_local(server, options)
        if not local:
            _log.warning("sink %s: %s", context.sink, _WITHOUT_LOAD_DATA)
        if server.is_mariadb and not may_list_transactions(session):
            _log.warning("sink %s: %s", context.sink, _WITHOUT_PROCESS)
        return BoundSink(
            endpoint=replace(endpoint, server_uuid=_server_uuid(server)),
            owner=owner,
            metadata=metadata,
            session_locks=SessionLocks(owner),
            loader=_loader(server, table, plans, local=local),
            local_infile=local,
            target=f"{_server_id(server, owner)}/{table.schema}.{table.name}",
            table=found or TableIdentity(table.schema, table.name, ""),
            load_rows=options.load_rows,
            load_bytes=options.load_bytes,
            fence_timeout_s=options.fence_timeout_s,
            checkpoint_column=column,
        )

    def _bound(self) -> BoundSink:
        if self._bound_sink is None:
            raise StopJobError(
                f"{self!r} is used before it is opened.",
                remedy="report this: it is a defect of twophase.",
            )
        return self._bound_sink

    def _linked(self) -> DriverLink:
        if self._link is None:
            raise StopJobError(
                f"{self!r} is not on the driver.", remedy="report this: it is a defect of twophase."
            )
        return self._link


def _check_engines(session: Session, metadata: MetadataTables) -> None:
    foreign = [engine for engine in metadata.engines(session) if engine.lower() != "innodb"]
    if foreign:
        raise PreflightError(
            f"The sink's own tables in {metadata.schema!r} are {foreign}.",
            remedy="ALTER TABLE each to ENGINE = InnoDB.",
        )


def _loader(server: Server, table: Table, plans: tuple[ColumnPlan, ...], *, local: bool) -> Loader:
    if local:
        return LoadDataLoader(table.sql, plans)
    return InsertLoader(
        table.sql, plans, min(_STATEMENT_BYTES, server.number("max_allowed_packet", 1024) // 2)
    )


def _server_id(server: Server, owner: Owner) -> str:
    uuid = _server_uuid(server)
    return f"mysql:{uuid}" if uuid else f"mariadb:{owner.namespace}"


def _server_uuid(server: Server) -> str | None:
    return None if server.is_mariadb else server.variables.get("server_uuid") or None

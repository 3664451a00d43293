"""The MySQL sink: appends rows to a table exactly once, by XA transactions.

For MySQL 8 and MariaDB.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import PreflightError
from twophase.ids import check_name
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.server import read_server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import may_list_transactions
from twophase.sinks.mysql.identity import TableIdentity, read_identity
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.options import Endpoint, MySqlOptions
from twophase.sinks.mysql.orphans import list_branches, prepared
from twophase.sinks.mysql.planning import Planner, TablePlan
from twophase.sinks.mysql.preflight import (
    check_any_rights,
    check_server,
    find_table,
    may_load_local,
)
from twophase.sinks.mysql.rewind_obstacles import RewoundTable
from twophase.sinks.mysql.writer import MySqlWriters, target_of
from twophase.sinks.mysql.xid import Owner

_log = logging.getLogger("twophase.sinks.mysql")
_WITHOUT_LOAD_DATA = "rows go by INSERT, which is slower than LOAD DATA LOCAL"
_WITHOUT_PROCESS = (
    "this account cannot see when a writer's session has released its branch. A commit that comes "
    "too early is detected, and waits for a restart of the server. GRANT PROCESS ON *.* prevents "
    "that."
)
_WITHOUT_REWIND = "sink %s: a restore could not take rows back, because %s. Before one: %s"


class MySqlSink(ArrowSink):
    """Appends to one table. Options: `twophase.sinks.mysql.options.MySqlOptions`.

    Args:
        options: `url` and `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = MySqlOptions.parse(options, "MySqlSink")

    def __repr__(self) -> str:
        return f"MySqlSink(url={self._options.url!r}, table={self._options.table!r})"

    def check_connection(self) -> None:
        """See `Sink.check_connection`."""
        options = self._options
        link = DriverLink(options.endpoint())
        try:
            with link.session() as session:
                server = read_server(session)
                check_server(server, options)
                may_load_local(server, options)
                check_any_rights(session, find_table(session, options))
                list_branches(session)  # fails if the account may not
        finally:
            link.close()

    def open(self, context: SinkContext) -> OpenMySqlSink:
        """See `Sink.open`."""
        check_name("job", context.job)
        check_name("sink", context.sink)
        endpoint = self._options.endpoint()
        link = DriverLink(endpoint)
        try:
            with link.session() as session:
                server = read_server(session)
                check_server(server, self._options, context)
                planner = Planner(self._options, context, server)
                plan = planner.plan(session)
                table = plan.table
                found = read_identity(session, table.schema, table.name)
                writers = self._writers(session, endpoint, planner, plan)
            link.follow(writers.endpoint)
        except BaseException:
            link.close()
            raise
        identity = found or TableIdentity(table.schema, table.name, "")
        return OpenMySqlSink(link, writers, planner, identity)

    def _writers(
        self,
        session: Session,
        endpoint: Endpoint,
        planner: Planner,
        plan: TablePlan,
    ) -> MySqlWriters:
        """Find the metadata tables, or create them for rows to come; return what the executors
        need.
        """
        options, context, server = planner.options, planner.context, planner.server
        marked = plan.checkpoint_column is not None
        metadata = MetadataTables(options.metadata_schema, marked=marked)
        creates = context.schema is not None
        namespace = metadata.find(session, create=creates)
        owner = Owner(namespace, context.job, context.sink)
        _check_engines(session, metadata)
        table, column = plan.table, plan.checkpoint_column
        if column is not None:
            for found in RewoundTable(table.schema, table.name, column).obstacles(session):
                _log.warning(_WITHOUT_REWIND, context.sink, found.why, found.remedy)
        prepared(session, owner)  # fails if the account may not
        local = may_load_local(server, options)
        if not local:
            _log.warning("sink %s: %s", context.sink, _WITHOUT_LOAD_DATA)
        if server.is_mariadb and not may_list_transactions(session):
            _log.warning("sink %s: %s", context.sink, _WITHOUT_PROCESS)
        return MySqlWriters(
            endpoint=replace(endpoint, opened=True),
            owner=owner,
            metadata=metadata,
            target=target_of(server, owner, table),
            plan=plan,
            local_infile=local,
            load_rows=options.load_rows,
            load_bytes=options.load_bytes,
        )


def _check_engines(session: Session, metadata: MetadataTables) -> None:
    foreign = [engine for engine in metadata.engines(session) if engine.lower() != "innodb"]
    if foreign:
        raise PreflightError(
            f"The metadata tables in {metadata.schema!r} are {foreign}.",
            remedy="ALTER TABLE each to ENGINE = InnoDB.",
        )

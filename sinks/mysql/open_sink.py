"""The MySQL sink while it is open, on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, OpenArrowSink, SinkHistory
from twophase.errors import StopJobError, TargetChangedError, TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.mysql.altered_table import left_behind, why_to_wait
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.server import read_server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_settings import read_server_uuid
from twophase.sinks.mysql.committer import Committer
from twophase.sinks.mysql.fence import Fence
from twophase.sinks.mysql.identity import TableIdentity, read_identity, why_another
from twophase.sinks.mysql.orphans import Orphans, xid_of
from twophase.sinks.mysql.planning import Planner
from twophase.sinks.mysql.preflight import may_load_local
from twophase.sinks.mysql.rewind import Rewind
from twophase.sinks.mysql.target_table import TargetTable
from twophase.sinks.mysql.writer import MySqlWriters, target_of
from twophase.sinks.mysql.xid import Xid


class OpenMySqlSink(OpenArrowSink):
    """A `MySqlSink` that is open.

    Args:
        link: the driver's session.
        writers: what the executors get.
        planner: plans again how rows fill the table.
        table: the table when the sink was opened.
    """

    def __init__(
        self,
        link: DriverLink,
        writers: MySqlWriters,
        planner: Planner,
        table: TableIdentity,
    ) -> None:
        self._link = link
        self._writers = writers
        self._planner = planner
        self._owner = writers.owner
        self._metadata = writers.metadata
        self._opened_table = table
        self._table = table
        self._fence_timeout_s = planner.options.fence_timeout_s
        self._may_miss_commits = False
        self._is_half_rewound = False
        self._left_behind: frozenset[Xid] = frozenset()
        self._has_tables = planner.context.schema is not None

    def target(self) -> str:
        """See `OpenSink.target`: server and table.

        MySQL has an id of its server. MariaDB's server_uid is made from the network card's address
        and changes when a container is recreated, so there the id of the metadata tables, which is
        stored with the data, is used instead.
        """
        return self._writers.target

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        if not self._owner.namespace:
            return SinkHistory(0, {})
        job, sink = self._owner.job, self._owner.sink
        with self._link.session() as session:
            fence = self._metadata.read_fence(session, job, sink)
            committed = self._metadata.committed(session, job, sink)
            known = self._targets.read(session, job, sink)
            replaced, now = "", self._opened_table
            if known and committed:
                # The current table: a job that restarts its query opens its sinks only once.
                now = read_identity(session, now.schema, now.name) or now
                replaced = why_another(session, known, now, self._targets.accept_sql(job, sink))
                self._table = self._table if replaced else now
            if known and known.created != now.created:
                self._left_behind |= left_behind(session, self._owner)
            generation = fence.generation if fence else 0
            half_rewound = self._metadata.half_rewound(session, job, sink)
            return SinkHistory(generation, committed, replaced, bool(half_rewound))

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`: those who have recorded this table as theirs."""
        if not self._owner.namespace:
            return {}
        job, sink = self._owner.job, self._owner.sink
        with self._link.session() as session:
            return {
                other: self._metadata.committed(session, *other)
                for other in self._targets.others(session, job, sink, self._opened_table)
            }

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`: the rows of the ledger."""
        if not self._owner.namespace:
            return ()
        job, sink = self._owner.job, self._owner.sink
        with self._link.session() as session:
            keys = self._metadata.ledger_of(session, job, sink, lineage, checkpoint)
        return [
            f"{generation}.{counter}/{task}.{attempt}"
            for generation, counter, task, attempt in keys
        ]

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`. From now on the proofs are of this table, and rows go to the server
        that has the fence. They are planned by what the table and the server are now: a writer may
        have found them changed.
        """
        self._create_tables()
        marked = self._writers.plan.checkpoint_column is not None
        fence = Fence(self._link, self._owner, self._metadata, self._fence_timeout_s, marked=marked)
        fence.raise_to(attempt)
        self._may_miss_commits = True
        job, sink = self._owner.job, self._owner.sink
        with self._link.session() as session:
            self._check_metadata(session)
            self._targets.write(session, job, sink, self._table)
            self._follow(read_server_uuid(session))
            self._is_half_rewound = bool(self._metadata.half_rewound(session, job, sink))
            server = read_server(session)
            self._planner = replace(self._planner, server=server)
            plan = self._planner.plan_again(session, self._writers.plan)
        local = may_load_local(server, self._planner.options)
        self._writers = replace(self._writers, plan=plan, local_infile=local)

    def _create_tables(self) -> None:
        """Create the metadata tables, if the sink was opened without rows to come."""
        if self._has_tables:
            return
        writers = self._writers
        with self._link.session() as session:
            namespace = self._metadata.find(session, create=True)
        if not self._owner.namespace:
            self._owner = replace(self._owner, namespace=namespace)
            target = target_of(self._planner.server, self._owner, writers.plan.table)
            self._writers = replace(writers, owner=self._owner, target=target)
        self._has_tables = True

    def writers(self) -> MySqlWriters:
        """See `OpenArrowSink.writers`."""
        return self._writers

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. In the middle of a rewind nothing is committed."""
        if self._is_half_rewound:
            raise StopJobError(
                f"A rewind of {self._opened_table} has not finished: a part of its rows is "
                "removed. Nothing is committed until it has.",
                remedy="repeat the restore (restore.path) that rewinds it, with "
                "`restore.sink_ahead=rewind`.",
            )
        self._create_tables()
        committer = Committer(
            self._link, self._owner, self._metadata, self.target(), self._table, self._left_behind
        )
        try:
            return committer.commit(requests)
        finally:
            self._table = committer.table

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        self._check_left_behind(committables)
        self._orphans.abort(committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`. Behind a new fence, commits in flight are waited for: the
        history that is read next has them.
        """
        found = self._orphans.in_doubt()
        if found or not self._may_miss_commits:
            return found
        self._orphans.wait_for_commits()
        self._may_miss_commits = False
        return self._orphans.in_doubt()

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`: raise the mark first, then delete the rows it replaces (H50)."""
        mine = (self._owner.job, self._owner.sink, lineage)
        with self._link.session() as session:
            proven = self._metadata.highest_row(session, *mine, checkpoint)
            if proven is not None:
                self._metadata.raise_high_water(session, *mine, proven)
                self._metadata.collapse_ledger(session, *mine, proven)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        if self._owner.namespace:
            with self._link.session() as session:
                self._rewind(keep).check(session)

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        with self._link.session() as session:
            self._rewind(keep).run(session, attempt)
        self._is_half_rewound = False

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `RewindsInSteps`."""
        with self._link.session() as session:
            self._rewind(keep).settle(session, attempt)

    def close(self) -> None:
        """See `OpenSink.close`."""
        self._link.close()

    def _check_left_behind(self, committables: Sequence[Committable]) -> None:
        """Check that no rollback ends the server, before the first."""
        left = self._left_behind.intersection(map(xid_of, committables))
        if left:
            with self._link.session() as session:
                reason = why_to_wait(session, self._owner, self._table, left)
            if reason:
                raise TargetUnreachableError(
                    f"{reason}.",
                    remedy="drop the VIRTUAL columns that the table has got since, then restart "
                    "the MySQL server.",
                )

    def _check_metadata(self, session: Session) -> None:
        """Check that the branches will be those of the metadata tables that are there now.

        Raises:
            TargetChangedError: nobody who reads these tables would find them.
        """
        if (found := self._metadata.read_id(session)) != self._owner.namespace:
            raise TargetChangedError(
                f"The metadata tables in {self._metadata.schema!r} are not those that the sink "
                f"was opened with (their id is {found or 'missing'}, it was "
                f"{self._owner.namespace}): this is another server, or they were created again. "
                "No row was written there.",
                remedy="start the job again: it looks at what the target has now.",
            )

    def _follow(self, server_uuid: str | None) -> None:
        """Write to the server that has the fence from now on: a failover may have led to it."""
        writers = self._writers
        endpoint = replace(writers.endpoint, server_uuid=server_uuid)
        target = writers.target
        if server_uuid is not None:
            target = f"mysql:{server_uuid}/{target.partition('/')[2]}"
        self._writers = replace(writers, endpoint=endpoint, target=target)

    @property
    def _targets(self) -> TargetTable:
        return TargetTable(self._metadata.schema)

    @property
    def _orphans(self) -> Orphans:
        return Orphans(
            self._link, self._owner, self._metadata, self.target(), self._fence_timeout_s
        )

    def _rewind(self, keep: Mapping[str, int]) -> Rewind:
        writers = self._writers
        return Rewind(
            self._owner,
            self._metadata,
            self._opened_table,
            writers.plan.checkpoint_column,
            keep,
            writers.load_rows,
        )

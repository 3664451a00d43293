"""A simulated MySQL or MariaDB server: sessions, and XA branches that outlive them. Behaves as
measured on real ones.

A session ends in steps (docs/decisions/0010): the server hands its branch over and drops the
session's user-level locks; then the engine lets go of the branch. Before the first step nobody else
may touch the branch (1397). Between the two XA COMMIT and XA ROLLBACK answer OK and do nothing, and
the branch is in limbo: not listed, its locks kept, until the server is started again. MySQL takes
the session off its process list before the first step, and KILL finds it until the second is done;
on MariaDB both end just before the second. From 8.0.29 on MySQL hands the branch
over at XA PREPARE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verification.simulation.branches import Branch, Phase, ServerSession
from verification.simulation.dialects import (
    DUPLICATE_XID,
    LOCK_WAIT_TIMEOUT,
    NOTA,
    RMFAIL,
    ROLLED_BACK,
    Dialect,
    ServerError,
    SessionEndedError,
)
from verification.simulation.engine import Engine, Key, Transaction
from verification.simulation.scheduler import Scheduler

_FIRST_SESSION = 8
_LIST_LASTS_S = 0.1
# a connection that broke in the middle of a commit broke in the middle of a long one
_WITHOUT_CLIENT = 50


@dataclass(frozen=True)
class SavedBranch:
    """A prepared branch as it is on the disk: its id, changes and locks."""

    xid: str
    changes: Sequence[tuple[Key, Any]]
    locks: Mapping[Key, bool]

    @classmethod
    def of(cls, branch: Branch) -> SavedBranch:
        return cls(branch.xid, list(branch.changes), dict(branch.locks))


@dataclass(frozen=True)
class Backup:
    """What a server has on its disk at one moment.

    Attributes:
        tables: the committed rows, by table and key.
        prepared: of each prepared branch what is to be known of it.
        committed: the ids of the branches that were committed.
    """

    tables: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    prepared: Sequence[SavedBranch] = ()
    committed: frozenset[str] = frozenset()


@dataclass
class Hooks:
    """Who watches a server. Each hears of a branch right after what happened to it,
    `committed` with its changes.
    """

    started: Callable[[Branch], None]
    prepared: Callable[[Branch], None]
    commits: Callable[[Branch], None]
    rolled_back: Callable[[Branch], None]
    lost_its_way: Callable[[Branch], None]


class Server:
    """One server.

    Args:
        name: its host name.
        dialect: which one it is.
        scheduler: the time, and the choices.
        hooks: hear of branches.
        lingering: how long a commit, and each of the two steps at the end of a session,
            may take, in seconds.
    """

    def __init__(
        self, name: str, dialect: Dialect, scheduler: Scheduler, hooks: Hooks, lingering: float
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.engine = Engine()
        self.up = True
        self.sessions: dict[int, ServerSession] = {}
        self.branches: dict[str, Branch] = {}
        self.committed: set[str] = set()
        self.user_locks: dict[str, ServerSession] = {}
        self._scheduler = scheduler
        self._hooks = hooks
        self._lingering = lingering
        self._listed_transactions: list[tuple[int, str]] = []
        self._list_was_read_s = -_LIST_LASTS_S
        self._next = _FIRST_SESSION

    # -- sessions ----------------------------------------------------------------------------------

    def connect(self) -> ServerSession:
        """Open a session."""
        self._next += 1
        session = self.sessions[self._next] = ServerSession(self._next)
        return session

    def transactions(self, session: ServerSession, query: str) -> list[tuple[int, str]]:
        """The sessions that the engine connects with a transaction, each with its statement: a copy
        (docs/decisions/0010).
        """
        now_s = self._scheduler.now_s
        if now_s - self._list_was_read_s > _LIST_LASTS_S:
            branches = [
                (branch.session.number, "")
                for branch in self.branches.values()
                if branch.session is not None
            ]
            self._listed_transactions = [
                *branches,
                *([(session.number, query)] if session.transaction else []),
            ]
        self._list_was_read_s = now_s
        return self._listed_transactions

    def leave(self, session: ServerSession, notice_s: float = 0.0) -> None:
        """The client is gone, or KILL: the session ends, in steps."""
        if self.sessions.get(session.number) is not session:
            return
        if notice_s:
            self._scheduler.at(self._scheduler.now_s + notice_s, lambda: self.leave(session))
            return
        if session.ended:
            return
        session.ended = True
        random, now_s = self._scheduler.random, self._scheduler.now_s
        handed_over_s = now_s + self._lingering * random.random()
        let_go_s = handed_over_s + self._lingering * random.random()
        if self.dialect.forgets_early:
            unlisted_s = (
                let_go_s - min(self.dialect.forgotten_s, let_go_s - handed_over_s) * random.random()
            )
        else:
            unlisted_s = now_s + (handed_over_s - now_s) * random.random()
        self._scheduler.at(unlisted_s, lambda: self._unlist(session))
        self._scheduler.at(handed_over_s, lambda: self._hand_over(session))
        self._scheduler.at(let_go_s, lambda: self._let_go(session))

    def _hand_over(self, session: ServerSession) -> None:
        if self.sessions.get(session.number) is not session:
            return
        for name in [name for name, holder in self.user_locks.items() if holder is session]:
            del self.user_locks[name]
        if session.branch is not None and session.branch.phase is Phase.PREPARED:
            session.branch.handed_over = True

    def _unlist(self, session: ServerSession) -> None:
        session.listed = False

    def _let_go(self, session: ServerSession) -> None:
        if self.sessions.get(session.number) is not session:
            return
        del self.sessions[session.number]
        branch = session.branch
        if branch is not None:
            branch.session = None
            if branch.phase in (Phase.ACTIVE, Phase.IDLE):
                self._forget(branch)
        if session.transaction is not None:
            self.engine.roll_back(session.transaction)

    def crash(self) -> None:
        """The server process dies. What was prepared stays so; branches in limbo come back."""
        self.up = False
        for session in self.sessions.values():
            session.ended, session.listed = True, False
            if session.transaction is not None:
                self.engine.roll_back(session.transaction)
        self.sessions.clear()
        self.user_locks.clear()
        self._next = _FIRST_SESSION
        for branch in list(self.branches.values()):
            branch.session = None
            if branch.phase in (Phase.ACTIVE, Phase.IDLE):
                self._forget(branch)
            else:
                branch.phase, branch.handed_over = Phase.PREPARED, True

    def back_up(self) -> Backup:
        """A copy of the server's disk."""
        prepared = [
            branch
            for branch in self.branches.values()
            if branch.phase not in (Phase.ACTIVE, Phase.IDLE)
        ]
        return Backup(
            {name: dict(rows) for name, rows in self.engine.tables.items()},
            [SavedBranch.of(branch) for branch in prepared],
            frozenset(self.committed),
        )

    def restore_backup(self, backup: Backup) -> None:
        """The server dies, and a copy takes the place of its disk."""
        self.crash()
        for branch in list(self.branches.values()):
            self._forget(branch)
        self.engine.tables = {name: dict(rows) for name, rows in backup.tables.items()}
        for saved in backup.prepared:
            self._bring_back(saved)
        self.committed = set(backup.committed)

    def bring_back(self, saved: SavedBranch) -> bool:
        """A branch that was gone is prepared again; whether its locks are to be had."""
        free = Transaction()
        if not self.up or not all(
            self.engine.is_free(free, row, exclusive=held) for row, held in saved.locks.items()
        ):
            return False
        self._bring_back(saved)
        return True

    def _bring_back(self, saved: SavedBranch) -> None:
        branch = self.branches[saved.xid] = Branch(saved.xid, None)
        branch.phase, branch.handed_over, branch.changes = Phase.PREPARED, True, list(saved.changes)
        for row, exclusive in saved.locks.items():
            self.engine.lock(branch, row, exclusive=exclusive)

    def is_in_use(self, table: str) -> bool:
        """Whether a transaction has written to a table: DROP TABLE waits for it."""
        transactions = [session.transaction for session in self.sessions.values()]
        return any(
            name == table
            for transaction in (*self.branches.values(), *transactions)
            if transaction is not None
            for (name, _), _ in transaction.changes
        )

    # -- rows --------------------------------------------------------------------------------------

    def wait_for_lock(self, session: ServerSession, row: Key, *, exclusive: bool) -> Transaction:
        """Wait until a row can be locked; return the transaction that the statement is in.

        Raises:
            ServerError: 1205, after the session's `innodb_lock_wait_timeout`.
        """
        transaction = self.transaction_of(session)
        deadline_s = self._scheduler.now_s + session.lock_wait_s
        free = self._scheduler.wait_until(
            lambda: session.ended or self.engine.is_free(transaction, row, exclusive=exclusive),
            deadline_s,
        )
        if session.ended:
            raise SessionEndedError
        if not free:
            raise ServerError(LOCK_WAIT_TIMEOUT)
        return transaction

    def transaction_of(self, session: ServerSession) -> Transaction:
        """What the next statement belongs to; a new one of its own if the session commits each."""
        if session.branch is not None:
            if session.branch.phase is not Phase.ACTIVE:
                raise ServerError(RMFAIL)
            return session.branch
        if session.transaction is None and not session.autocommit:
            session.transaction = Transaction()
        return session.transaction or Transaction()

    def end_branch(self, session: ServerSession) -> None:
        """A deadlock has rolled the session's branch back; only XA ROLLBACK helps (H8)."""
        if session.branch is not None:
            session.branch.rollback_only = True
            self.engine.roll_back(session.branch)

    # -- XA ----------------------------------------------------------------------------------------

    def xa_start(self, session: ServerSession, xid: str) -> None:
        if session.branch is not None or session.transaction is not None:
            raise ServerError(RMFAIL)
        if xid in self.branches:
            raise ServerError(DUPLICATE_XID)
        session.branch = self.branches[xid] = Branch(xid, session)
        self._hooks.started(session.branch)

    def xa_end(self, session: ServerSession, xid: str) -> None:
        branch = self._own(session, xid, Phase.ACTIVE)
        if branch.rollback_only:
            raise ServerError(RMFAIL)
        branch.phase = Phase.IDLE

    def xa_prepare(self, session: ServerSession, xid: str) -> None:
        branch = self._own(session, xid, Phase.IDLE)
        branch.phase = Phase.PREPARED
        if not self.dialect.keeps_shared_locks:
            self.engine.release_shared(branch)
        if self.dialect.hands_over_at_prepare:
            branch.session, branch.handed_over, session.branch = None, True, None
        self._hooks.prepared(branch)

    def xa_commit(self, session: ServerSession, xid: str) -> None:
        """The branch is off the list before its rows are visible: others may
        look in between (H49).
        """
        branch = self._anybody_s(xid)
        if branch.phase is Phase.LIMBO:
            return
        if not branch.changes:
            self._forget(branch)
            raise ServerError(ROLLED_BACK)
        branch.phase = Phase.COMMITTING
        duration_s = (
            self._lingering
            * self._scheduler.random.random()
            * (_WITHOUT_CLIENT if session.hung_up else 1)
        )
        self._scheduler.at(self._scheduler.now_s + duration_s, lambda: self._commit(branch))
        if session.hung_up:
            return
        self._scheduler.wait_until(
            lambda: branch.phase is not Phase.COMMITTING or session.ended, None
        )
        if session.ended:
            raise SessionEndedError

    def _commit(self, branch: Branch) -> None:
        if branch.phase is Phase.COMMITTING:
            self._hooks.commits(branch)
            del self.branches[branch.xid]
            branch.phase = Phase.GONE
            self.committed.add(branch.xid)
            self.engine.commit(branch)

    def xa_rollback(self, session: ServerSession, xid: str) -> None:
        branch = session.branch
        if branch is None or branch.xid != xid or branch.phase is Phase.PREPARED:
            branch = self._anybody_s(xid)
            if branch.phase is Phase.LIMBO:
                return
        elif branch.phase is Phase.ACTIVE and not branch.rollback_only:
            raise ServerError(RMFAIL)
        self._hooks.rolled_back(branch)
        self._forget(branch)

    def resolve(self, xid: str, *, commits: bool) -> bool:
        """Somebody resolves a prepared branch by hand, which any account may (H11); whether it
        was there to be had.
        """
        branch = self.branches.get(xid)
        if branch is None or branch.phase is not Phase.PREPARED or branch.session is not None:
            return False
        if commits:
            branch.phase = Phase.COMMITTING
            self._commit(branch)
        else:
            self._forget(branch)
        return True

    def recover(self) -> list[Branch]:
        """What XA RECOVER lists: also what a living session still holds."""
        return [branch for branch in self.branches.values() if branch.phase is Phase.PREPARED]

    def _own(self, session: ServerSession, xid: str, phase: Phase) -> Branch:
        branch = session.branch
        if branch is None or branch.phase is not phase:
            raise ServerError(RMFAIL)
        if branch.xid != xid:
            raise ServerError(NOTA)
        return branch

    def _anybody_s(self, xid: str) -> Branch:
        """A prepared branch that any session may resolve. Asked for too early, it loses its way."""
        branch = self.branches.get(xid)
        if branch is None or branch.phase is not Phase.PREPARED or not branch.handed_over:
            raise ServerError(NOTA)
        if branch.session is not None:
            branch.phase = Phase.LIMBO
            self._hooks.lost_its_way(branch)
        return branch

    def _forget(self, branch: Branch) -> None:
        branch.phase = Phase.GONE
        self.branches.pop(branch.xid, None)
        if branch.session is not None:
            branch.session.branch = None
        self.engine.roll_back(branch)

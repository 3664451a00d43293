"""Sessions as a simulated server sees them, and the XA branches that outlive them."""

from __future__ import annotations

from enum import Enum, auto

from verification.simulation.engine import Transaction


class Phase(Enum):
    """Where a branch stands."""

    ACTIVE = auto()
    IDLE = auto()
    PREPARED = auto()
    LIMBO = auto()
    COMMITTING = auto()
    GONE = auto()


class Branch(Transaction):
    """An XA transaction.

    Attributes:
        xid: as the statements spell it.
        phase: where it stands.
        session: the session it is attached to; None once the engine has let go of it.
        handed_over: whether others may ask for it.
        rollback_only: whether a deadlock has ended it.
    """

    def __init__(self, xid: str, session: ServerSession | None) -> None:
        super().__init__()
        self.xid = xid
        self.phase = Phase.ACTIVE
        self.session = session
        self.handed_over = False
        self.rollback_only = False


class ServerSession:
    """A session as the server sees it.

    Attributes:
        number: its id, which others may have had before the server's last start.
        ended: whether it takes no statement any more.
        listed: whether it is on the process list.
        hung_up: whether the client is gone, and the server has not noticed.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = False
        self.listed = True
        self.hung_up = False
        self.autocommit = True
        self.lock_wait_s = 50.0
        self.sql_mode = ""
        self.time_zone = ""
        self.transaction: Transaction | None = None
        self.branch: Branch | None = None

    @property
    def in_transaction(self) -> bool:
        return self.transaction is not None or (
            self.branch is not None and self.branch.phase is Phase.ACTIVE
        )

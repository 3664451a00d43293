"""Pieces and sinks: how a piece is named, where it can stand, and what a sink keeps of it."""

from __future__ import annotations

from typing import NamedTuple

Attempt = tuple[int, int]
"""Generation and counter."""

Xid = tuple[int, int, int, int, int]
"""Lineage, checkpoint number, generation, counter, branch: what names a piece in its sink."""

NOTHING: Attempt = (0, 0)


READY = "ready"
"""The task has not begun: it has neither read the fence nor written anything."""
CHECKED = "checked"
"""By mistake only: it has read the fence, and holds nothing yet that the driver could find."""
OPEN = "open"
"""The branch is open in a living session, which holds a share lock on the fence."""
HELD = "held"
"""Pre-committed (prepared), and the session lives."""
LEAVING = "leaving"
"""Pre-committed; the session has ended for the server, and the engine has not let go
of the branch yet.
"""
PREPARED = "prepared"
"""Pre-committed, and nobody holds it."""
RETURNED = "returned"
"""As PREPARED, after a restart of the server has brought it back out of LIMBO."""
LIMBO = "limbo"
"""The server has said OK to a commit or rollback and has done nothing: not listed any
more, still locked.
"""
COMMITTING = "committing"
"""A commit is in flight: not listed any more, locked, not visible yet."""
COMMITTED = "committed"
"""Visible, with its ledger row."""
SUBSUMED = "subsumed"
"""Visible, the ledger row collapsed into the high-water mark."""

ROLLED_BACK = "rolled back"
"""Somebody has rolled it back by hand. It is gone; only the invariants still see it."""

LISTED = frozenset({HELD, LEAVING, PREPARED, RETURNED})
"""What `XA RECOVER`, or `Sink.in_doubt`, shows."""
DURABLE = frozenset(
    {HELD, LEAVING, PREPARED, RETURNED, LIMBO, COMMITTING, COMMITTED, SUBSUMED, ROLLED_BACK}
)
"""Pre-committed or beyond: what a decided piece has to be."""
VISIBLE = frozenset({COMMITTED, SUBSUMED})


class Piece(NamedTuple):
    """The rows of one task attempt in one sink; a branch.

    Attributes:
        branch: the task; those from `World.branches` on are attempts that lost to
            another of the same task.
        owner: whose attempt it is. Only the invariants look at it; the protocol has the
            generation for that.
    """

    lineage: int
    number: int
    generation: int
    counter: int
    branch: int
    owner: int
    status: str

    @property
    def attempt(self) -> Attempt:
        return self[2:4]


class Sink(NamedTuple):
    """One sink's target.

    Attributes:
        fence: the attempt below which nobody may write.
        pieces: what is left of all branches, sorted.
        marks: for each lineage the checkpoint up to which all is committed, sorted.
        target: 1 on another server than the one that it began on.
        half_rewound: as in `SinkHistory`.
        closed: for the invariants: the attempt below which a driver believes that
            nothing can be left.
    """

    fence: Attempt = NOTHING
    pieces: tuple[Piece, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    closed: Attempt = NOTHING
    target: int = 0
    half_rewound: bool = False

"""The sinks: tasks that pre-commit, sessions that end, and what the servers answer.

`twophase.testing.memory` and `twophase.sinks.mysql`: writer, committer, orphans,
fence. A branch goes

    READY -> OPEN -> HELD -> LEAVING -> PREPARED -> COMMITTING -> COMMITTED -> SUBSUMED
                              (LIMBO: the server said OK too early; a restart of the server
                                  brings the branch back)

and READY -> PREPARED -> COMMITTED -> SUBSUMED where the server has no sessions. A branch that is
rolled back is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.explore import Transition
from verification.model.pieces import (
    CHECKED,
    COMMITTED,
    COMMITTING,
    HELD,
    LEAVING,
    LIMBO,
    LISTED,
    OPEN,
    PREPARED,
    READY,
    RETURNED,
    ROLLED_BACK,
    SUBSUMED,
    Attempt,
    Piece,
    Sink,
    Xid,
)
from verification.model.state import State
from verification.model.steps import with_sink
from verification.model.world import Mistake, Server, World

LOSES, PROVEN, WAITS = "loses", "proven", "waits"
_ABSENT = frozenset({READY, ROLLED_BACK})


def xid_of(world: World, piece: Piece | Xid) -> tuple[int, ...]:
    """What names a piece in its sink."""
    if world.mistake is Mistake.XID_WITHOUT_GENERATION:
        return (*piece[:2], 0, *piece[3:5])
    return piece[:5]


def find(world: World, sink: Sink, xid: Xid) -> Piece | None:
    """The piece of that name; None if there is none or it is gone."""
    name = xid_of(world, xid)
    return next(
        (
            piece
            for piece in sink.pieces
            if xid_of(world, piece) == name and piece.status not in _ABSENT
        ),
        None,
    )


def become(sink: Sink, piece: Piece, status: str) -> Sink:
    """The sink in which a piece has another status."""
    changed = piece._replace(status=status)
    return sink._replace(
        pieces=tuple(changed if found is piece else found for found in sink.pieces)
    )


def without(sink: Sink, piece: Piece) -> Sink:
    """The sink in which a piece is gone."""
    return sink._replace(pieces=tuple(found for found in sink.pieces if found is not piece))


def mark_of(world: World, sink: Sink, lineage: int) -> int:
    """The high-water mark; -1 if there is none."""
    if world.mistake is Mistake.MARK_ACROSS_LINEAGES:
        return max((mark for _, mark in sink.marks), default=-1)
    return next((mark for known, mark in sink.marks if known == lineage), -1)


# -- tasks and sessions ----------------------------------------------------------------------------


def tasks(world: World, state: State) -> Iterator[Transition[State]]:
    """What tasks and servers do by themselves."""
    for place, (server, sink) in enumerate(zip(world.servers, state.sinks, strict=True)):
        for piece in sink.pieces:
            for verb, changed in _next_of(world, server, sink, piece):
                yield Transition(
                    (verb, "sink", place, *piece[:5]), with_sink(state, place, changed)
                )


def _next_of(world: World, server: Server, sink: Sink, piece: Piece) -> Iterator[tuple[str, Sink]]:
    if piece.status == READY:
        yield from _begin(world, server, sink, piece)
    elif piece.status == CHECKED:
        yield "writes", become(sink, piece, OPEN if server.has_sessions else PREPARED)
    elif piece.status == OPEN:
        yield "prepares", become(sink, piece, HELD)
    elif piece.status == HELD:
        yield "ends its session", become(sink, piece, _let_go(server))
    elif piece.status == LEAVING:
        yield "is let go", become(sink, piece, PREPARED)
    elif piece.status == COMMITTING:
        yield "becomes visible", become(sink, piece, COMMITTED)


def _begin(world: World, server: Server, sink: Sink, piece: Piece) -> Iterator[tuple[str, Sink]]:
    if not admits(sink.fence, piece.attempt) or find(world, sink, piece[:5]) is not None:
        yield "is refused", without(sink, piece)
    elif world.mistake is Mistake.FENCE_OUTSIDE_BRANCH:
        yield "reads the fence", become(sink, piece, CHECKED)
    elif server.has_sessions:
        yield "reads the fence and writes", become(sink, piece, OPEN)
    else:
        yield "prepares", become(sink, piece, PREPARED)


def admits(fence: Attempt, attempt: Attempt) -> bool:
    """Whether a task of an attempt may write."""
    return fence[0] == attempt[0] and fence <= attempt


def _let_go(server: Server) -> str:
    return PREPARED if server.commits_held else LEAVING


# -- what a driver asks of a sink ------------------------------------------------------------------


def in_doubt(world: World, sink: Sink, below: Attempt, kept: frozenset[Xid]) -> tuple[Xid, ...]:
    """The orphans that a scan finds."""
    return tuple(
        piece[:5]
        for piece in sink.pieces
        if piece.status in LISTED and piece.attempt < below and piece[:5] not in kept
    )


def try_commit(world: World, server: Server, sink: Sink, xid: Xid) -> tuple[str, Sink]:
    """One try at a decided piece: what the driver learns, and what becomes of the sink.

    The product's composite of XA COMMIT, the locking look at the ledger row, the high-water mark
    and XA RECOVER is one step here: nothing can happen between its parts that changes the answer,
    because a row goes only after the mark that stands for it is there.
    """
    piece = find(world, sink, xid)
    status = piece.status if piece else ""
    if world.mistake is Mistake.MARK_ACROSS_LINEAGES and xid[1] <= mark_of(world, sink, xid[0]):
        return PROVEN, sink
    if piece is not None and status in (PREPARED, RETURNED):
        return WAITS, become(sink, piece, COMMITTING if server.has_sessions else COMMITTED)
    if piece is not None and status == HELD:
        return _try_held(world, server, sink, piece)
    if piece is not None and status == LEAVING and not server.shows_leaving:
        # MariaDB drops the session from its list a moment too early: "OK", and nothing is
        # done (decision 0010).
        return _believed(world), become(sink, piece, LIMBO)
    if piece is not None and status == LEAVING and world.mistake is Mistake.OK_BELIEVED:
        return PROVEN, become(sink, piece, LIMBO)
    if status == COMMITTED:
        return PROVEN, sink
    if status in (LIMBO, COMMITTING, LEAVING):
        return _look_at_locked(world, status), sink
    return (PROVEN if xid[1] <= mark_of(world, sink, xid[0]) else _lost(world)), sink


def _try_held(world: World, server: Server, sink: Sink, piece: Piece) -> tuple[str, Sink]:
    """The session lives: it is ended, and the branch left for the next try."""
    if world.mistake is Mistake.NOTA_MEANS_DONE and not server.commits_held:
        return PROVEN, sink
    if world.mistake is Mistake.LEDGER_OUTSIDE_BRANCH:
        return PROVEN, sink
    return WAITS, become(sink, piece, _let_go(server))


def _look_at_locked(world: World, status: str) -> str:
    if world.mistake is Mistake.NOTA_MEANS_DONE:
        return PROVEN
    if world.mistake is Mistake.PLAIN_LEDGER_READ and status != LEAVING:
        return LOSES
    return WAITS


def _believed(world: World) -> str:
    return PROVEN if world.mistake is Mistake.OK_BELIEVED else WAITS


def _lost(world: World) -> str:
    return PROVEN if world.mistake in (Mistake.NOTA_MEANS_DONE, Mistake.LOST_SAID_DONE) else LOSES


def try_abort(world: World, server: Server, sink: Sink, xid: Xid) -> tuple[str, Sink]:
    """One try at an orphan: LOSES means that it is committed, PROVEN that it is gone."""
    piece = find(world, sink, xid)
    if piece is None or piece.status in (OPEN, CHECKED):
        return PROVEN, sink
    if piece.status in (PREPARED, RETURNED):
        return PROVEN, without(sink, piece)
    if piece.status == HELD:
        return WAITS, become(sink, piece, _let_go(server))
    if piece.status == LEAVING and not server.shows_leaving:
        return WAITS, become(sink, piece, LIMBO)
    return (LOSES if piece.status in (COMMITTED, SUBSUMED) else WAITS), sink


# -- the fence -------------------------------------------------------------------------------------


def end_sessions(server: Server, sink: Sink) -> Sink:
    """All sessions of writers are ended, whosever they are: what was open is gone, what
    was prepared stays.
    """
    return sink._replace(
        pieces=tuple(
            piece._replace(status=_let_go(server)) if piece.status == HELD else piece
            for piece in sink.pieces
            if piece.status != OPEN
        )
    )


def is_blocked(server: Server, sink: Sink) -> bool:
    """Whether somebody's share lock keeps the fence from being raised."""
    locking = (
        {OPEN, HELD, LEAVING, PREPARED, RETURNED, LIMBO, COMMITTING}
        if server.keeps_share_lock
        else {OPEN}
    )
    return any(piece.status in locking for piece in sink.pieces)


def raise_fence(sink: Sink, attempt: Attempt) -> Sink:
    """Closed tasks that have not begun would be refused: they are left out from here on,
    whenever they would begin.
    """
    fence = max(sink.fence, attempt)
    pieces = tuple(
        piece for piece in sink.pieces if piece.status != READY or admits(fence, piece.attempt)
    )
    return sink._replace(fence=fence, pieces=pieces)

"""What a sink takes back for a rewind, in the simulated servers.

The statements of `sinks/mysql/rewind.py` need a column that names each row's checkpoint; here the
oracle tells which rows are whose. As in a target without transactions, a piece's rows are moved
aside after the other's, then all proofs go: the driver may die in between. Until then the sink's
own table says, as the sink writes it, which checkpoints have lost rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pymysql

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from verification.simulation.decisions import Piece

if TYPE_CHECKING:
    from verification.simulation.oracle import Oracle
    from verification.simulation.server import Server
    from verification.simulation.world import World

_UNREACHABLE = 2003


@dataclass(frozen=True)
class Rewind:
    """The rewind of one sink.

    Args:
        world: where.
        sink: what stands for the sink in an xid.
        owner: the job's name and the sink's.
        keep: the last checkpoint of each lineage that stays.
        attempt: of the fence.
    """

    world: World
    sink: str
    owner: tuple[str, str]
    keep: Mapping[str, int]
    attempt: tuple[int, int]

    def check(self) -> None:
        """Check that no checkpoint is kept of which another rewind has removed rows.

        Raises:
            RestoreRefusedError: one would be.
        """
        for (*_, lineage), (checkpoint,) in self._marks.items():
            if checkpoint <= self.keep.get(lineage, -1):
                raise RestoreRefusedError(
                    f"Sink {self.owner[1]!r}: rows of checkpoint {checkpoint} are gone, in a "
                    "rewind that died.",
                    remedy="finish it: start with the same restore.path and "
                    "`restore.sink_ahead=rewind` as that one.",
                )

    def rewind(self) -> None:
        """Remove the rows, then the proofs, of every checkpoint after those that are kept.

        Raises:
            FencedError: the fence is higher.
            pymysql.Error: the server is down.
        """
        self._reach()
        for xid in self._later(self.world.oracle.visible):
            self._reach()
            self._move_aside(xid)
        self._reach()
        self._remove_proofs()

    def settle(self) -> None:
        """See `RewindsInSteps.settle_rewind`.

        Raises:
            FencedError, pymysql.Error: as `rewind`.
        """
        self._reach()
        oracle = self.world.oracle
        if not self._later(oracle.visible):
            return self._remove_proofs()
        for xid in self._later(oracle.saved.aside):
            self._reach()
            self._table.update(oracle.saved.aside.pop(xid))
            oracle.visible[xid] = Piece.of(xid)
            oracle.taken_back.discard(xid)
        return self._forget()

    @property
    def _server(self) -> Server:
        return dict(self.world.targets_and_servers())[self.owner[1]]

    @property
    def _table(self) -> dict[Any, Any]:
        return self._server.engine.table(self.owner[1])

    @property
    def _marks(self) -> dict[tuple[str, ...], tuple[int]]:
        marks = self._server.engine.table("rewind")
        return {key: mark for key, mark in marks.items() if key[:2] == self.owner}

    def _forget(self) -> None:
        for key in self._marks:
            del self._server.engine.table("rewind")[key]

    def _later(self, xids: Iterable[str]) -> list[str]:
        pieces = [(xid, Piece.of(xid)) for xid in xids]
        return [xid for xid, one in pieces if one.sink == self.sink and one.is_after(self.keep)]

    def _move_aside(self, xid: str) -> None:
        oracle = self.world.oracle
        oracle.saved.aside[xid] = _delete_rows(oracle, self._table, xid)
        oracle.taken_back.add(xid)
        piece = Piece.of(xid)
        key = (*self.owner, str(UUID(piece.lineage)))
        lowest = self._marks.get(key, (piece.checkpoint,))
        self._server.engine.table("rewind")[key] = (min(piece.checkpoint, *lowest),)

    def _remove_proofs(self) -> None:
        engine, owner, keep = self._server.engine, self.owner, self.keep
        ledger, marks = engine.table("ledger"), engine.table("high_water")
        for key in [key for key in ledger if key[:2] == owner and key[3] > keep.get(key[2], -1)]:
            del ledger[key]
        for key, (mark,) in list(marks.items()):
            if key[:2] == owner and mark > keep.get(key[2], -1):
                _lower(marks, key, keep.get(key[2], -1))
        for xid in self._later(self.world.oracle.saved.aside):
            del self.world.oracle.saved.aside[xid]
            self._server.committed.discard(xid)
        self._forget()

    def _reach(self) -> None:
        """Ask the server, which may be down, and the fence, which may be a newer driver's."""
        self.world.scheduler.step("twophase_rewind", 0.001)
        if not self._server.up:
            raise pymysql.err.OperationalError(_UNREACHABLE, "the server is down")
        found = self._server.engine.table("fence").get(self.owner)
        fence, attempt = found and Attempt(*found), Attempt(*self.attempt)
        if attempt.is_closed_by(fence):
            raise driver_is_fenced(*self.owner, fence, attempt)


def delete_checkpoint(world: World, lineage: str, number: int) -> None:
    """Somebody deletes the rows and proofs of a checkpoint by hand, having rolled back what is
    still prepared of it: it was never decided, unless a savepoint has the decision.
    """
    oracle, of = world.oracle, (lineage.replace("-", ""), number)
    for server in world.servers:
        for xid in [*server.branches]:
            if (Piece.of(xid).lineage, Piece.of(xid).checkpoint) == of:
                server.resolve(xid, commits=False)
                oracle.lost.append(xid)
    for name, server in world.targets_and_servers():
        engine = server.engine
        for xid, piece in list(oracle.visible.items()):
            if (piece.lineage, piece.checkpoint) == of and name in oracle.tables[xid]:
                _delete_rows(oracle, engine.table(name), xid)
                server.committed.discard(xid)
                oracle.lost.append(xid)
        ledger, marks = engine.table("ledger"), engine.table("high_water")
        for key in [key for key in ledger if key[1:4] == (name, lineage, number)]:
            del ledger[key]
        for key, (mark,) in list(marks.items()):
            if key[1:3] == (name, lineage) and mark >= number:
                _lower(marks, key, number - 1)
    oracle.never_decided(lineage, number)


def _delete_rows(oracle: Oracle, target: dict[Any, Any], xid: str) -> dict[Any, Any]:
    """Delete the rows of a piece; return them."""
    decision = next(found for found in oracle.known() if xid in found.xids)
    rows = oracle.expected(decision.chunk, Piece.of(xid).subtask)
    mine = {key: row for key, row in target.items() if row in rows}
    for key in mine:
        del target[key]
    del oracle.visible[xid]
    return mine


def _lower(marks: dict[Any, Any], key: tuple[str, ...], last: int) -> None:
    if last < 0:
        del marks[key]
    else:
        marks[key] = (last,)

"""What a sink takes back for a rewind, in the simulated servers.

The statements of `sinks/mysql/rewind.py` need a column that names each row's checkpoint; here the
oracle tells which rows are whose. They go one sink after the other, first all rows, then all
proofs, as in a target without transactions: the driver may die in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pymysql

from twophase.contract.fencing import driver_is_fenced
from twophase.ids import Attempt
from verification.simulation.decisions import Piece

if TYPE_CHECKING:
    from verification.simulation.server import Server
    from verification.simulation.world import World

_UNREACHABLE = 2003


def take_back(
    world: World,
    sink: str,
    owner: tuple[str, str],
    keep: Mapping[str, int],
    attempt: tuple[int, int],
) -> None:
    """Remove the rows, then the proofs, of every checkpoint after those that are kept.

    Args:
        world: where.
        sink: what stands for the sink in an xid.
        owner: the job's name and the sink's.
        keep: the last checkpoint of each lineage that stays.
        attempt: of the fence.

    Raises:
        FencedError: the fence is higher.
        pymysql.Error: the server is down.
    """
    _, name = owner
    [server] = [found for table, found in world.targets_and_servers() if table == name]
    _reach(world, server, owner, attempt)
    known = {lineage.replace("-", ""): last for lineage, last in keep.items()}
    for xid, piece in list(world.oracle.visible.items()):
        if piece.sink == sink and piece.checkpoint > known.get(piece.lineage, -1):
            _remove_rows(world, server, name, xid)
            del world.oracle.visible[xid]
            world.oracle.saved.taken_back.add(xid)
    _reach(world, server, owner, attempt)
    ledger, marks = server.engine.table("ledger"), server.engine.table("high_water")
    for key in [key for key in ledger if key[:2] == owner and key[3] > keep.get(key[2], -1)]:
        del ledger[key]
    for key, (mark,) in list(marks.items()):
        if key[:2] == owner and mark > keep.get(key[2], -1):
            _lower(marks, key, keep.get(key[2], -1))


def _lower(marks: dict[Any, Any], key: tuple[str, ...], last: int) -> None:
    if last < 0:
        del marks[key]
    else:
        marks[key] = (last,)


def _reach(world: World, server: Server, owner: tuple[str, str], attempt: tuple[int, int]) -> None:
    """Ask the server, which may be down, and the fence, which may be a newer driver's."""
    world.scheduler.step("twophase_rewind", 0.001)
    if not server.up:
        raise pymysql.err.OperationalError(_UNREACHABLE, "the server is down")
    fence = server.engine.table("fence").get(owner, (0, 0))
    if fence > attempt:
        raise driver_is_fenced(*owner, Attempt(*fence), Attempt(*attempt))


def _remove_rows(world: World, server: Server, table: str, xid: str) -> None:
    known = [*world.oracle.known(), *world.oracle.saved.left]
    decision = next(found for found in known if xid in found.xids)
    rows = world.oracle.expected(decision.chunk, Piece.of(xid).subtask)
    target = server.engine.table(table)
    for key in [key for key, row in target.items() if row in rows]:
        del target[key]

"""What must be true of how a driver ended, and of what is there when the job
has come to its end.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pymysql

from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    LostCommittableError,
    RejectedRowsError,
    RestoreRefusedError,
    SavepointError,
    SavepointUnfinishedError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.state.files.storage import AlreadyExistsError, UnclearOutcomeError
from verification.simulation.decisions import FORMAT_ID, Piece
from verification.simulation.disk import Folder
from verification.simulation.ending import CommandEnding, DriverEnding, Ending
from verification.simulation.oracle import Oracle
from verification.simulation.savepoints import MAKE, SAVEPOINTS

if TYPE_CHECKING:
    from verification.simulation.world import World

_BRANCH = re.compile(r"branch (\S+?)/(\S+): ")
_LOST_ROWS = re.compile(r"(\d+) rows are lost until")
_KNOWN = (TwoPhaseError, OSError, pymysql.Error, AlreadyExistsError, UnclearOutcomeError)


def judge(oracle: Oracle, ending: DriverEnding) -> None:
    """A driver has failed, or ended. One that nobody has overtaken may only meet what a
    restart mends (I8).
    """
    error, text, own = ending.error, _noted(oracle, ending), oracle.fence_of(ending.process)
    if own:
        overtaken = oracle.generation.get(ending.folder, 0) > own
    else:
        overtaken = oracle.records != ending.records_at_start
    oracle.holds(
        isinstance(error, _KNOWN) and not isinstance(error, CorruptRecordError), f"I8: {text}"
    )
    if isinstance(error, RestoreRefusedError) and not own:
        oracle.holds(ending.process not in oracle.aborted, f"H28: it has aborted, and {text}")
    if isinstance(error, LostCommittableError):
        _check_named(oracle, str(error), text)
    elif isinstance(error, TargetChangedError):
        oracle.holds(_has_changed(oracle), f"I8: no target has changed, and {text}")
    elif isinstance(error, TwoPhaseError) and not error.restartable and not overtaken:
        oracle.holds(
            _is_explained(oracle, ending, error), f"I8: nobody has overtaken it, and {text}"
        )


def judge_command(oracle: Oracle, ending: CommandEnding) -> None:
    """A command has failed. A repair may be refused, for what it was run for in vain; what it
    refuses by name has to be there. A command for savepoints may meet a driver that goes on, or be
    overtaken, or not know the folder any more.
    """
    error, text, command = ending.error, _noted(oracle, ending), ending.command
    oracle.holds(
        isinstance(error, _KNOWN) and not isinstance(error, CorruptRecordError), f"I8: {text}"
    )
    overtaken = oracle.fencers.get(ending.folder) is not ending.process
    beside = command.verb == MAKE and not ending.alone
    if isinstance(error, LostCommittableError):
        named = _branches_of(str(error))
        oracle.holds(
            named <= _lost_ones(oracle),
            f"I8: {sorted(named)} are not what was rolled back, and {text}",
        )
        again = named & oracle.saved.given_up.get(ending.folder, set())
        oracle.holds(not again, f"I8: {sorted(again)} were given up, and {text}")
    elif isinstance(error, TargetChangedError):
        oracle.holds(_has_changed(oracle), f"I8: no target has changed, and {text}")
    elif isinstance(error, CheckpointMissingError):
        explained = overtaken or _is_behind(oracle, ending.folder)
        oracle.holds(explained, f"I8: the folder is whole, and {text}")
    elif isinstance(error, FencedError):
        explained = overtaken or beside or _is_behind(oracle, ending.folder)
        oracle.holds(explained, f"I8: nobody has overtaken it, and {text}")
    elif isinstance(error, SavepointError):
        oracle.holds(_is_saving_explained(error) or not ending.alone, f"I8: {text}")
    elif command.verb in SAVEPOINTS and isinstance(error, TwoPhaseError) and not error.restartable:
        led_astray = overtaken or beside or _is_behind(oracle, ending.folder)
        oracle.holds(led_astray or bool(oracle.taken_back), f"I8: nobody is in its way, and {text}")


def _noted(oracle: Oracle, ending: Ending) -> str:
    """Describe an ending, in the trace too."""
    text = str(ending)
    oracle.scheduler.trace.append((ending.process.name, text))
    return text


def _is_saving_explained(error: SavepointError) -> bool:
    """Whether a disk has failed, there was nothing to save, or its loss was accepted."""
    expected = (
        "no checkpoint of the current lineage",
        "the others do not have it yet",
        "was started and not finished",
        "which was accepted",
        "and nobody has accepted that",  # who finishes it, over an adopted folder
    )
    return error.__cause__ is not None or any(one in str(error) for one in expected)


def _has_changed(oracle: Oracle) -> bool:
    """Whether a target is not what it was, or a rewind has taken rows back."""
    return oracle.changes > 0 or bool(oracle.taken_back)


def _is_behind(oracle: Oracle, folder: str) -> bool:
    """Whether a folder is not what it was, or a sink knows more."""
    return oracle.repaired.damaged or oracle.is_ahead(folder)


def _is_explained(oracle: Oracle, ending: DriverEnding, error: TwoPhaseError) -> bool:
    """Whether a driver over another folder, or a target that is not what it was,
    may have ended it.
    """
    if isinstance(error, SavepointError):
        if isinstance(error, SavepointUnfinishedError):
            return bool(oracle.saved.by_path[ending.saves].pending)
        return bool(ending.saves or ending.restore_path) and _is_saving_explained(error)
    if isinstance(error, RestoreRefusedError):
        saved, where = oracle.saved, ending.restore_path
        too_old = saved.is_too_old(oracle, ending.folder, where)
        half = bool(saved.rewinding)
        return too_old or half or saved.is_taken_back(oracle, where) or oracle.repaired.damaged
    if isinstance(error, FencedError):
        others = [
            generation for root, generation in oracle.generation.items() if root != ending.folder
        ]
        own, newest = oracle.fence_of(ending.process), max(others, default=0)
        several = oracle.several_folders and newest > own
        # at once, over the folder that the job has left
        return oracle.changes > ending.changes_at_start or several or newest == own > 0
    if isinstance(error, ConfigError):
        return bool(ending.restore_path)  # what it is to restore may be gone
    if isinstance(error, CheckpointMissingError):
        return _is_behind(oracle, ending.folder)
    # a table with a key refuses what the driver over the other folder has written
    rejected = isinstance(error, RejectedRowsError) and oracle.several_folders
    return rejected and oracle.is_ahead(ending.folder)


def _check_named(oracle: Oracle, message: str, text: str) -> None:
    """A `LostCommittableError` names the pieces that somebody has rolled back by hand, no others,
    and counts their rows.
    """
    named = _branches_of(message)
    oracle.holds(
        bool(named) and named <= _lost_ones(oracle),
        f"I8: {sorted(named)} are not what was rolled back, and {text}",
    )
    chunks = {
        xid: decision.chunk
        for decision in oracle.known()
        for xid in named.intersection(decision.xids)
    }
    rows = sum(len(oracle.expected(chunk, Piece.of(xid).subtask)) for xid, chunk in chunks.items())
    oracle.holds(
        _LOST_ROWS.findall(message) == [str(rows)], f"I8: {rows} rows were rolled back, and {text}"
    )


def _branches_of(message: str) -> set[str]:
    return {f"'{gtrid}','{bqual}',{FORMAT_ID}" for gtrid, bqual in _BRANCH.findall(message)}


def _lost_ones(oracle: Oracle) -> set[str]:
    back = oracle.taken_back
    return {*oracle.lost, *oracle.taken, *oracle.gone, *oracle.withdrawn, *back}


def check_end(world: World, folder: str) -> None:
    """Every row once in every sink, and nothing left anywhere."""
    oracle, chunks = world.oracle, world.options.checkpoints
    decided = sorted(decision.chunk for decision in oracle.decided.values())
    # An adoption knows nothing of a checkpoint that no target has rows of.
    empty = {chunk for chunk in range(chunks) if not world.source.rows_of(chunk)}
    covered = {*decided, *empty} == set(range(chunks))
    oracle.holds(covered, f"the decisions cover the chunks {decided}")
    kept = [decision for decision in oracle.decided.values() if decision.root == folder]
    undone = [decision.checkpoint for decision in kept if not decision.committed]
    oracle.holds(not undone, f"I2: checkpoints {undone} are decided and never committed")
    expected = world.source.all_rows(chunks)
    for name, server in world.targets_and_servers():
        found = sorted(server.engine.table(name).values())
        given_up = oracle.repaired.missing_rows(oracle, name)
        wanted = [row for row in expected if row not in given_up]
        oracle.holds(found == wanted, f"{name} holds {found}, expected {wanted}")
    for server in world.servers:
        left = [f"{branch.xid} {branch.phase.name}" for branch in server.branches.values()]
        oracle.holds(not left, f"I3: {left} are left behind")
    _check_proofs(world)
    _check_bodies(world, folder)


def _check_proofs(world: World) -> None:
    """Each visible piece has its ledger row, or its lineage's high-water mark covers it (I4, H50);
    nothing else has one.
    """
    for server in world.servers:
        ledger, marks = server.engine.table("ledger"), server.engine.table("high_water")
        # a task of a chain has a row for each sink
        rows = Counter((key[2].replace("-", ""), *key[3:]) for key in ledger)
        for xid, piece in world.oracle.visible.items():
            if xid not in server.committed:
                continue
            row = (
                piece.lineage,
                piece.checkpoint,
                *piece.attempt,
                piece.subtask,
                piece.task_attempt,
            )
            covered = any(
                key[2].replace("-", "") == piece.lineage and mark[0] >= piece.checkpoint
                for key, mark in marks.items()
            )
            world.oracle.holds(rows[row] > 0 or covered, f"I4: there is no proof of {xid}")
            rows.subtract([row] if rows[row] else [])
        left = [*rows.elements()]
        world.oracle.holds(
            not left, f"I4: the ledger of {server.name} has rows of no piece: {left}"
        )


def _check_bodies(world: World, folder: str) -> None:
    """Bodies are kept of decided checkpoints only; the newest one always is."""
    found = world.disk.find(f"{folder}/chk")
    assert isinstance(found, Folder)
    known = {decision.body.split("/")[-2]: decision for decision in world.oracle.decided.values()}
    strange = [name for name in found.entries if name not in known]
    world.oracle.holds(not strange, f"H40: the bodies {strange} are of no decision")
    newest = max(known.values(), key=lambda decision: decision.chunk)
    world.oracle.holds(world.disk.is_durable(newest.body), f"H40: the body {newest.body} is gone")


def check_lost(world: World) -> None:
    """A decided piece is gone, or a target is not what it was. The job has stopped; nothing is
    duplicated, or undecided.
    """
    again = [xid for xid in world.oracle.lost if xid in world.oracle.visible]
    world.oracle.holds(not again, f"{again} were rolled back and are visible")
    for name, server in world.targets_and_servers():
        left = world.source.all_rows(world.options.checkpoints)
        for row in server.engine.table(name).values():
            world.oracle.holds(
                row in left, f"{name} holds the row {row} and should not, or not twice"
            )
            left.remove(row)


def check_refused(world: World, folder: str, error: Exception | None) -> None:
    """A driver whose folder is empty must refuse to start, and write nothing (I6); but if no target
    has a proof of the job, it has begun as a new one.
    """
    engines = [server.engine for server in world.servers]
    if not any(engine.table(name) for engine in engines for name in ("ledger", "high_water")):
        world.oracle.holds(error is None, f"a new job ended with {error!r}")
        world.happens("empty folder, and no proof")
        check_end(world, folder)
        return
    refused = isinstance(error, CheckpointMissingError)
    world.oracle.holds(refused, f"I6: a start with an empty folder ended with {error!r}")
    world.oracle.holds(
        folder not in world.oracle.generation,
        "I6: it was refused after its fence was written",
    )

"""The product, broken on purpose: each of these must be found by some seed, or the
simulation proves nothing.

The first group are mistakes that the design rules out; the second undoes what the simulation has
found; the third shows in one of the `worlds` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pymysql

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted
from twophase.contract.sink import OpenSink
from twophase.coordinator import coordinator
from twophase.coordinator.commit.checkpoint_completion import CheckpointCompleter
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.commit_queue import CommitQueue
from twophase.coordinator.commit.orphans import Orphans, PieceKey, pieces_of
from twophase.coordinator.commit.sink_decisions import SinkDecisions
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery import plan, recovery
from twophase.coordinator.recovery.recovery import AttemptCloser, Closed, DriverRecovery
from twophase.errors import DeclinedError, FencedError, TargetUnreachableError
from twophase.ids import Subtask
from twophase.operations.repair import accept_loss
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.adoption_plan import AdoptionPlanner
from twophase.operations.repair.lineage_order import LineageOrder
from twophase.operations.savepoint import abandoned_folders, savepoint_restore
from twophase.operations.savepoint import finish as savepoint_finish
from twophase.operations.savepoint.make import Cut, SavepointMaker
from twophase.operations.savepoint.savepoint_restore import load_savepoint
from twophase.options.job_options import SinkAhead
from twophase.sinks.mysql import committer, open_sink, orphans, writer, xid
from twophase.sinks.mysql.client import session_exit, session_settings
from twophase.sinks.mysql.fence import Fence
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.spark.job import lineage_start
from twophase.state.checkpoints import store
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files import storage
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Rewrite
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from verification.simulation import engine_mistakes
from verification.simulation.options import Mishap, Options
from verification.simulation.worlds import (
    AHEAD,
    COPIED,
    OPERATED,
    RESTORED_TARGET,
    SWAPPED,
    in_world,
)


@dataclass(frozen=True)
class Mistake:
    """What is broken.

    Attributes:
        patches: the owner, the name in it and what stands there instead.
        options: runs in which it shows sooner.
        world: the one of the `worlds` in which it shows; without, it shows anywhere.
    """

    patches: Sequence[tuple[object, str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    world: str = ""

    def runs(self, seeds: Iterable[int]) -> Iterator[Options]:
        """The runs of these seeds in which it should show."""
        for seed in seeds:
            yield replace(
                in_world(seed, self.world) if self.world else Options.of(seed), **self.options
            )


_LOCK_WAIT_TIMEOUT, _CONNECTION_LOST = 1205, 2013


def _nothing(*_: object, **__: object) -> None:
    return None


# -- the sink --------------------------------------------------------------------------------------


def _begin_without_check(self: writer.MySqlWriter) -> None:
    try:
        _real_begin(self)
    except FencedError:
        return


def _load_ignoring_lock_waits(self: writer.MySqlWriter) -> None:
    try:
        _real_flush(self)
    except pymysql.Error as error:
        if error.args[0] != _LOCK_WAIT_TIMEOUT:
            raise
        self._loaded_rows += self._waiting_rows
        self._waiting = []


def _prepare_without_reply(self: writer.MySqlWriter, open_session: Any, branch: Any) -> None:
    try:
        _real_prepare(self, open_session, branch)
    except pymysql.Error as error:
        if error.args[0] != _CONNECTION_LOST:
            raise


def _prepare_with_ledger_elsewhere(
    self: writer.MySqlWriter, open_session: Any, branch: Any
) -> None:
    other = session_settings.open_driver_session(self._shared.endpoint)
    self._shared.metadata.write_ledger(other, self._transaction, self._subtask, self._loaded_rows)
    other.end()
    open_session.run(f"XA END {branch.sql}")
    open_session.run(f"XA PREPARE {branch.sql}")


def _read_fence_unlocked(self: MetadataTables, *arguments: Any, shared: bool = False) -> Any:
    return _real_read_fence(self, *arguments)


def _read_ledger_plainly(self: MetadataTables, *arguments: Any, lock: bool) -> bool:
    return _real_has_ledger(self, *arguments, lock=False)


def _xid_without_task_attempt(
    cls: type[xid.Xid], owner: Any, transaction: Any, subtask: Subtask, number: int
) -> Any:
    return _real_of(owner, transaction, Subtask(subtask.index, 0), number)


def _collapse_first(self: OpenMySqlSink, lineage: str, checkpoint: int) -> None:
    mine = (self._owner.job, self._owner.sink, lineage, checkpoint)
    with self._link.session() as open_session:
        self._metadata.collapse_ledger(open_session, *mine)
        self._metadata.raise_high_water(open_session, *mine)


_real_of = xid.Xid.of
_real_begin = writer.MySqlWriter._begin
_real_flush = writer.MySqlWriter._flush
_real_prepare = writer.MySqlWriter._prepare
_real_read_fence = MetadataTables.read_fence
_real_has_ledger = MetadataTables.has_ledger


# -- the coordinator and the store -----------------------------------------------------------------


def _close_with_one_scan(self: Orphans, below: Any, kept: Any) -> int:
    aborted = self.abort(below, kept)
    self._sink.fence(below)
    return aborted


def _close_if_none_without_last_scan(self: Orphans, below: Any, kept: Any) -> bool:
    if self._found(below, kept):
        return False
    self._sink.fence(below)
    return True


def _swallow_declined(self: CheckpointCoordinator, *arguments: Any) -> None:
    try:
        _real_checkpoint(self, *arguments)
    except (DeclinedError, TargetUnreachableError):
        # the second if the attempt cannot be closed yet
        return


def _write_unsynced(path: Any, data: bytes, _: object) -> None:
    simulated = vars(storage)["os"]
    descriptor = simulated.open(
        path, simulated.O_WRONLY | simulated.O_CREAT | simulated.O_EXCL, 0o600
    )
    with simulated.fdopen(descriptor, "wb", buffering=0) as file:
        storage._write_all(file.fileno(), data)


def _create_unchecked(self: JobLog, *arguments: Any) -> None:
    try:
        _real_create(self, *arguments)
    except FencedError:
        return


def _decide_before_the_body(self: CompletedCheckpointStore, checkpoint: Any) -> Any:
    with mock.patch.object(self, "_storage", mock.Mock()):
        return _real_store_prepare(self, checkpoint)


def _make_folder_that_is_not_there(self: LocalStorage, path: Path) -> None:
    if path.is_dir():
        return
    self._make_folder(path.parent)
    path.mkdir(mode=0o700)
    storage.sync_path(path.parent)


def _log_ahead_by_what_waits(history: History, keep: Any) -> Any:
    return _real_log_ahead(replace(history, decisions=tuple(history.uncommitted())), keep)


def _no_refusal(*_: object) -> Iterator[Any]:
    return iter(())


def _newest_first(self: CommitQueue) -> Any:
    found = _real_next(self)
    if found is not None:
        self._left.rotate(1)
        found = self._left[0]
    return found


def _append_without_lock(self: JobLog, record: Any) -> None:
    without_lock: Any = self
    without_lock.lock = nullcontext()
    _real_append(self, record)


def _append_after_doubt(self: JobLog, record: Any) -> None:
    self._over = None
    _real_append(self, record)


def _close_and_ask_no_more(self: AttemptCloser, *arguments: Any, **options: Any) -> Closed:
    closed = _real_close_below(self, *arguments, **options)

    def plan_nothing(*_: object) -> plan.StartPlan:
        self._context.log.check_fence()
        return plan.StartPlan()

    planner: Any = self._planner
    planner.plan_again = plan_nothing
    return closed


def _orphans_without_asking(job: str, name: str, sink: Any, observers: Any, _: Any) -> Orphans:
    return Orphans(job, name, sink, observers, lambda found: found)


def _raise_mark_unproven(self: OpenMySqlSink, lineage: str, checkpoint: int) -> None:
    owner = self._owner
    with self._link.session() as open_session:
        self._metadata.raise_high_water(open_session, owner.job, owner.sink, lineage, checkpoint)


def _lose_all(self: CommitLoop, checkpoint: Any, sink: str) -> Any:
    if not checkpoint.offsets.end:  # of an adoption
        return _real_lost(self, checkpoint, sink)
    return [(piece, "nobody was asked") for piece in checkpoint.committables.get(sink, ())]


def _plan_of_one_lineage(
    self: AdoptionPlanner,
    history: Any,
    name: str,
    committed: Any,
    in_doubt: Any,
    order: LineageOrder,
    adopted: Any,
) -> Any:
    unknown = [lineage for lineage in adopted if not order.is_known(lineage)]
    known = {} if len(unknown) > 1 else adopted
    return _real_sink_plan(self, history, name, committed, in_doubt, order, known)


def _take_over_without_fence(log: JobLog, sinks: Any, check: Any) -> int:
    check(log.read())
    return log.history.generation


_real_sink_plan = AdoptionPlanner._sink_plan
_real_lost = CommitLoop.lost
_real_close_below = AttemptCloser.close_below
_real_next = CommitQueue._next
_real_append = JobLog.append
_real_log_ahead = plan._log_ahead
_real_checkpoint = CheckpointCoordinator.checkpoint
_real_create = JobLog._create
_real_store_prepare = CompletedCheckpointStore.prepare


# -- savepoints ------------------------------------------------------------------------------------


def _cut_without_pending(self: SavepointMaker, storage: Any, *, committed_only: bool) -> Any:
    cut: Any = _real_read_cut(self, storage, committed_only=committed_only)
    return replace(cut, pending=()) if isinstance(cut, Cut) else cut


def _cut_of_committed(self: SavepointMaker, storage: Any, *, committed_only: bool) -> Any:
    return _real_read_cut(self, storage, committed_only=True)


def _commit_own_sinks_only(loop: CommitLoop, sinks: Mapping[str, Any], *_: Any, **__: Any) -> Any:
    return loop if sinks is loop._sinks else SimpleNamespace(commit=lambda _: True)


def _commit_own_only(self: DriverRecovery, restore: Any) -> int:
    return _real_commit_decided(self, None if _is_of_savepoint(restore) else restore)


def _is_of_savepoint(restore: Any) -> bool:
    return restore is not None and "/saved" in restore.lineage.restored_from


def _any_savepoint_is_restorable(observed: Any, wish: Any) -> Any:
    if _is_of_savepoint(wish) and wish.sink_ahead is not SinkAhead.REWIND:
        return iter(())
    return _real_not_restorable(observed, wish)


def _leave_what_waits(self: DriverRecovery, restore: Any) -> int:
    if restore is None or restore.sink_ahead is not SinkAhead.REWIND:
        return _real_commit_decided(self, restore)
    return sum(map(self._context.commit_loop.commit, restore.adopting))


def _taken_back_in_the_first_only(*arguments: Any) -> Iterator[Any]:
    return islice(_real_taken_back(*arguments), 1)


def _load_with_own_numbers(*arguments: Any) -> Any:
    found = load_savepoint(*arguments)
    lineage = replace(found.restore.lineage, first_checkpoint=1)
    return replace(found, restore=replace(found.restore, lineage=lineage))


_real_read_cut = SavepointMaker._read_cut
_real_taken_back = plan._taken_back
_real_not_restorable = plan._not_restorable
_real_commit_decided = DriverRecovery._commit_decided


_RULED_OUT: dict[str, Sequence[Any]] = {
    "an unknown branch is taken for committed": [
        (committer.Committer, "_decide", lambda *_: AlreadyCommitted("the server does not know it"))
    ],
    "a commit does not wait for the writer's session": [
        (committer, "wait_until_left", lambda *_, **__: set())
    ],
    "an abort does not wait for the writer's session": [
        (orphans, "wait_until_left", lambda *_, **__: set())
    ],
    "a writer does not look at the fence": [(writer.MySqlWriter, "_begin", _begin_without_check)],
    "a lock wait inside a branch is passed over": [
        (writer.MySqlWriter, "_flush", _load_ignoring_lock_waits)
    ],
    "a lost reply to XA PREPARE is taken for yes": [
        (writer.MySqlWriter, "_prepare", _prepare_without_reply)
    ],
    "the ledger row is written outside of the branch": [
        (writer.MySqlWriter, "_prepare", _prepare_with_ledger_elsewhere)
    ],
    "the ledger is read without a lock": [(MetadataTables, "has_ledger", _read_ledger_plainly)],
    "the ledger is collapsed before the mark is raised": [
        (OpenMySqlSink, "subsume", _collapse_first)
    ],
    "neither a lock nor a fence keeps old writers out": [
        (Fence, "_end_sessions", lambda *_: set()),
        (MetadataTables, "read_fence", _read_fence_unlocked),
    ],
    "orphans are looked for only before the fence": [(Orphans, "close", _close_with_one_scan)],
    "a sink without orphans is not scanned again after its fence": [
        (Orphans, "close_if_none", _close_if_none_without_last_scan)
    ],
    "recovery takes decided pieces for orphans": [
        (coordinator, "commit_in_order", lambda *_: 0),
        (recovery, "commit_in_order", lambda *_: 0),
        (CheckpointCompleter, "pieces_to_commit", lambda _: frozenset()),
    ],
    "a decision of unclear outcome is aborted": [
        (JobLog, "_in_doubt", lambda _, __, error: OSError(str(error)))
    ],
    "a declined checkpoint returns": [(CheckpointCoordinator, "checkpoint", _swallow_declined)],
    "a checkpoint is called committed before it is": [
        (CommitLoop, "commit", lambda *_, **__: True)
    ],
    "a record is linked before it is synced": [
        (LocalStorage, "_write", staticmethod(_write_unsynced))
    ],
    "a folder is not synced after the link": [(storage, "sync_path", _nothing)],
    "a reader does not sync what it acts on": [(LocalStorage, "sync", _nothing)],
    "a taken place in the log is taken for one's own": [(JobLog, "_create", _create_unchecked)],
    "a folded log is not noticed": [(JobLog, "_check_predecessor", _nothing)],
    "an xid leaves out the task attempt": [(xid.Xid, "of", classmethod(_xid_without_task_attempt))],
    "an empty folder is taken for a fresh start": [(plan, "_behind", _no_refusal)],
    "bodies that were not decided are left behind": [
        (CompletedCheckpointStore, "sweep", _nothing),
        (CompletedCheckpointStore, "discard", _nothing),
    ],
    "a checkpoint is subsumed by itself": [
        (store, "retained", lambda history, _: history.uncommitted())
    ],
    "the ledger is collapsed and no mark is raised": [
        (MetadataTables, "raise_high_water", _nothing)
    ],
    "the body is never written": [(CompletedCheckpointStore, "prepare", _decide_before_the_body)],
    "the newest commit is made first": [(CommitQueue, "_next", _newest_first)],
    "more checkpoints are under way than allowed": [
        (CheckpointCoordinator, "_make_room", _nothing)
    ],
    "two threads append at once": [(JobLog, "append", _append_without_lock)],
    "one thread appends after the other has met a doubt": [(JobLog, "append", _append_after_doubt)],
    "the end does not wait for the commits behind": [(CommitQueue, "close", _nothing)],
}

_FOUND: dict[str, Sequence[Any]] = {
    "a restore that another driver has done meanwhile is done again": [
        (plan, "_over", _no_refusal)
    ],
    "what was restored is restored again because its option stays set": [
        (lineage_start, "begun_with", lambda *_: None)
    ],
    "a folder that another driver has made is not synced": [
        (LocalStorage, "_make_folder", _make_folder_that_is_not_there)
    ],
    "the first record of a folded log is written again": [
        (JobLog, "_newest_beside", lambda self: self._last + 1)
    ],
    "a restore is validated against what sinks knew before": [
        (plan, "_log_ahead", _log_ahead_by_what_waits),
        (plan, "_over", _no_refusal),
    ],
    "MySQL is asked as soon as a session is off the list": [
        (session_exit, "_is_closing", lambda *_: False)
    ],
    "MariaDB is asked as soon as a session is off the list": [
        (session_exit, "_wait_until_released", lambda *_: set())
    ],
}


def _pieces_of_whole_checkpoints(self: CheckpointCompleter) -> frozenset[PieceKey]:
    return pieces_of(map(self._store.read, self._log.history.uncommitted()))


def _delete_in_any_order(folder: object) -> None:
    rmtree = vars(savepoint_restore)["shutil"].rmtree  # the simulated one
    rmtree(folder)


def _superseded_without_proof(
    self: CheckpointCompleter, _: str, __: OpenSink, found: Sequence[Committable]
) -> Sequence[Committable]:
    return self.commit_restored(found)


def _fold_without_sinks(self: JobLog, history: History) -> None:
    _real_fold(self, replace(history, sink_decisions=()))


_real_fold = JobLog.fold


_LEFT_AHEAD = (SinkDecisions, "commit", lambda *_: True)

_IN_WORLDS: dict[str, tuple[str, Sequence[Any]]] = {
    "a sink commits ahead without a record": (
        AHEAD,
        [(SinkDecisions, "_append", _nothing)],
    ),
    "a retry asks a sink that is ahead to write again": (
        AHEAD,
        [(CheckpointCoordinator, "decided_sinks", lambda *_: {})],
    ),
    "a recovery leaves a sink that is ahead to the next commit": (
        AHEAD,
        [_LEFT_AHEAD],
    ),
    "pieces of a sink that is ahead count as orphans": (
        AHEAD,
        [_LEFT_AHEAD, (CheckpointCompleter, "pieces_to_commit", _pieces_of_whole_checkpoints)],
    ),
    "a rewind that has begun leaves a sink ahead": (
        OPERATED,
        [(History, "ahead", property(lambda self: list(self.sink_decisions)))],
    ),
    "a fold forgets the sinks that are ahead": (
        AHEAD,
        [(JobLog, "fold", _fold_without_sinks)],
    ),
    "the sinks are not asked again after the fences": (
        COPIED,
        [(AttemptCloser, "close_below", _close_and_ask_no_more)],
    ),
    "orphans are aborted without asking the other sinks": (
        COPIED,
        [(recovery, "Orphans", _orphans_without_asking)],
    ),
    "a commit does not require its predecessor": (
        RESTORED_TARGET,
        [(committer.Committer, "_has_predecessor", lambda *_: True)],
    ),
    "a start does not look for what its targets should have": (
        RESTORED_TARGET,
        [(plan, "_changed", _no_refusal)],
    ),
    "the mark is raised to what a target lacks": (
        RESTORED_TARGET,
        [(OpenMySqlSink, "subsume", _raise_mark_unproven)],
    ),
    "superseded attempts are aborted in a target that lacks a checkpoint": (
        RESTORED_TARGET,
        [(CheckpointCompleter, "_superseded", _superseded_without_proof)],
    ),
    "a table is known by its name alone": (
        SWAPPED,
        [(committer, "why_another", lambda *_: ""), (open_sink, "why_another", lambda *_: "")],
    ),
    "a server is known by its address alone": (
        SWAPPED,
        [
            (session_settings, "_check_server", _nothing),
            (OpenMySqlSink, "_check_metadata", _nothing),
        ],
    ),
    "a loss is accepted without asking the target": (OPERATED, [(CommitLoop, "lost", _lose_all)]),
    "an accepted loss stays in the checkpoint": (
        OPERATED,
        [(CompletedCheckpoint, "without", lambda self, _: self)],
    ),
    "a repair does not take the job over": (
        OPERATED,
        [(accept_loss, "take_over", _take_over_without_fence)],
    ),
    "an adoption takes a piece that was written again": (
        OPERATED,
        [(Rewrite, "replaces", lambda *_: False)],
    ),
    "an adoption leaves the pieces that wait": (OPERATED, [(AdoptionRepair, "_commit", _nothing)]),
    "a savepoint leaves out what waits to be committed": (
        OPERATED,
        [(SavepointMaker, "_read_cut", _cut_without_pending)],
    ),
    "a savepoint of a stopped job is of a checkpoint before its newest": (
        OPERATED,
        [(SavepointMaker, "_read_cut", _cut_of_committed)],
    ),
    "a savepoint is called finished before it is committed": (
        OPERATED,
        [(savepoint_finish, "_is_committed", lambda *_: True)],
    ),
    "a restore aborts what a savepoint holds before it is committed": (
        OPERATED,
        [(DriverRecovery, "_commit_decided", _commit_own_only)],
    ),
    "a savepoint is restored while a sink is ahead of it": (
        OPERATED,
        [(plan, "_not_restorable", _any_savepoint_is_restorable)],
    ),
    "a rewind leaves decided checkpoints to be committed later": (
        OPERATED,
        [(DriverRecovery, "_commit_decided", _leave_what_waits)],
    ),
    "a rewind takes rows back in one sink": (
        OPERATED,
        [
            (plan, "_taken_back", _taken_back_in_the_first_only),
            (recovery, "ahead_of", _no_refusal),
        ],
    ),
    "a fork begins before what its savepoint holds is committed": (
        OPERATED,
        [(CommitLoop, "over", _commit_own_sinks_only)],
    ),
    "the loss that a fork has found is looked for in its own name": (
        OPERATED,
        [(accept_loss, "open_original", lambda *_: {})],
    ),
    "the note of who has written a folder is deleted first": (
        OPERATED,
        [(abandoned_folders, "delete_folder", _delete_in_any_order)],
    ),
    "what a restore has written stays when it dies": (
        OPERATED,
        [(abandoned_folders, "_never_begun", lambda *_: set())],
    ),
    "a lineage that continues Spark's folder begins at 1": (
        OPERATED,
        [(lineage_start, "load_savepoint", _load_with_own_numbers)],
    ),
    "an adoption of several lineages leaves the pieces that wait": (
        OPERATED,
        [(AdoptionPlanner, "_sink_plan", _plan_of_one_lineage)],
    ),
}

_TWO_AT_ONCE = {
    "restore": "elsewhere",
    "rivals": 3,
    "drivers": 3,
    "suspicion": 1.0,
    "mishaps": tuple(Mishap("disk list", count, 3.0) for count in (8, 99) * 4),
}
_WORKERS_OUTLIVE_THEIR_DRIVER = {
    "mishaps": (Mishap("C05", 1, 0.0), Mishap("IS_USED_LOCK", 1, 0.5)) * 3,
    "writers": 3,
}
_RESTORED_WHILE_IT_STANDS_STILL = {
    # its session is pinged, and opened again
    "mishaps": tuple(Mishap("C01", count, 40.0) for count in (3, 2, 4)),
    "rivals": 0,
    "suspicion": 0.0,
    "checkpoints": 5,
    "empty_rate": 0.5,
    "subsume_every": 1,
    "max_concurrent": 1,
    "num_retained": 1,
}
_TWO_SINKS = {"sinks": ("mysql-8.0.12", "mysql-8.0.12")}
_BEHIND = {"max_concurrent": 3, "keyed": False, "checkpoints": 5}
_STOPPED_WHILE_SERVERS_FAIL = {
    "stops": 8,
    "server_crashes": 2,
    "network_rate": 0.05,
    "network_budget": 20,
    "mishaps": (),
}
_SOONER: dict[str, Mapping[str, Any]] = {
    "the newest commit is made first": _BEHIND,
    "more checkpoints are under way than allowed": _BEHIND,
    "two threads append at once": _BEHIND,
    "one thread appends after the other has met a doubt": _BEHIND
    | {"disk_rate": 0.02, "disk_budget": 2},
    "the end does not wait for the commits behind": _BEHIND,
    "a restore is validated against what sinks knew before": _TWO_AT_ONCE,
    "the first record of a folded log is written again": {
        "checkpoints": 5,
        "fold_at": 3,
        "drivers": 2,
        "suspicion": 1.0,
        "mishaps": (Mishap("disk create", 1, 30.0),),
    },
    "an adoption of several lineages leaves the pieces that wait": {
        "restore": "here",
        "sinks": ("mysql-8.0.12", "mysql-8.0.12"),
        "checkpoints": 5,
    },
    "the ledger is collapsed before the mark is raised": {"subsume_every": 1},
    "a rewind takes rows back in one sink": _TWO_SINKS,
    "a restore that another driver has done meanwhile is done again": {
        "restore": "here",
        # before it reads the log again
        "mishaps": (Mishap("SELECT lineage", 1, 20.0),) * 8,
        "drivers": 3,
        "suspicion": 1.0,
    },
    "the note of who has written a folder is deleted first": {
        "mishaps": (Mishap("disk rmdir", 1, 0.0),) * 10,
        "incident": "",
    },
    "checkpoints are given up and attempts left open": _STOPPED_WHILE_SERVERS_FAIL,
    "checkpoints are given up before they are committed": _STOPPED_WHILE_SERVERS_FAIL | _BEHIND,
    "a commit does not require its predecessor": _RESTORED_WHILE_IT_STANDS_STILL,
    "the mark is raised to what a target lacks": _RESTORED_WHILE_IT_STANDS_STILL,
    "superseded attempts are aborted in a target that lacks a checkpoint": (
        _RESTORED_WHILE_IT_STANDS_STILL
        | {"mishaps": (Mishap("C01", 4, 40.0),), "restored_behind": 3}
    ),
    "neither a lock nor a fence keeps old writers out": _WORKERS_OUTLIVE_THEIR_DRIVER,
    "orphans are looked for only before the fence": _WORKERS_OUTLIVE_THEIR_DRIVER,
    "a sink without orphans is not scanned again after its fence": _WORKERS_OUTLIVE_THEIR_DRIVER,
    "MariaDB is asked as soon as a session is off the list": _WORKERS_OUTLIVE_THEIR_DRIVER
    | {"sinks": ("mariadb-10.11",), "lingering_s": 0.02},
}

_SOONER |= engine_mistakes.SOONER
_ANYWHERE = _RULED_OUT | engine_mistakes.RULED_OUT | _FOUND | engine_mistakes.FOUND

MISTAKES = {name: Mistake(patches, _SOONER.get(name, {})) for name, patches in _ANYWHERE.items()}
MISTAKES |= {
    name: Mistake(patches, _SOONER.get(name, {}), world)
    for name, (world, patches) in (_IN_WORLDS | engine_mistakes.IN_WORLDS).items()
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The product with one mistake in it."""
    with ExitStack() as stack:
        for owner, attribute, new in MISTAKES[name].patches:
            stack.enter_context(mock.patch.object(owner, attribute, new))
        yield

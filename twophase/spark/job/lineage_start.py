"""The beginning of a lineage: a fresh start, or the restore that the options ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from twophase.contract.sink import Sink
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.host import Plan
from twophase.errors import ConfigError, TwoPhaseError
from twophase.ids import new_lineage_id
from twophase.internals.failpoints import failpoint
from twophase.operations.savepoint.fork import close_all, open_as, open_original
from twophase.operations.savepoint.restore import (
    begun_with,
    copied_checkpoint,
    load_restore,
    restored_checkpoint,
)
from twophase.operations.savepoint.rewound_sources import check_sources
from twophase.operations.savepoint.savepoint_restore import (
    SavepointRestore,
    is_savepoint,
    load_savepoint,
)
from twophase.options.job_options import SinkAhead
from twophase.spark.folder.adopted_offsets import begins_without_state, confirmed_start
from twophase.spark.folder.noted_settings import newest_header
from twophase.spark.plan.operator_states import SAVEPOINT_INSTEAD, OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage, StartingOffsets
from twophase.state.journal.log import JobLog

_log = logging.getLogger("twophase")


class LineageStart:
    """Begins the lineage of one run of a job, unless the job's folder has begun it already.

    Args:
        context: the job.
        storage: its folder.
        states: the operator states.
        plan: what is known of the job's plan.
        declared: the sinks by name, not open.
        check: called before rows are taken back, and after recovery before anything of the lineage
            is written; may raise.
        rewound: called when a rewind is recorded, before a row is taken back, and again before the
            lineage begins, with the restored checkpoint and where each source begins.

    Raises:
        ConfigError: the job cannot go on from what `restore.path` names.
    """

    def __init__(
        self,
        context: JobContext,
        storage: LocalStorage,
        states: OperatorStates,
        plan: Plan,
        declared: Mapping[str, Sink],
        check: Callable[[], None] | None = None,
        rewound: Callable[[int, Sequence[str | None]], None] | None = None,
    ) -> None:
        self._check = check
        self._rewound = rewound
        self._context = context
        self._storage = storage
        self._states = states
        self._declared = declared
        self._stateful, self._keeps_state = plan.stateful, plan.keeps_state
        path = self._path_to_restore()
        self._savepoint = self._load_savepoint(path, plan) if path and is_savepoint(path) else None
        found = self._savepoint.restore if self._savepoint else self._load(path)
        self.restore = found and self._complete(found)
        self._is_initialized = False
        if self.restore is None:
            self._check_found()

    def close(self) -> None:
        """Close the sinks that recovery has committed the pieces of another job with."""
        if self.restore is not None:
            close_all(self.restore.original)

    def noted_header(self) -> str:
        """What Spark noted with the offsets that the run continues from; empty if with none."""
        if self._savepoint is not None:
            return self._savepoint.noted_header()
        if self.restore is not None:
            return ""
        storage = self._storage
        lineage = JobLog(storage, self._context.job).read().lineage
        return newest_header(storage.root / "spark" / lineage.id) if lineage else ""

    def begin(self, coordinator: CheckpointCoordinator) -> None:
        """Begin the restored lineage, or a fresh one if the job has none.

        Raises:
            ConfigError: two sources have one uid, or the options rule out a start without Spark's
                state.
        """
        if self._check is not None:
            self._check()
        name, log = self._context.job, self._context.log
        options = self._context.options
        if self.restore is not None:
            if self._savepoint is not None:
                self._savepoint.write_folder(self._storage.root, log.history.generation)
            if self.restore.sink_ahead is SinkAhead.REWIND:
                self._go_back()
            coordinator.begin_lineage(self.restore.lineage)
            failpoint("S07")
        elif log.history.lineage is None:
            self._states.check_uids()
            coordinator.begin_lineage(Lineage(new_lineage_id()))
        else:  # an operator may have confirmed it since the job was compared with its folder
            self._states.check_starting(name, confirmed_start(log.history))
        may_drop = not self._stateful or options.allow_non_restored_state
        if not may_drop and begins_without_state(log.history):
            raise ConfigError(
                f"Job {name!r}: its log was adopted from the targets, which hold nothing of the "
                "state that the plan keeps in Spark, or may. Nothing was written.",
                remedy="if the plan keeps none (a join with a static table, say), set "
                "`restore.allow_non_restored_state=true`.",
            )

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        """Give the functions their state, and check that Spark's state is one of this plan.

        Raises:
            ConfigError: it is one of another plan, or the functions' does not fit the job.
            CheckpointMissingError: that of the functions is gone.
            CorruptRecordError: that of the functions is damaged.
        """
        states, options = self._states, self._context.options
        checkpoint = self._checkpoint(coordinator)
        of_spark = checkpoint if coordinator.newest() else self._copied(coordinator)
        if of_spark is not None:
            states.check_plan(of_spark, options)
        if not self._is_initialized:
            states.initialize(checkpoint, options)

    def _go_back(self) -> None:
        """Tell the sources that the job goes back."""
        if self._rewound is not None and self.restore is not None:
            self._rewound(self.restore.checkpoint.checkpoint, self.restore.start)

    def _prove(self, takes_back: bool) -> None:
        """Check that the program can go on with what is restored, before rows are taken back."""
        restore, options = self.restore, self._context.options
        if restore is None or options.sink_ahead is not SinkAhead.REWIND:
            return
        if self._check is not None:
            self._check()
        checkpoint, path = restore.checkpoint, restore.lineage.restored_from
        check_sources(
            self._context.job,
            path,
            self._storage,
            self._states,
            restore.start,
            options,
            takes_back=takes_back,
        )
        if not self._is_initialized:
            self._states.initialize(checkpoint, options)
            self._is_initialized = True

    def _check_found(self) -> None:
        """Compare the job with what its folder goes on from, before the job is taken over.

        What is damaged or gone is reported when it is read again behind the fence.

        Raises:
            ConfigError: a source begins elsewhere than an operator has confirmed, or Spark's state
                is one of another plan.
        """
        name, log = self._context.job, JobLog(self._storage, self._context.job)
        checkpoint: CompletedCheckpoint | None = None
        confirmed: Sequence[StartingOffsets] = ()
        spark: Path | None = None
        with suppress(OSError, TwoPhaseError):
            history = log.read()
            confirmed = confirmed_start(history)
            if (lineage := history.lineage) is not None:
                newest = history.newest(lineage.id)
                store = CompletedCheckpointStore(self._storage, log, num_retained=1)
                checkpoint = store.read(newest) if newest else copied_checkpoint(name, lineage)
                spark = self._storage.root / "spark" / lineage.id
        if checkpoint is None and spark is not None:
            self._states.check_logs(name, spark)
        self._states.check_starting(name, confirmed)
        if checkpoint is not None:
            self._states.check_plan(checkpoint, self._context.options)

    def _copied(self, coordinator: CheckpointCoordinator) -> CompletedCheckpoint | None:
        """Return the checkpoint of the savepoint that an older driver began the lineage with."""
        if self.restore is not None:
            return None  # its savepoint was compared before anything was written
        return copied_checkpoint(self._context.job, coordinator.lineage)

    def _checkpoint(self, coordinator: CheckpointCoordinator) -> CompletedCheckpoint | None:
        """Return the checkpoint whose operator states the run begins with; None if it has none.

        A lineage may have been begun by a driver that died before its first checkpoint.
        """
        options = self._context.options
        may_drop = options.allow_non_restored_state
        if newest := coordinator.newest():
            return self._context.store.read_with_states(newest, may_drop=may_drop)
        if self.restore is not None:
            return self.restore.checkpoint
        if not self._states.has_functions:
            return None
        return restored_checkpoint(self._context.job, coordinator.lineage, options)

    def _path_to_restore(self) -> str | None:
        """Return `restore.path`, unless the job has begun a lineage with what is there."""
        context = self._context
        path = context.options.restore_path
        if path is None:
            return None
        history = JobLog(self._storage, context.job).read()
        begun = begun_with(context.job, path, history, context.options)
        if begun is None:
            return path
        _log.info(
            "job %s: goes on; lineage %s has begun with what restore.path names. To restore it "
            "once more, set restore.id to another name.",
            *(context.job, begun.id),
        )
        return None

    def _load_savepoint(self, path: str, plan: Plan) -> SavepointRestore:
        context, options = self._context, self._context.options
        return load_savepoint(context.job, path, self._storage, self._states, options, plan)

    def _complete(self, found: Restore) -> Restore:
        context = self._context
        original = open_original(context.job, found, self._declared, context.sinks)
        return replace(
            found,
            original=original,
            open_as=partial(open_as, self._declared),
            prove=self._prove,
            goes_back=self._go_back,
        )

    def _load(self, path: str | None) -> Restore | None:
        if path is None:
            return None
        name, options = self._context.job, self._context.options
        restore = load_restore(name, path, self._storage, self._states, options)
        if self._keeps_state:
            raise ConfigError(
                f"Job {name!r}: the plan keeps state in Spark, and {path} holds none of it: a "
                "checkpoint does not have it. Nothing was written.",
                remedy=SAVEPOINT_INSTEAD,
            )
        if self._stateful and not options.allow_non_restored_state:
            raise ConfigError(
                f"Job {name!r}: the plan keeps state in Spark, or may, "
                f"and {path} holds none of it. "
                "Nothing was written.",
                remedy="if the plan keeps none (a join with a static table, say), set "
                "`restore.allow_non_restored_state=true`. If it does, " + SAVEPOINT_INSTEAD,
            )
        return restore

"""The parts of one job that every step of the protocol uses, in a driver or a repair."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from twophase.contract.listener import CheckpointListener
from twophase.contract.sink import OpenSink
from twophase.coordinator.commit.checkpoint_completion import CheckpointCompleter, Listeners
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.failure_manager import FailureManager
from twophase.coordinator.commit.fan_out import FanOut, sequentially
from twophase.coordinator.commit.proofs import Proofs
from twophase.coordinator.commit.sink_decisions import SinkDecisions
from twophase.events import Observers
from twophase.internals.clock import Clock
from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import Storage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog


class JobContext:
    """One job as one driver or one repair sees it.

    Args:
        job: the job's name.
        storage: the job's folder.
        sinks: the sinks by name, in the user's order; opened.
        options: the job's options.
        observers: receive every event.
        clock: the time.
        listeners: notified of completed, aborted and subsumed checkpoints.
        fan_out: calls several sinks, one after the other or side by side.
        failures: counts the failed attempts of all drivers in this process; without it, those
            of this one.

    Attributes:
        failures: as given, or its own.
        skips_existing: whether a source of the job begins after the records that exist, or may.
        stopping: set when the job is to stop; waits and retries end then.
        log: the job's log.
        store: the completed checkpoints.
        proofs: the proofs that the log expects in the targets.
        commit_loop: commits decided checkpoints in the sinks.
        sink_decisions: decides and commits sinks ahead of their checkpoint.
        completer: takes decided checkpoints to their end.
    """

    def __init__(
        self,
        job: str,
        storage: Storage,
        sinks: Mapping[str, OpenSink],
        options: JobOptions,
        observers: Observers,
        clock: Clock,
        *,
        listeners: Sequence[CheckpointListener] = (),
        fan_out: FanOut = sequentially,
        failures: FailureManager | None = None,
    ) -> None:
        self.job = job
        self.sinks = sinks
        self.options = options
        self.observers = observers
        self.clock = clock
        self.fan_out = fan_out
        self.failures = failures or FailureManager(options.tolerable_failures)
        self.listeners = Listeners(job, listeners)
        self.skips_existing = False
        self.stopping = threading.Event()
        self._storage = storage
        self.log = JobLog(storage, job)
        self.store = CompletedCheckpointStore(
            storage, self.log, options.num_retained, options.memory_threshold
        )
        self.proofs = Proofs(job, self.log, self.store)
        self.commit_loop = CommitLoop(
            sinks,
            observers,
            clock,
            self.stopping,
            options.commit_backoff_s,
            options.commit_backoff_max_s,
            self.proofs.explain,
            self.proofs.check_fence,
        )
        self.sink_decisions = SinkDecisions(job, self.log, self.proofs, self.commit_loop, observers)
        self.completer = CheckpointCompleter(
            job,
            sinks,
            self.commit_loop,
            self.log,
            self.store,
            self.proofs,
            self.listeners,
            observers,
        )

    def lineage_folders(self) -> frozenset[str]:
        """Return the lineages of which the job's folder holds what its host keeps."""
        return frozenset(self._storage.names("spark"))

    @property
    def history(self) -> History:
        """What the job's log says, as of its last read or append."""
        return self.log.history

"""The port of the engine: what it asks of whoever runs micro-batches.

The engine (`twophase.engine.engine`) knows no Spark. It claims, opens, recovers, begins lineages,
watches, restarts and stops. A `Host` runs the micro-batches in between:

    Spark       `twophase.spark.job.spark_host`, for `write_stream`
    plugin      `twophase.spark.plugin.host`, where Spark itself is the loop
    plain       `twophase.testing.plain_host`: forked workers, for authors of sinks
    simulated   `verification.simulation`, where time and failures are the seed's

A host is used by one engine. Where nothing else is said, its methods run on the driver, on
whichever thread the step runs on, and a crash loses nothing: the next start calls them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from twophase.state.checkpoints.checkpoint import OperatorStateFields

if TYPE_CHECKING:
    from twophase.contract.sink import SinkContext
    from twophase.coordinator.commit.commit_queue import Thread
    from twophase.coordinator.commit.context import JobContext
    from twophase.coordinator.commit.pending import PendingCheckpoint
    from twophase.coordinator.coordinator import CheckpointCoordinator
    from twophase.coordinator.recovery.plan import Restore
    from twophase.internals.clock import Clock
    from twophase.state.checkpoints.checkpoint import FrozenOffsets
    from twophase.state.journal.entries import Decision, Lineage
    from twophase.state.journal.history import History


@dataclass(frozen=True)
class Plan:
    """What is known of the plan that makes the rows.

    Attributes:
        stateful: whether it keeps state or a watermark, or may: a decided micro-batch that runs
            again is then executed without sinks (hazard H42).
        keeps_state: whether it is known to keep state.
        has_watermark: whether records move a watermark: only a run of a micro-batch knows it then.
        settings: with which the host starts the query.
        skips_existing: whether a source begins after the records that exist, or may.
    """

    stateful: bool
    keeps_state: bool
    has_watermark: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    skips_existing: bool = False


class MicroBatch(Protocol):
    """One run of a micro-batch: rows that a host has frozen, not yet computed."""

    def begin(self, decided: Decision | None) -> None:
        """Prepare for reading the records, before anything reads them.

        Called once. A micro-batch whose plan keeps state has to read the same records each time
        (hazard H35).

        Args:
            decided: its checkpoint if it is decided already; None if it is to be written.
        """

    def pre_commit(self, pending: PendingCheckpoint) -> None:
        """Let each sink that is missing write its part, and acknowledge for each.

        Called once for each attempt. Returns or raises only when none of its tasks is known to run.
        Makes the offsets durable that the decision relies on.

        Raises:
            DeclinedError: the attempt failed, or was cancelled.
            StopJobError: the job must not go on.
        """

    def execute(self) -> None:
        """Run a decided micro-batch without sinks, for the state and watermark that the host keeps.

        Called at most once, and only if `Plan.stateful`.
        """


Handle = Callable[[int, MicroBatch], None]
"""Handles micro-batch n. Returns only when it is decided; otherwise it raises (hazards H54, H56).

A host calls it for one micro-batch at a time, in ascending order, beginning with the newest one
that it has not noted as finished. It notes a micro-batch as finished when the call has returned.
"""


class Query(Protocol):
    """One run of the query that a host has started."""

    @property
    def is_active(self) -> bool:
        """True while it may still begin micro-batches, or note one as finished."""

    def wait(self) -> None:
        """Wait for its end, and for that of its micro-batch: `Handle` is not called any more.

        Raises:
            Exception: what made it fail: the error of `Handle` itself if that was it. After a stop,
                only a `StopJobError` that the micro-batch has met.
        """

    def stop(self) -> None:
        """Cancel the micro-batch under way and let no other one begin. Called from any thread."""


class LineageFolder(Protocol):
    """What a host keeps durably of the query of one lineage: planned and finished micro-batches."""

    def prepare(self, newest: Decision | None) -> None:
        """Make the folder ready for the start of the query, or validate it against the log.

        Args:
            newest: the newest decided checkpoint of the lineage.

        Raises:
            CheckpointMissingError: the folder is gone, but the log has decisions.
            OffsetMismatchError: the folder is foreign, an old copy, or damaged.
            OSError: it cannot be read or written.
        """

    def finish(self, newest: Decision | None) -> bool:
        """Note the newest micro-batch as finished if it is committed; return whether it was noted.

        It then does not run again. Its records may have expired (hazard H62).
        """

    def offsets(self, batch: int) -> FrozenOffsets:
        """Return the frozen offsets of a micro-batch, start and end.

        Raises:
            OffsetMismatchError: they are not there.
            OSError: they cannot be read.
        """

    def finished(self) -> int:
        """Return the newest micro-batch that is noted as finished; -1 before the first."""


class Beginning(Protocol):
    """What one run of the query begins with: the current lineage, a fresh one, or a restore."""

    @property
    def restore(self) -> Restore | None:
        """The restore whose lineage is about to begin, if any."""

    def begin(self, coordinator: CheckpointCoordinator) -> None:
        """Begin the lineage, after recovery, unless the log has it already.

        Raises:
            ConfigError: the options rule it out; nothing was written.
        """

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        """Give the functions their state, and validate the plan against the state that it goes on.

        Raises:
            ConfigError: they do not fit.
        """

    def close(self) -> None:
        """Release what recovery has needed. Called once, after recovery."""


FolderT = TypeVar("FolderT", bound=LineageFolder)
FolderT_co = TypeVar("FolderT_co", bound=LineageFolder, covariant=True)


class Host(Protocol[FolderT_co]):
    """Runs the micro-batches of one job. That of a plugin query is no more than this."""

    @property
    def clock(self) -> Clock:
        """The time."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """Return an unstarted thread that runs a function as this thread would."""

    def sink_context(self, sink: str) -> SinkContext:
        """Return the context in which the sink of a name is opened.

        Raises:
            ConfigError: the columns for it cannot be known.
        """

    def plan(self) -> Plan:
        """Return what is known of the plan, checked before each run of the query.

        Raises:
            ConfigError: it cannot run with these options or settings; nothing was written.
        """

    def beginning(self, context: JobContext, plan: Plan) -> Beginning:
        """Return what the next run begins with; writes nothing.

        Raises:
            ConfigError: the job cannot go on from what the options name.
        """

    def folder(self, lineage: Lineage) -> FolderT_co:
        """Return the folder of a lineage."""

    def delete_folders(self, history: History) -> None:
        """Delete the folders of lineages that nothing needs."""

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        """Return the operator states for a checkpoint; an exception declines the attempt."""


class QueryHost(Host[FolderT], Protocol[FolderT]):
    """A host that the engine starts and restarts the query of."""

    def start(
        self, coordinator: CheckpointCoordinator, folder: FolderT, plan: Plan, handle: Handle
    ) -> Query:
        """Start the query.

        Args:
            coordinator: recovered, with a lineage.
            folder: of that lineage, prepared.
            plan: what `Host.plan` has returned for this run.
            handle: called for each micro-batch.
        """

    def failed(self, error: BaseException) -> BaseException:
        """Return what ended a run, as the job reports it, or why the host itself is gone."""

    def close(self) -> None:
        """Release connections. Runs once, when the job has ended; a crash may skip it."""

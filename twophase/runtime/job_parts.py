"""The description of a job, and the parts of it that outlive a run of its query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from twophase.config import JobOptions
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.context import JobContext
from twophase.coordinator.failure_manager import FailureManager
from twophase.coordinator.fan_out import SideBySide
from twophase.errors import ConfigError
from twophase.events import Observer, Observers
from twophase.protocol.listener import CheckpointedFunction, CheckpointListener
from twophase.protocol.sink import SinkContext
from twophase.runtime import logical_plan, state_plan
from twophase.runtime.batch import JobSink
from twophase.runtime.claimed_savepoint import ClaimedSavepoint
from twophase.runtime.group_offsets import GroupOffsetsListener
from twophase.runtime.logging_observer import log_event
from twophase.runtime.operator_states import OperatorStates
from twophase.runtime.shared_folder import SharedFolder
from twophase.runtime.spark_jobs import thread_like_this
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class JobDescription:
    """Everything a job is made of. See `StreamWriter` for the fields."""

    name: str
    frame: DataFrame
    sinks: Mapping[str, JobSink]
    options: JobOptions
    trigger: Mapping[str, Any]
    listeners: tuple[CheckpointListener, ...]
    functions: Mapping[str, CheckpointedFunction]
    observers: tuple[Observer, ...]


class JobParts:
    """The parts of a job that all runs of its query share.

    Args:
        description: of the job.

    Attributes:
        description: as given.
        storage: the job's folder.
        observers: receive every event.
        sinks: the sinks by name, in the user's order.
        states: the operator states.
        groups: commits group offsets to Kafka.
        fan_out: calls the sinks side by side.
        shared: finds executors that do not share the job's folder.
        failures: counts the failed attempts at checkpoints.
    """

    def __init__(self, description: JobDescription) -> None:
        self.description = description
        self.storage = LocalStorage(description.options.checkpoint_location)
        self.observers = Observers(log_event, *description.observers)
        self.sinks = {name: entry.sink for name, entry in description.sinks.items()}
        legs = logical_plan.sources(description.frame)
        self.states = OperatorStates(
            legs, description.functions, state_plan.describe(description.frame)
        )
        self.groups = GroupOffsetsListener(description.name, legs, self.observers)
        self.fan_out = SideBySide(partial(thread_like_this, self.spark, f"twophase-{self.name}"))
        self.shared = SharedFolder(self.name, self.spark.sparkContext, self.storage.root / "spark")
        self.failures = FailureManager(description.options.tolerable_failures)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.description.name

    @property
    def spark(self) -> SparkSession:
        """The session of the job's DataFrame."""
        return self.description.frame.sparkSession

    def listeners(self) -> Iterable[CheckpointListener]:
        """Everything that is notified of checkpoints, in order."""
        claimed = ClaimedSavepoint(self.name, self.storage, self.description.options)
        return (self.groups, *self.states.listeners(), *self.description.listeners, claimed)

    def new_context(self) -> JobContext:
        """Return the job as the driver of one run of its query sees it."""
        return JobContext(
            self.name,
            self.storage,
            self.sinks,
            self.description.options,
            self.observers,
            SystemClock(),
            listeners=tuple(self.listeners()),
            fan_out=self.fan_out,
            failures=self.failures,
        )

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> Mapping[str, Any]:
        """Return the operator states for a checkpoint."""
        self.groups.remember(checkpoint, offsets.end)
        return self.states.snapshot(checkpoint, offsets)

    def open_sinks(self) -> None:
        """Open the sinks side by side; raise the first error in the user's order.

        Raises:
            ConfigError: a sink's options or columns are not right, or two sinks
                write to one target.
            PreflightError: a target cannot keep the protocol's promises.
        """

        def open_sink(described: SinkContext, _: Observers) -> None:
            self.sinks[described.sink].open(described)

        described = map(self.sink_context, self.sinks)
        self.fan_out({one.sink: partial(open_sink, one) for one in described}, self.observers)
        self._check_targets()

    def sink_context(self, name: str) -> SinkContext:
        """Return the context in which the sink of a name is opened."""
        context = self.spark.sparkContext
        return SinkContext(
            self.name,
            name,
            self._schema(name),
            context.defaultParallelism,
            context.getConf().get("spark.speculation", "false") == "true",
            self.description.options.max_concurrent,
        )

    def closers(self) -> Iterable[Callable[[], None]]:
        """Return what to call when the job has ended; call each, even if another one fails."""
        return (*(sink.close for sink in self.sinks.values()), self.groups.close)

    def _check_targets(self) -> None:
        targets: dict[str, str] = {}
        for name, sink in self.sinks.items():
            other = targets.setdefault(sink.target(), name)
            if other != name:
                raise ConfigError(
                    f"Job {self.name!r}: sinks {other!r} and {name!r} write to one target, "
                    f"{sink.target()}: they would wait for each other's locks.",
                    remedy="write both from one sink, with a union before it.",
                )

    def _schema(self, name: str) -> pa.Schema:
        """The columns that the sink sees. A transform that needs a plain DataFrame fails here."""
        try:
            zone = self.spark.conf.get("spark.sql.session.timeZone")
            rows = self.description.sinks[name].rows(self.description.frame)
            return to_arrow_schema(rows.schema, timezone=zone)
        except Exception as error:
            raise ConfigError(
                f"Job {self.name!r}: the columns for sink {name!r} cannot be known: {error}."
            ) from error

"""The plugin form as a host: Spark itself starts the query and calls for each micro-batch.

The lineage of this form is Spark's query id. Spark's folder is the user's checkpointLocation, which
is validated and never written here.
"""

from __future__ import annotations

from collections.abc import Callable

from twophase.contract.sink import ArrowSink, OpenArrowSink, SinkContext
from twophase.coordinator.commit.commit_queue import Thread, plain_thread
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.host import Plan
from twophase.errors import ConfigError
from twophase.internals.clock import SystemClock
from twophase.internals.sink_entry_points import load_sink
from twophase.spark.folder.adopted_offsets import begins_without_state
from twophase.spark.folder.spark_folder import SparkFolder, query_id
from twophase.spark.plugin.adopted_query import ADOPTION_REMEDY
from twophase.spark.plugin.confirmed_start import check_planned
from twophase.spark.plugin.description import PluginDescription
from twophase.spark_versions import to_arrow_schema
from twophase.state.checkpoints import replay_guard
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields
from twophase.state.journal.entries import Decision, Lineage
from twophase.state.journal.history import History

_REMEDY = (
    "restore what Spark has in the query's checkpointLocation as it was after the newest "
    "checkpoint, and leave `twophase` in it as it is; this form has no restore. A query that has "
    "run without twophase until now needs a new checkpointLocation."
)


class QueryFolder(SparkFolder):
    """Spark's folder of the query, which Spark itself has made.

    Args:
        description: of the query.
        lineage: the lineage it belongs to.
        remedy: what to do when it does not.
    """

    def __init__(
        self, description: PluginDescription, lineage: Lineage, remedy: str = _REMEDY
    ) -> None:
        super().__init__(description.spark_folder, lineage, remedy)

    def prepare(self, newest: Decision | None) -> None:
        """Validate the folder against the log."""
        self.check(newest)


class QueryBeginning:
    """The current lineage, or a fresh one under Spark's id of the query. There is no restore.

    Args:
        description: of the query.
    """

    restore: Restore | None = None

    def __init__(self, description: PluginDescription) -> None:
        self._description = description

    def begin(self, coordinator: CheckpointCoordinator) -> None:
        """See `Beginning.begin`."""
        history = coordinator.history
        if history.lineage is None:
            lineage = Lineage(query_id(self._description.spark_folder))
            QueryFolder(self._description, lineage).check(None)
            coordinator.begin_lineage(lineage)
        elif begins_without_state(history):
            self._check_adopted(history, history.lineage)

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        """This form has no functions, and does not see the plan."""

    def close(self) -> None:
        """There is nothing to release."""

    def _check_adopted(self, history: History, lineage: Lineage) -> None:
        """Check the first start after an adoption, which has prepared the folder.

        Raises:
            OffsetMismatchError: Spark has another one, by whose offsets it would write
                again what was adopted; or has begun elsewhere than was confirmed.
            ConfigError: the plan is known to keep state, and none of it was adopted.
        """
        description = self._description
        QueryFolder(description, lineage, ADOPTION_REMEDY).check(None)
        check_planned(description, history)
        if replay_guard.are_planned(description.spark_folder):
            raise ConfigError(
                f"Job {description.job!r}: its log was adopted from the target, which holds "
                "nothing of the state that the query keeps in Spark. Nothing was written.",
                remedy="restore the query's checkpointLocation from one backup, and start it: it "
                "goes on, or its error says how. Or begin under another name in another "
                "checkpointLocation.",
            )


class PluginHost:
    """See `twophase.engine.host.Host`.

    Args:
        description: of the query.

    Attributes:
        clock: the machine's.
    """

    def __init__(self, description: PluginDescription) -> None:
        self.clock = SystemClock()
        self._description = description

    def thread(self, name: str, run: Callable[[], None]) -> Thread:  # noqa: ARG002
        """See `Host.thread`."""
        return plain_thread(run)

    def sink_context(self, sink: str) -> SinkContext:
        """See `Host.sink_context`."""
        description, environment = self._description, self._description.environment
        return SinkContext(
            description.job,
            sink,
            to_arrow_schema(description.schema, timezone=environment.timezone),
            environment.parallelism,
            environment.speculation,
        )

    def plan(self) -> Plan:
        """See `Host.plan`.

        Spark itself runs a decided micro-batch again, whose tasks write nothing. The listener notes
        it as finished where that is possible (spark/plugin/query_start.py). What the query reads is
        not known here.
        """
        return Plan(stateful=False, keeps_state=False, has_watermark=True, skips_existing=True)

    def beginning(self, context: JobContext, plan: Plan) -> QueryBeginning:  # noqa: ARG002
        """See `Host.beginning`."""
        return QueryBeginning(self._description)

    def folder(self, lineage: Lineage) -> QueryFolder:
        """See `Host.folder`."""
        return QueryFolder(self._description, lineage)

    def delete_folders(self, history: History) -> None:
        """See `Host.delete_folders`: the only folder is the user's."""

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:  # noqa: ARG002
        """See `Host.snapshot`: there is no operator state."""
        return {}


def open_sink(description: PluginDescription, context: SinkContext) -> OpenArrowSink:
    """Open the sink of a query.

    Raises:
        ConfigError: an option of it is not right, or it cannot be written in this form.
        PreflightError: the target cannot keep the protocol's promises.
    """
    where = f"format 'twophase-{description.sink_type}'"
    kind = _kind(where, description)
    if (fault := description.environment.fault) is not None:
        unknown = "this form does not know whether its plan shuffles rows"
        raise fault.refusal(description.job, unknown)
    try:
        declared = kind(**description.sink_options)
    except TypeError as error:
        what = f"{where}: {kind.__name__} does not take these options: {error}."
        raise ConfigError(what) from error
    return declared.open(context)


def _kind(where: str, description: PluginDescription) -> type[ArrowSink]:
    """Return the class of the sink."""
    kind = load_sink(where, description.sink_type)
    if not (isinstance(kind, type) and issubclass(kind, ArrowSink)):
        raise ConfigError(
            f"{where}: {kind.__name__} commits on the driver, "
            "so it cannot be used as a writeStream format.",
            remedy="use twophase.write_stream with it.",
        )
    if kind.needs_spark:
        raise ConfigError(
            f"{where}: {kind.__name__} commits through a Spark session, and Spark plans and "
            "commits this form without one.",
            remedy="use twophase.write_stream with it.",
        )
    return kind

"""A host without Spark that restores lineages into Spark's folder, as a Spark job does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.query_folder import QueryFolder
from twophase.contract.sink import Sink
from twophase.coordinator.commit.context import JobContext
from twophase.engine.host import Plan
from twophase.operations.savepoint.abandoned_folders import delete_abandoned
from twophase.options.job_options import JobOptions
from twophase.spark.job.lineage_start import LineageStart
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage
from twophase.state.journal.history import History
from twophase.testing.plain_host import PlainHost, Rows, Workers


class FolderHost(PlainHost):
    """The parts of a host that concern Spark's folder; a subclass has the plan.

    Args:
        job: the job's name.
        options: of the job.
        rows: the input.
        declared: the sinks, by name.
        states: of the job.
        workers: run the tasks.
        forever: as `PlainHost` has it.

    Attributes:
        check: `LineageStart`'s.
        rewound: the same.
    """

    check: Callable[[], None] | None = None
    rewound: Callable[[int, Sequence[str | None]], None] | None = None

    def __init__(
        self,
        job: str,
        options: JobOptions,
        rows: Rows,
        declared: Mapping[str, Sink],
        states: OperatorStates,
        workers: Workers | None = None,
        *,
        forever: bool = False,
    ) -> None:
        super().__init__(job, options, rows, workers, forever=forever)
        self._declared = declared
        self._states = states
        self._storage = LocalStorage(options.checkpoint_location)
        self._spark = self._storage.root / "spark"

    def beginning(self, context: JobContext, plan: Plan) -> LineageStart:
        declared, states = self._declared, self._states
        hears = self.check, self.rewound
        return LineageStart(context, self._storage, states, plan, declared, *hears)

    def folder(self, lineage: Lineage) -> QueryFolder:
        return QueryFolder(self._spark / lineage.id, lineage)

    def delete_folders(self, history: History) -> None:
        delete_abandoned(self._spark, history, 1)

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        return self._states.snapshot(checkpoint, offsets)

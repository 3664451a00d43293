"""Before a rewind: what it takes back from the sinks has to be there for the sources to read."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.coordinator.recovery.refusal import begun_and_refused
from twophase.errors import SourceLossError
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog


def check_sources(
    job: str,
    path: str,
    storage: LocalStorage,
    states: OperatorStates,
    lines: Sequence[str | None],
    options: JobOptions,
) -> None:
    """Refuse a rewind if a source can no longer read what comes after a checkpoint.

    That includes a rewind that has begun: it takes back no more.

    Args:
        job: the job's name.
        path: `restore.path`.
        storage: the folder of the job that is starting.
        states: the job's operator states.
        lines: where each source of the plan would begin.
        options: the job's options; nothing is checked unless they ask for a rewind.

    Raises:
        SourceLossError: one cannot. Nothing was taken back or written.
        SourceUnavailableError: one does not answer.
    """
    if options.sink_ahead is not SinkAhead.REWIND:
        return
    history = JobLog(storage, job).read()
    lineage = history.lineage
    try:
        states.check_readable(lines, storage.root / "spark" / lineage.id if lineage else None)
    except SourceLossError as error:
        if history.rewinding is not None:
            raise begun_and_refused(job, history.rewinding, error) from error
        raise type(error)(
            f"Job {job!r}: cannot rewind to {path}: rows would be taken back that could not be "
            f"written again. {error.what} Nothing was taken back or written.",
            remedy="restore a newer checkpoint or savepoint, or start without restore.path to go "
            f"on. To rewind all the same: {error.remedy}",
        ) from error

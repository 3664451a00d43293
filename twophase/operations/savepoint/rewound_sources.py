"""Before a rewind: what it takes back from the sinks has to be there for the sources to read."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twophase.coordinator.recovery.refusal import begun_and_refused
from twophase.errors import RestoreRefusedError, SourceLossError
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog

_log = logging.getLogger("twophase")


def check_sources(
    job: str,
    path: str,
    storage: LocalStorage,
    states: OperatorStates,
    lines: Sequence[str | None],
    options: JobOptions,
    *,
    takes_back: bool = False,
) -> None:
    """Refuse a rewind if a source cannot read what comes after a checkpoint, or cannot prove that.

    That includes a rewind that has begun: it takes back no more.

    Args:
        job: the job's name.
        path: `restore.path`.
        storage: the folder of the job that is starting.
        states: the job's operator states.
        lines: where each source of the plan would begin.
        options: the job's options; nothing is checked unless they ask for a rewind.
        takes_back: whether it is known that rows are taken back. If not, what cannot be proven is
            no reason to refuse.

    Raises:
        SourceLossError: one cannot. Nothing was taken back or written.
        RestoreRefusedError: rows would be taken back, and one cannot prove it. Nothing was taken
            back.
        SourceUnavailableError: one does not answer.
    """
    if options.sink_ahead is not SinkAhead.REWIND:
        return
    history = JobLog(storage, job).read()
    lineage = history.lineage
    try:
        spark = storage.root / "spark" / lineage.id if lineage else None
        unproven = states.unproven(lines, spark)
    except SourceLossError as error:
        if history.rewinding is not None:
            raise begun_and_refused(job, history.rewinding, error) from error
        raise type(error)(
            f"Job {job!r}: cannot rewind to {path}: rows would be taken back that could not be "
            f"written again. {error.what} Nothing was taken back or written.",
            remedy="restore a newer checkpoint or savepoint, or start without restore.path to go "
            f"on. To rewind all the same: {error.remedy}",
        ) from error
    if not takes_back:
        return
    if unproven and not options.allow_unproven_sources:
        refusal = RestoreRefusedError(
            f"Job {job!r}: cannot rewind to {path}: rows would be taken back, and whether all of "
            f"them can be written again is not proven. {' '.join(unproven)} Nothing was taken back "
            "or written.",
            remedy="rewind in the job's own folder if this one is new: a source may keep there "
            "what it has read; restore a newer savepoint; or start without restore.path in the "
            "job's own folder to go on. If you know that all records and files since then are "
            "still there, set `restore.allow_unproven_sources=true`.",
        )
        if history.rewinding is not None:
            raise begun_and_refused(job, history.rewinding, refusal)
        raise refusal
    for why in unproven:
        _log.warning("job %s: rewinds all the same. %s", job, why)

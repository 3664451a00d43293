"""Before a rewind: what it takes back from the sinks has to be there for the sources to read."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twophase.coordinator.recovery.refusal import begun_and_refused
from twophase.errors import RestoreRefusedError, TwoPhaseError
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Rewinding
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
        TwoPhaseError: one says that it cannot. Nothing was taken back.
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
    except TwoPhaseError as error:
        if error.restartable:
            raise
        raise _refused(job, path, history.rewinding, error) from error
    if not takes_back:
        return
    if unproven and not options.allow_unproven_sources:
        refusal = RestoreRefusedError(
            f"Whether all of it can be read again is not proven. {' '.join(unproven)}",
            remedy="rewind in the job's own folder if this one is new: a source may keep there "
            "what it has read. Or, if you know that all records and files since then are still "
            "there, set `restore.allow_unproven_sources=true`.",
        )
        raise _refused(job, path, history.rewinding, refusal)
    for why in unproven:
        _log.warning("job %s: rewinds all the same. %s", job, why)


def _refused(job: str, path: str, begun: Rewinding | None, error: TwoPhaseError) -> TwoPhaseError:
    """Return the error of a rewind for which a source cannot read again what is needed.

    Args:
        job: the job's name.
        path: `restore.path`.
        begun: the rewind that has begun, if one has.
        error: what is missing; its remedy says how to get that back, and nothing else: every row
            is in a target, so to begin elsewhere would write some twice.
    """
    if begun is not None:
        return begun_and_refused(job, begun, error)
    return type(error)(
        f"Job {job!r}: cannot rewind to {path}: what is taken back has to be read again. "
        f"{error.what} Nothing was taken back.",
        remedy="restore a newer checkpoint or savepoint, or start without restore.path in the "
        f"job's own folder to go on. To rewind all the same: {error.remedy}",
    )

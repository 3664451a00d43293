"""A fork: a job begins with the savepoint of a job of another name, which may go on beside it.

What the savepoint holds as pending is committed under the identity that it was written with (H30),
through sinks that are opened in the name of that job. They only commit: nothing of that job is
aborted, fenced or subsumed. The new lineage has no ancestors and no proofs, which belong to the
other job in every target.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping

from twophase.contract.sink import OpenSink, Sink, SinkContext
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import RestoreRefusedError
from twophase.options.job_options import SinkAhead

_log = logging.getLogger("twophase")


def open_as(declared: Mapping[str, Sink], sink: str, job: str, name: str) -> OpenSink:
    """Open a declared sink in another name, for a look or a commit: no rows will follow.

    Args:
        declared: the sinks of the job that begins.
        sink: its name there.
        job: in whose name it is opened.
        name: in which name of a sink.
    """
    return declared[sink].open(SinkContext(job, name, None, parallelism=0))


def open_original(
    job: str, restore: Restore, declared: Mapping[str, Sink], sinks: Mapping[str, OpenSink]
) -> dict[str, OpenSink]:
    """Open each sink that a fork commits pieces in once more, in the name of the savepoint's job.

    Args:
        job: the job that begins.
        restore: what it begins with.
        declared: the sinks of the job that begins.
        sinks: the same, open.

    Returns:
        Sinks to close after the commit; empty if nothing is pending, or if this is no fork.

    Raises:
        RestoreRefusedError: the job does not have the target of such a piece.
        Exception: a sink could not be opened; those that were are closed.
    """
    opened: dict[str, OpenSink] = {}
    try:
        for name in check_original(job, restore, sinks):
            opened[name] = open_as(declared, name, restore.checkpoint.job, name)
    except BaseException:
        close_all(opened)
        raise
    return opened


def check_original(job: str, restore: Restore, sinks: Mapping[str, OpenSink]) -> list[str]:
    """Return the names of the sinks that a fork commits pieces in, when each has their target.

    Raises:
        RestoreRefusedError: as `open_original`.
    """
    if restore.sink_ahead is not SinkAhead.FORK:
        return []
    targets = {
        (name, piece.target)
        for checkpoint in restore.adopting
        for name, pieces in checkpoint.committables.items()
        for piece in pieces
    }
    for name, target in sorted(targets):
        if name not in sinks or sinks[name].target() != target:
            raise _elsewhere(job, restore, name, target)
    return [*dict.fromkeys(name for name, _ in sorted(targets))]


def close_all(sinks: Mapping[str, OpenSink]) -> None:
    """Close sinks that `open_original` has opened."""
    for name, sink in sinks.items():
        try:
            sink.close()
        except Exception as error:  # noqa: BLE001 what the start has met counts
            _log.warning("sink %s cannot be closed: %s", name, error)


def _elsewhere(job: str, restore: Restore, sink: str, target: str) -> RestoreRefusedError:
    original, path = restore.checkpoint.job, restore.lineage.restored_from
    return RestoreRefusedError(
        f"Job {job!r}: cannot fork from {path}: its checkpoint "
        f"{restore.checkpoint.checkpoint} is decided and not committed in every sink, and sink "
        f"{sink!r} with the target {target} is not one of this job. Nothing was written.",
        remedy=f"commit it there first, with the job file of {original!r}: "
        f"twophase savepoint finish {original}.yaml {shlex.quote(path)}",
    )

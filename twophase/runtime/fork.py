"""A fork: a job begins with the savepoint of a job of another name, which may go on beside it.

What the savepoint holds as pending is committed under the identity that it was written with (H30),
through sinks that are opened in the name of that job. They only commit: nothing of that job is
aborted, fenced or subsumed. The new lineage has no ancestors and no proofs, which belong to the
other job in every target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from twophase.errors import RestoreRefusedError
from twophase.protocol.sink import OpensForRepair, Sink, SinkContext
from twophase.state.savepoint import Savepoint

_NO_COLUMNS = pa.schema([])
Describe = Callable[[str], SinkContext]
"""Returns the context in which the job has opened the sink of a name."""


def open_original(
    job: str, savepoint: Savepoint, sinks: Mapping[str, Sink], describe: Describe
) -> dict[str, Sink]:
    """Open a second instance of each sink that has pieces to commit, in the savepoint's job's name.

    Args:
        job: the job that begins.
        savepoint: of another job, verified.
        sinks: of the job that begins, opened.
        describe: returns their contexts.

    Returns:
        Sinks to close after the commit; empty if nothing is pending.

    Raises:
        RestoreRefusedError: the job does not have the target of such a piece.
        Exception: a sink could not be opened; those that were are closed.
    """
    opened: dict[str, Sink] = {}
    try:
        for name in check_original(job, savepoint, sinks):
            opened[name] = _second(sinks[name])
            _open(opened[name], savepoint.manifest.job, describe(name))
    except BaseException:
        close_all(opened)
        raise
    return opened


def check_original(job: str, savepoint: Savepoint, sinks: Mapping[str, Sink]) -> list[str]:
    """Return the names of the sinks with pieces to commit, when each has their target.

    Raises:
        RestoreRefusedError: as `open_original`.
    """
    targets = {
        (name, piece.target)
        for checkpoint in savepoint.pending()
        for name, pieces in checkpoint.committables.items()
        for piece in pieces
    }
    for name, target in sorted(targets):
        if name not in sinks or sinks[name].target() != target:
            raise _elsewhere(job, savepoint, name, target)
    return [*dict.fromkeys(name for name, _ in sorted(targets))]


def close_all(sinks: Mapping[str, Sink]) -> None:
    """Close sinks that `open_original` has opened."""
    for sink in sinks.values():
        sink.close()


def _second(sink: Sink) -> Sink:
    """Return another sink with the same options; `open` replaces all that belongs to a job."""
    other = object.__new__(type(sink))
    vars(other).update(vars(sink))
    return other


def _open(sink: Sink, job: str, mine: SinkContext) -> None:
    if isinstance(sink, OpensForRepair):
        sink.open_for_repair(SinkContext(job, mine.sink, _NO_COLUMNS, parallelism=0))
    else:
        sink.open(SinkContext(job, mine.sink, mine.schema, mine.parallelism, mine.speculation))


def _elsewhere(job: str, savepoint: Savepoint, sink: str, target: str) -> RestoreRefusedError:
    original = savepoint.manifest.job
    return RestoreRefusedError(
        f"Job {job!r}: cannot fork from {savepoint.where}: its checkpoint "
        f"{savepoint.manifest.checkpoint} is decided and not committed in every sink, and sink "
        f"{sink!r} with the target {target} is not one of this job. Nothing was written.",
        remedy=f"commit it there first, with the job file of {original!r}: "
        f"twophase savepoint finish {original}.yaml {savepoint.where}",
    )

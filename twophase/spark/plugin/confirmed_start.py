"""Where a query begins whose log was adopted, and where an operator has confirmed that it does.

Two things tell where a query of this form begins. Its `start()` knows the sources and their
options, in a session of the driver's own process that has called `twophase.register`. What Spark
has planned knows the offsets, whoever has started the query:

    offsets/0          where micro-batch 0 ends; that of `twophase-kafka` says where it began
    sources/<place>/0  where Spark's own `kafka` began

A beginning is compared in both ways. Where Spark's folder does not tell, as with `earliest`, it has
to be compared by `start()`, which leaves an option on the query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import owner_of
from twophase.errors import OffsetMismatchError, TwoPhaseError
from twophase.spark.folder.adopted_offsets import confirmed_start
from twophase.spark.folder.query_folder import log_folder
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plan.operator_states import check_starting, starting_text
from twophase.spark.plugin.description import PluginDescription
from twophase.state.files.listing import listed_below
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage, StartingOffsets
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

_log = logging.getLogger("twophase")


def compared_lineage(
    description: PluginDescription, legs: Callable[[], Iterable[SourceLeg]]
) -> str | None:
    """Compare what a query is about to read with what was confirmed. Runs in its `start()`.

    Args:
        description: of the query.
        legs: returns its sources.

    Returns:
        The lineage that it was compared for; None if nothing was confirmed.

    Raises:
        ConfigError: a source begins elsewhere by its options.
        OffsetMismatchError: likewise, in a micro-batch that Spark has planned already.
    """
    job, path, history = description.job, description.spark_folder, History()
    if (log := log_folder(path)).is_dir():
        with suppress(OSError, TwoPhaseError):  # the query fails with it
            history = JobLog(LocalStorage(log), job).read()
    confirmed, lineage = confirmed_start(history), history.lineage
    if not confirmed or lineage is None:
        return None
    check_starting(job, legs(), confirmed)
    begins = begins_as_confirmed(path, history)
    if begins is False:
        raise _begun_elsewhere(job, confirmed)
    if begins is None and SparkFolder(path, lineage).planned() >= 0:
        _log.warning(
            "Job %r: an earlier start has planned its first micro-batch, and nothing tells whether "
            "that begins at %s, as was confirmed. If that start had others, records may be "
            "missing or duplicated.",
            *(job, starting_text(confirmed)),
        )
    return lineage.id


def check_planned(description: PluginDescription, history: History) -> None:
    """Compare what Spark has planned with what was confirmed. Runs before the query writes.

    Raises:
        OffsetMismatchError: a source has begun elsewhere; or nobody can tell, and rows would come
            twice if it has.
    """
    confirmed, lineage = confirmed_start(history), history.lineage
    begins = begins_as_confirmed(description.spark_folder, history)
    if begins is False:
        raise _begun_elsewhere(description.job, confirmed)
    if begins is True or lineage is None or description.compared == lineage.id:
        return
    if any(adopted >= 0 for adopted in lineage.ancestors.values()):
        raise _not_compared(description.job, confirmed)


def begins_as_confirmed(path: Path, history: History) -> bool | None:
    """Return whether the micro-batch that Spark has planned begins where it was confirmed.

    Args:
        path: Spark's folder of the query.
        history: the job's; without a checkpoint in its lineage since the adoption.

    Returns:
        None if that cannot be told. True if nothing was confirmed.

    Raises:
        OffsetMismatchError: the folder is damaged.
        OSError: it cannot be read.
    """
    confirmed = confirmed_start(history)
    if not confirmed:
        return True
    found = [_is_confirmed(line, confirmed) for line in _beginnings(path)]
    if False in found:
        return False
    return None if None in found or not found else True


def _beginnings(path: Path) -> Iterator[str | None]:
    """Yield the line at which each source has begun; None for one that does not tell."""
    folder = SparkFolder(path, Lineage(""))
    if folder.planned() < 0:
        return
    lines = folder.offsets(0).start
    told = [line for line in lines if line is not None]
    first = [one for one in listed_below(path / "sources") if one.name == "0"]
    told += filter(None, map(noted_line, first))
    yield from told
    if len(told) < len(lines):
        yield None


def noted_line(path: Path) -> str | None:
    """Return the offset line in what a source has noted of its own; None if it has another."""
    line = path.read_bytes().decode(errors="replace").rpartition("\n")[2]
    return line if owner_of(line)[0] else None


def _is_confirmed(line: str | None, confirmed: Sequence[StartingOffsets]) -> bool | None:
    if line is None:
        return None
    _, source = owner_of(line)
    uid = source.uid_in(line)
    found = [
        None if one.offsets is None else source.begins_at(line, one.offsets)
        for one in confirmed
        if one.uid == uid
    ]
    return True if True in found else None if None in found else False


def _begun_elsewhere(job: str, confirmed: Sequence[StartingOffsets]) -> OffsetMismatchError:
    wanted = starting_text(confirmed)
    return OffsetMismatchError(
        f"Job {job!r}: when its log was adopted, it was confirmed that it begins at {wanted}; "
        "Spark has planned its first micro-batch from elsewhere. Records would be missing or "
        "duplicated. Nothing was written.",
        remedy=f"set {wanted} on the query, and run `twophase repair adopt-from-target JOB.yaml "
        "--from-starting-offsets` once more before you start it: it moves away what Spark has "
        "planned.",
    )


def _not_compared(job: str, confirmed: Sequence[StartingOffsets]) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"Job {job!r}: when its log was adopted, it was confirmed that it begins at "
        f"{starting_text(confirmed)}. The offsets that Spark has planned do not tell whether it "
        "does, and its options were not seen. Records could be missing or duplicated. Nothing "
        "was written.",
        remedy="set the offset of every partition in JOB.yaml and on the query, such as "
        '`startingOffsets={"orders":{"0":20}}`, and run `twophase repair adopt-from-target '
        "JOB.yaml --from-starting-offsets` once more before you start it. If the source has no "
        "partitions, run it too; then make the first start in a session that is not one of Spark "
        "Connect.",
    )

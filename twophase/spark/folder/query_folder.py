"""The folder of a Spark query where that of a job is meant.

A query without twophase (`foreachBatch`) has its offsets there, which a job would not read: it
would read and write everything again. That of the plugin form has the folder of the job inside.
"""

from __future__ import annotations

from pathlib import Path

from twophase.contract.source_entry_points import owner_of
from twophase.errors import ConfigError, OffsetMismatchError
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Lineage

LOG = "twophase"
_SPARKS = ("offsets", "commits", "metadata")


def log_folder(query: Path) -> Path:
    """Return the folder of the job's log, inside Spark's folder of a query of the plugin form."""
    return query / LOG


def check_root(root: Path, *, repairs: bool = False) -> None:
    """Refuse Spark's folder of a query as the folder of a job.

    Args:
        root: the folder.
        repairs: for a repair, not for a start.

    Raises:
        ConfigError: it is Spark's folder of a query; says where another job begins behind it.
        OSError: it cannot be read.
    """
    found = [name for name in _SPARKS if (root / name).exists()]
    if not found:
        return
    log, remedies = log_folder(root), []
    if repairs or (log / "log").is_dir():
        remedies.append(f"to repair a query of the plugin form, give {log} as checkpointLocation.")
    if (root / "log").is_dir():
        left = ", ".join(found)
        remedies.append(f"For a job of write_stream, move what Spark has left there ({left}) away.")
    raise ConfigError(
        f"checkpointLocation {root} is Spark's folder of a query ({found[0]} is in it), not a "
        "job's folder: a job would not go on where that query ended. Nothing was written.",
        remedy=" ".join(remedies) or _new_folder(SparkFolder(root, Lineage(""))),
    )


def _new_folder(query: SparkFolder) -> str:
    """Return how a new job goes on after a query without twophase."""
    finished, planned = query.finished(), query.planned()
    try:
        lines = query.offsets(finished).end if finished >= 0 else ()
    except OffsetMismatchError:  # not of this version of Spark, or damaged
        lines = ()
    begins = " and ".join(owner_of(line)[1].begin_after(line) for line in lines if line)
    parts = [
        "give the job a checkpointLocation of its own"
        + (f", and {begins}: there micro-batch {finished} of the query ended." if begins else ".")
    ]
    if planned > finished:
        parts.append(
            f"Micro-batch {planned} had begun: some of its rows may be in the target, and the job "
            "would write them again."
        )
    parts.append("The steps are in docs/howto/migrate-from-foreachbatch.md.")
    return " ".join(parts)

"""Rewrites Spark's folder of a plugin-form query whose log was adopted from its target.

The lineage of this form is Spark's query id, and Spark freezes the first offsets before it calls
the sink. A start could change neither to match the adoption, so both are written before the query
starts, as `write_stream` does.

    metadata                    the id of the adopted lineage
    offsets/0, commits/0        where it begins, if that is known; otherwise Spark begins at the
                                query's startingOffsets
    twophase/replaced/<time>/   what was there before: Spark would run a micro-batch planned in it,
                                with its old offsets

The log adopts first. A crash in between leaves a query that refuses to start until the command is
run again. It then adopts once more, since nothing in this folder tells whether the adopted log is
an old copy by now: the target does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twophase.errors import ConfigError, OffsetMismatchError
from twophase.spark.folder.adopted_offsets import (
    begins_without_state,
    check_without_state,
    frozen_at,
)
from twophase.spark.folder.noted_settings import conf_in
from twophase.spark.folder.query_folder import log_folder
from twophase.spark.folder.spark_folder import SparkFolder, query_id
from twophase.spark.plugin.confirmed_start import begins_as_confirmed
from twophase.state.files.listing import listed
from twophase.state.files.storage import sync_path
from twophase.state.journal.entries import Lineage
from twophase.state.journal.history import History

if TYPE_CHECKING:
    from twophase.operations.repair.adoption_plan import Frozen

_SPARKS = ("offsets", "commits", "sources", "state", "ranges", ".metadata.crc", "metadata")
"""All that Spark and its listener keep in a query's folder; `metadata`, which identifies the
query, comes last.
"""
_REPLACED = "replaced"
_OF_FILES = "logOffset"
ADOPTION_REMEDY = (
    "stop the query, then run `twophase repair adopt-from-target JOB.yaml` (again): it writes "
    "Spark's folder again for the adopted log. No row of the new lineage is decided yet, so "
    "nothing is lost by that."
)
"""The remedy for a query that does not fit the lineage that was adopted for it."""


def query_folder(root: Path) -> Path | None:
    """Return Spark's folder around that of a job's log; None if not in the plugin form."""
    path = root.parent
    # a repair may have died after moving it
    is_sparks = (path / "metadata").is_file() or (root / _REPLACED).is_dir()
    is_log = root == log_folder(path) and is_sparks and not (root / "spark").exists()
    return path if is_log else None


def frozen_around(path: Path) -> Frozen:
    """Return a function that reads frozen offsets from Spark's folder of a query.

    Args:
        path: the folder; its only lineage is the query's.
    """
    return lambda lineage, batch: (
        frozen_at(path, lineage, batch) if query_id(path) == lineage else None
    )


def check_beginning(path: Path, end: Sequence[str | None]) -> None:
    """Refuse a query that could not begin where the adopted lineage ended.

    Args:
        path: Spark's folder.
        end: the offset line of each source; empty if the query begins at its startingOffsets.

    Raises:
        ConfigError: the folder has state, a source needs more than its offset, or Spark's
            settings are not known.
    """
    check_without_state(path)
    if any(_OF_FILES in (line or "") for line in end):
        raise ConfigError(
            f"The query reads a folder of files, and the offset {list(end)} has no meaning without "
            "Spark's list of those files. Nothing was written.",
            remedy="restore the whole checkpointLocation of the query from one backup; or start "
            "under another name in a new checkpointLocation, with only those files that the target "
            "does not have yet.",
        )
    if end and not _conf_in(path):
        raise ConfigError(
            f"Spark's folder {path} has no planned micro-batch, so the Spark settings of the query "
            "are unknown. Nothing was written.",
            remedy="start the query once: it fails, but leaves its settings there. "
            "Then run this command again.",
        )


def is_unwritten(path: Path, history: History) -> bool:
    """Return whether nothing is decided since an adoption that is not in Spark's folder yet, or not
    known to be: a start may have planned from elsewhere than was confirmed.
    """
    lineage = history.lineage
    if lineage is None or not begins_without_state(history):
        return False
    folder = SparkFolder(path, lineage)
    try:
        folder.check(None)
        return folder.planned() >= 0 and not begins_as_confirmed(path, history)
    except OffsetMismatchError:
        return True


def write_folder(path: Path, lineage: Lineage, now_ms: int) -> None:
    """Move aside what Spark has in the folder, and write what the lineage begins with.

    Args:
        path: Spark's folder.
        lineage: the adopted lineage, without a decided checkpoint.
        now_ms: Unix time in milliseconds.
    """
    conf = _conf_in(path)
    replaced = log_folder(path) / _REPLACED / str(now_ms)
    replaced.mkdir(mode=0o700, parents=True)
    for name in _SPARKS:
        if (path / name).exists():
            (path / name).rename(replaced / name)
    for changed in (replaced, replaced.parent, log_folder(path), path):
        sync_path(changed)
    SparkFolder(path, lineage, ADOPTION_REMEDY, conf).prepare(None)


def _conf_in(path: Path) -> Mapping[str, str]:
    """Return Spark's settings, also if a repair that died has moved their files aside."""
    replaced = (
        folder for folder in listed(log_folder(path) / _REPLACED) if folder.name.isdecimal()
    )
    aside = sorted(replaced, key=lambda folder: int(folder.name), reverse=True)
    return next(filter(None, map(conf_in, [path, *aside])), {})

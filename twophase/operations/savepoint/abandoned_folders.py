"""Deletes Spark's folders of the lineages that a job has left."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from twophase.operations.savepoint.savepoint_restore import LAID_BY, delete_folder
from twophase.state.checkpoints.store import retained
from twophase.state.journal.history import History

_LINEAGE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_log = logging.getLogger("twophase")


def delete_abandoned(root: Path, history: History, num_retained: int) -> None:
    """Delete the folders of abandoned lineages, with the state that Spark kept in them.

    The current lineage keeps its folder, and so do lineages with a checkpoint that can be restored,
    and those with the newest rows of a sink, because an error would name their offsets. What cannot
    be deleted is left to the next start.

    Args:
        root: holds a folder for each lineage, under its id. Folders that the log does not know are
            left alone, unless a restore of an older driver wrote them and their lineage never
            began.
        history: the job's history from its log.
        num_retained: how many committed checkpoints can be restored.
    """
    current = history.lineage
    if current is None:
        return
    needed = {proof.lineage for proof in history.committed_proofs()}
    needed |= {found.lineage for found in retained(history, num_retained)}
    known = {one.id for one in history.lineages}
    left = (known - needed - {current.id}) | _never_begun(root, known, history.generation)
    for name in sorted(left.intersection(os.listdir(root))):
        try:
            delete_folder(root / name)
        except FileNotFoundError:  # another process was quicker
            continue
        except OSError as error:
            _log.warning(
                "Spark's folder %s of a lineage that the job has left cannot be deleted: %s",
                root / name,
                error,
            )


def _never_begun(root: Path, known: Container[str], generation: int) -> set[str]:
    """Return the folders that restores of older drivers wrote, of lineages that never began.

    A driver of a newer generation may be writing one at this moment.
    """
    return {
        path.name
        for path in root.iterdir()
        if path.name not in known
        and _LINEAGE.fullmatch(path.name)
        and _generation_that_wrote(path) < generation
    }


def _generation_that_wrote(folder: Path) -> float:
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return int((folder / LAID_BY).read_text())
    return math.inf

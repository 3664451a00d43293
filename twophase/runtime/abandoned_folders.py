"""Deletes Spark's folders of the lineages that a job has left."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Container
from pathlib import Path

from twophase.state.records import History
from twophase.state.store import retained

_LINEAGE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_log = logging.getLogger("twophase")


def delete_abandoned(root: Path, history: History, num_retained: int) -> None:
    """Delete the folders of abandoned lineages, with the state that Spark kept in them.

    The current lineage keeps its folder, and so do lineages with a checkpoint that can be restored,
    and those with the newest rows of a sink, because an error would name their offsets. What cannot
    be deleted is left to the next start.

    Args:
        root: holds a folder for each lineage, under its id. Folders that the log does not
            know are left alone, unless a restore laid them and died before its lineage began.
        history: the job's history from its log.
        num_retained: how many committed checkpoints can be restored.
    """
    current = history.lineage
    if current is None:
        return
    proofs = (history.newest_committed(current.id) or current).proofs or ()
    needed = {proof.lineage for proof in proofs}
    needed |= {found.lineage for found in retained(history, num_retained)}
    known = {one.id for one in history.lineages}
    left = (known - needed - {current.id}) | _never_begun(root, known)
    for name in left.intersection(os.listdir(root)):
        try:
            shutil.rmtree(root / name)
        except FileNotFoundError:  # another process was quicker
            continue
        except OSError as error:
            _log.warning(
                "Spark's folder %s of a lineage that the job has left cannot be deleted: %s",
                root / name,
                error,
            )


def _never_begun(root: Path, known: Container[str]) -> set[str]:
    """Return the folders of lineages that never began: no `metadata` was written there."""
    return {
        path.name
        for path in root.iterdir()
        if path.name not in known
        and _LINEAGE.fullmatch(path.name)
        and not (path / "metadata").exists()
    }

"""Deletes Spark's folders of the lineages that a job has left."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from twophase.runtime.spark_folder import LAID
from twophase.state.records import History
from twophase.state.store import retained

_log = logging.getLogger("twophase")


def delete_abandoned(root: Path, history: History, num_retained: int) -> None:
    """Delete the folders of abandoned lineages, with the state that Spark kept in them.

    The current lineage keeps its folder, and so do lineages with a checkpoint that can be restored,
    and those with the newest rows of a sink, because an error would name their offsets. What cannot
    be deleted is left to the next start.

    Args:
        root: holds a folder for each lineage, under its id. Folders that the log does not
            know are left alone, but for what restores of older drivers have laid in vain.
        history: the job's history from its log.
        num_retained: how many committed checkpoints can be restored.
    """
    current = history.lineage
    if current is None:
        return
    proofs = (history.newest_committed(current.id) or current).proofs or ()
    needed = {proof.lineage for proof in proofs}
    needed |= {found.lineage for found in retained(history, num_retained)}
    left = {known.id for known in history.lineages} - needed - {current.id}
    for name in [one for one in os.listdir(root) if one in left or _is_in_vain(one, history)]:
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


def _is_in_vain(name: str, history: History) -> bool:
    """Return whether an older driver has laid a folder for a lineage that is not the current one.

    What a newer driver has laid stays: its lineage may have begun since the log was read.
    """
    laid = LAID.fullmatch(name)
    if laid is None or int(laid["generation"]) >= history.generation:
        return False
    return history.lineage is not None and laid["lineage"] != history.lineage.id

"""The micro-batch by which a job leaves topics behind: planned here, before Spark reads its folder.

It is one like every other: Spark runs it as one that a driver has planned and not finished, and its
checkpoint is decided, with the state as it was and no records of these topics.
"""

from __future__ import annotations

import logging

from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.checkpoints.releases import released
from twophase.state.journal.entries import Lineage
from twophase.state.journal.history import History

_log = logging.getLogger("twophase")


def plan_release(folder: SparkFolder, lineage: Lineage, history: History, now_ms: int) -> None:
    """Plan the micro-batch that leaves released topics behind, unless it is decided already.

    Args:
        folder: Spark's folder of the lineage; its newest decided micro-batch is noted as finished
            if it can be.
        lineage: the current lineage.
        history: of the log.
        now_ms: Unix time.

    Raises:
        OSError: the folder cannot be read or written.
    """
    newest = history.newest(lineage.id)
    number = newest.checkpoint if newest else lineage.first_checkpoint - 1
    if folder.finished() != number or folder.planned() < 0:
        return  # Spark runs it again before the next one
    start = folder.position(number)
    end = folder.position(number + 1) if folder.planned() > number else start
    after = {lineage.id: number} if newest else {**lineage.ancestors, lineage.id: number}
    planned = released(history, after, start, end)
    if planned != end:
        folder.freeze(number + 1, planned, now_ms)
        _log.info("micro-batch %d leaves released topics behind", number + 1)

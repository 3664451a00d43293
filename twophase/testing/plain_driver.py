"""The steps of a driver without Spark around the coordinator, for tests that kill it.

    1. `be_the_driver`   failpoints of its workers kill this process
    2. `begin_lineage`   after `CheckpointCoordinator.recover`
    3. `run_batch`       for each micro-batch, the newest decided one first, as Spark replays it

The driver itself decides where its rows come from, and in which processes its writers run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator, Replay
from twophase.ids import new_lineage_id
from twophase.internals.failpoints import DRIVER_VARIABLE, LOG_VARIABLE
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Lineage


def be_the_driver(failpoints_log: Path) -> None:
    """Make this process the one that `kill_driver` kills, for itself and all its children.

    Args:
        failpoints_log: receives a line for each failpoint that acts.
    """
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    os.environ[LOG_VARIABLE] = str(failpoints_log)


def begin_lineage(coordinator: CheckpointCoordinator, first_checkpoint: int = 0) -> None:
    """Begin a lineage unless the log has one.

    Args:
        coordinator: recovered.
        first_checkpoint: of a new lineage.
    """
    if coordinator.context.log.history.lineage is None:
        coordinator.begin_lineage(Lineage(new_lineage_id(), first_checkpoint=first_checkpoint))


def run_batch(
    coordinator: CheckpointCoordinator,
    number: int,
    offsets: FrozenOffsets,
    pre_commit: Callable[[PendingCheckpoint], None],
) -> None:
    """Do what `foreachBatch(number)` does without state; return when the batch is decided.

    Args:
        coordinator: recovered, with a lineage.
        number: of the micro-batch.
        offsets: as frozen before its first run.
        pre_commit: as `CheckpointCoordinator.checkpoint` takes it; not called if the checkpoint
            is decided already.

    Raises:
        DeclinedError: no attempt was decided; nothing of it is visible.
        StopJobError: the job must stop.
    """
    found = coordinator.classify(number, offsets)
    if isinstance(found, Replay):
        coordinator.replay(found.decision, None)
    else:
        coordinator.checkpoint(number, offsets, pre_commit)

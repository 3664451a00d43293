"""Checkpoint notifications for user code and sources, and the operator state that they keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class CheckpointListener(Protocol):
    """Receives notifications about checkpoints.

    Runs on the driver, in the order of the checkpoints, and never concurrently with another
    notification or a snapshot: in the query's thread, or, with `checkpoint.max_concurrent` above 1,
    in the commit thread. In that case a checkpoint may complete after the snapshot for the next
    one. A crash may lose a notification: never rely on one for correctness (Flink's
    CheckpointListener has the same rule). Checkpoints subsumed by a recovery are not notified. An
    exception from `notify_checkpoint_complete` fails the query after the checkpoint,
    which stays committed.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is decided and every sink has committed it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """An attempt at the checkpoint was declined; another attempt may follow."""

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """A newer checkpoint has replaced this one, which is no longer retained."""


@dataclass(frozen=True)
class SnapshotContext:
    """The checkpoint that a snapshotted state becomes part of: its number is `checkpoint_id`."""

    checkpoint_id: int


@dataclass(frozen=True)
class InitializationContext:
    """The state that a function starts from.

    Attributes:
        state: the state that `snapshot_state` returned for the newest decided checkpoint;
            empty on a fresh start.
        is_restored: whether there was such a checkpoint.
    """

    state: Mapping[str, Any]
    is_restored: bool


@runtime_checkable
class CheckpointedFunction(Protocol):
    """A driver-side function with operator state in every checkpoint."""

    def snapshot_state(self, context: SnapshotContext) -> Mapping[str, Any]:
        """Return the state as JSON values, once per attempt. An exception declines the attempt."""

    def initialize_state(self, context: InitializationContext) -> None:
        """Restore the state. Called once per start, after recovery, before any micro-batch."""

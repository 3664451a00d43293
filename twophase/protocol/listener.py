"""What user code and sources may hear of checkpoints, and the state they may keep in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class CheckpointListener(Protocol):
    """Hears what becomes of checkpoints.

    Runs on the driver, in the order of the checkpoints, and never at the same time as another notification or a snapshot:
    in the query's thread, or, with `checkpoint.max_concurrent` above 1, in the thread that commits. Then a checkpoint may
    complete after the snapshot for the next one. A crash may lose a notification: never rely on one for correctness
    (Flink's CheckpointListener has the same rule). A checkpoint that a recovery subsumes is not told of. An exception from
    `notify_checkpoint_complete` fails the query after the checkpoint, which stays committed.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is decided and every sink has committed it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """An attempt at the checkpoint was declined; another attempt may follow."""

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """A newer checkpoint has replaced this one, which is no longer kept."""


@dataclass(frozen=True)
class SnapshotContext:
    """Attributes: checkpoint_id: the checkpoint that the state becomes part of."""

    checkpoint_id: int


@dataclass(frozen=True)
class InitializationContext:
    """What a function starts from.

    Attributes:
        state: what `snapshot_state` returned at the newest decided checkpoint; empty on a fresh start.
        is_restored: whether there was such a checkpoint.
    """

    state: Mapping[str, Any]
    is_restored: bool


@runtime_checkable
class CheckpointedFunction(Protocol):
    """A driver-side function with operator state in every checkpoint."""

    def snapshot_state(self, context: SnapshotContext) -> Mapping[str, Any]:
        """Return the state as JSON values. Once per attempt; an exception declines the attempt."""

    def initialize_state(self, context: InitializationContext) -> None:
        """Take the state over. Once per start of the query, after recovery, before the first micro-batch."""

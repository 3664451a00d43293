"""Checkpoint notifications for user code and sources, and the operator state that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from twophase.functions.operator_state import OperatorStateStore, RawStateOutput


@runtime_checkable
class CheckpointListener(Protocol):
    """Receives notifications about checkpoints.

    Runs on the driver, in the order of the checkpoints, and never concurrently with another
    notification or a snapshot: in the query's thread, or, with `checkpoint.max_concurrent` above 1,
    in the commit thread. In that case a checkpoint may complete after the snapshot for the next
    one. A crash may lose a notification: never rely on one for correctness (Flink's
    CheckpointListener has the same rule). Checkpoints subsumed by a recovery are not notified. An
    exception from `notify_checkpoint_complete` or `notify_checkpoint_subsumed` fails the query
    after the checkpoint, which stays committed; one from `notify_checkpoint_aborted` is logged, and
    the query fails with what the attempt was declined for.
    """

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        """The checkpoint is decided and every sink has committed it."""

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """An attempt at the checkpoint was declined; another attempt may follow."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        """A newer checkpoint has replaced this one, which is no longer retained."""


@dataclass(frozen=True)
class SnapshotContext:
    """The checkpoint that a snapshotted state becomes part of.

    Attributes:
        checkpoint: its number.
        raw_operator_state_output: takes bytes that the function serializes itself.
    """

    checkpoint: int
    raw_operator_state_output: RawStateOutput = field(default_factory=RawStateOutput)


@dataclass(frozen=True)
class InitializationContext:
    """The state that a function starts from.

    Attributes:
        state: the state that `snapshot_state` returned for the newest decided checkpoint;
            empty on a fresh start.
        is_restored: whether there was such a checkpoint.
        operator_state_store: gives named states, with the entries of that checkpoint.
        raw_operator_state_inputs: the raw state in it: the bytes of each partition.
    """

    state: Mapping[str, Any]
    is_restored: bool
    operator_state_store: OperatorStateStore = field(default_factory=OperatorStateStore)
    raw_operator_state_inputs: Sequence[bytes] = ()


@runtime_checkable
class CheckpointedFunction(Protocol):
    """A driver-side function with operator state in every checkpoint.

    There are three forms of state: the states that `context.operator_state_store` gives by name,
    raw bytes, and the JSON values that `snapshot_state` returns. A function may use all three.
    """

    def snapshot_state(self, context: SnapshotContext) -> dict[str, Any] | None:
        """Update the named states, write raw state, or return JSON values: they come back with the
        keys of each dict sorted.

        Runs on the driver, once per attempt at a checkpoint, before any sink writes. An exception
        declines the attempt. What a declined attempt snapshotted is in no checkpoint.
        """

    def initialize_state(self, context: InitializationContext) -> None:
        """Ask for named states, restore all state.

        Runs on the driver, once per start of the query, after recovery, before any micro-batch.
        The states of an earlier start in this process are no longer part of a checkpoint: ask
        again.
        """

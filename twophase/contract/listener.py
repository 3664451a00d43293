"""Checkpoint notifications for user code and sources, and the operator state that they keep."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeGuard, runtime_checkable

from twophase.errors import ConfigError
from twophase.functions.operator_state import OperatorStateStore, RawStateOutput

_NOTIFICATIONS: Final = (
    "notify_checkpoint_complete",
    "notify_checkpoint_aborted",
    "notify_checkpoint_subsumed",
)
_STATE: Final = "snapshot_state", "initialize_state"


@runtime_checkable
class CheckpointListener(Protocol):
    """Receives notifications about checkpoints: those that it has a method for, one at least. A
    subclass may leave out any of them.

    Runs on the driver, in the order of the checkpoints, and never concurrently with another
    notification or a snapshot: in the query's thread, or, with `checkpoint.max_concurrent` above 1,
    in the commit thread. In that case a checkpoint may complete after the snapshot for the next
    one. A crash may lose a notification: never rely on one for correctness (Flink's
    CheckpointListener has the same rule). Checkpoints subsumed by a recovery are not notified. An
    exception from `notify_checkpoint_complete` or `notify_checkpoint_subsumed` fails the query
    after the checkpoint, which stays committed; one from `notify_checkpoint_aborted` is logged, and
    the query fails with what the attempt was declined for.
    """

    def notify_checkpoint_complete(self, checkpoint: int) -> None:  # noqa: ARG002
        """The checkpoint is decided and every sink has committed it."""
        return

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:  # noqa: ARG002
        """An attempt at the checkpoint was declined; another attempt may follow."""
        return

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:  # noqa: ARG002
        """A newer checkpoint has replaced this one, which is no longer retained."""
        return


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

    It may have methods of a `CheckpointListener`, too, any of them: they are called.
    """

    @abstractmethod
    def snapshot_state(self, context: SnapshotContext) -> dict[str, Any] | None:
        """Update the named states, write raw state, or return JSON values: they come back with the
        keys of each dict sorted.

        Runs on the driver, once per attempt at a checkpoint, before any sink writes. An exception
        declines the attempt. What a declined attempt snapshotted is in no checkpoint.
        """

    @abstractmethod
    def initialize_state(self, context: InitializationContext) -> None:
        """Ask for named states, restore all state.

        Runs on the driver, once per start of the query, after recovery, before any micro-batch.
        The states of an earlier start in this process are no longer part of a checkpoint: ask
        again.
        """


def is_listener(value: object) -> TypeGuard[CheckpointListener]:
    """Return whether an object has a method of a listener."""
    return any(hasattr(value, name) for name in _NOTIFICATIONS)


def check_function(where: str, function: object) -> None:
    """Check that an object is a function with state, and that all that it listens to is called.

    Args:
        where: which one it is, for the error.
        function: the object.

    Raises:
        ConfigError: it is not.
    """
    _check(where, function, _STATE)


def check_listener(where: str, listener: object) -> None:
    """Check that an object listens to checkpoints.

    Args:
        where: which one it is, for the error.
        listener: the object.

    Raises:
        ConfigError: it does not.
    """
    _check(where, listener, ())
    if not is_listener(listener):
        raise ConfigError(
            f"{where}: a {type(listener).__qualname__} has none of the methods "
            f"{', '.join(_NOTIFICATIONS)}.",
            remedy="give it one of them; a function that is called for each event is added with "
            ".observer(function).",
        )


def _check(where: str, given: object, required: Sequence[str]) -> None:
    if isinstance(given, type):
        raise ConfigError(
            f"{where}: {given.__qualname__} is a class, not an object.",
            remedy="make one of it, with parentheses after its name.",
        )
    kind = type(given).__qualname__
    for name in dir(given):
        if name.startswith("notify_checkpoint_") and name not in _NOTIFICATIONS:
            raise ConfigError(
                f"{where}: {kind}.{name} would never be called: a listener has "
                f"{', '.join(_NOTIFICATIONS)}.",
                remedy="name the method as one of these, or without notify_checkpoint_.",
            )
    for name in (*required, *(one for one in _NOTIFICATIONS if hasattr(given, one))):
        if not _takes_one(getattr(given, name, None)):
            raise ConfigError(
                f"{where}: {kind} needs a method {name} with one argument, not async.",
                remedy=f"define def {name}(self, {'context' if name in _STATE else 'checkpoint'}).",
            )


def _takes_one(method: Any) -> bool:
    """Return whether a method can be called with one argument."""
    if not callable(method) or inspect.iscoroutinefunction(method):
        return False
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        return False
    except ValueError:  # one in C tells nothing
        return True
    return True

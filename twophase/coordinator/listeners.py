"""The listeners of a job, and the lock under which they are notified."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from twophase.protocol.listener import CheckpointListener


class Listeners:
    """The listeners of a job, notified of one thing at a time.

    Args:
        listeners: in the order in which they are notified.

    Attributes:
        lock: held while they are notified; hold it while their state is snapshotted.
    """

    def __init__(self, listeners: Sequence[CheckpointListener]) -> None:
        self.lock = threading.RLock()
        self._listeners = listeners

    def complete(self, checkpoint: int) -> None:
        """The checkpoint is decided and committed."""
        with self.lock:
            for listener in self._listeners:
                listener.notify_checkpoint_complete(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        """An attempt at the checkpoint was declined."""
        with self.lock:
            for listener in self._listeners:
                listener.notify_checkpoint_aborted(checkpoint)

    def subsumed(self, checkpoint: int) -> None:
        """The checkpoint is not kept any more."""
        with self.lock:
            for listener in self._listeners:
                listener.notify_checkpoint_subsumed(checkpoint)

"""Counts failed attempts, as Flink's CheckpointFailureManager counts failed checkpoints.

Only failures whose reason counts are tolerated, so many of them in a row as
`checkpoint.tolerable_failures` says. A decided checkpoint sets the count back, and so does the
failure that passes the limit. Failures that do not count leave it as it is: the query fails with
them, and the restart strategy decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from twophase.failure_reason import CheckpointFailureReason
from twophase.state.stats import DeclinedAttempt

_REMEMBERED = 100


class FailureManager:
    """The failures of one job, over all runs of its query.

    Args:
        tolerable: how many in a row are tolerated.
    """

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._in_a_row = 0
        self._declined: deque[DeclinedAttempt] = deque(maxlen=_REMEMBERED)

    def remember(self, declined: DeclinedAttempt) -> None:
        """Keep an attempt, one of the newest, for the history of the next decided checkpoint."""
        self._declined.append(declined)

    def tolerates(self, reason: CheckpointFailureReason) -> bool:
        """Count a failed attempt; return whether it is tolerated, and so retried in place."""
        if not reason.counts:
            return False
        self._in_a_row += 1
        if self._in_a_row <= self._tolerable:
            return True
        self._in_a_row = 0
        return False

    def succeeded(self) -> Sequence[DeclinedAttempt]:
        """Note that a checkpoint is decided; return the attempts that were declined before it."""
        self._in_a_row = 0
        declined = tuple(self._declined)
        self._declined.clear()
        return declined

"""Counts failed attempts, as Flink's CheckpointFailureManager counts failed checkpoints.

Only failures whose reason counts are tolerated, so many of them in a row as
`checkpoint.tolerable_failures` says. A decided checkpoint sets the count back, and so does the
failure that passes the limit. Failures that do not count leave it as it is: the query fails with
them, and the restart strategy decides.

A checkpoint that fails in the same way so many times in a row would fail so for ever: the job ends,
whatever the strategy (docs/decisions/0066).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from twophase.errors import DeclinedError, RepeatedFailureError
from twophase.failure_reason import CheckpointFailureReason
from twophase.state.journal.stats import DeclinedAttempt

_REMEMBERED = 100
SAME_FAILURES = 10
"""With the default restart strategy the tenth failure is more than four minutes after the first."""


class InARow:
    """Counts the same failure in a row; one without a fingerprint, in between, is none."""

    def __init__(self) -> None:
        self._failed: tuple[int, str] | None = None
        self._same = 0

    def count(self, failed: tuple[int, str]) -> int:
        """Return how many times this has failed by now; 0 without a fingerprint."""
        if not failed[1]:
            return 0
        self._same = self._same + 1 if failed == self._failed else 1
        self._failed = failed
        return self._same

    def has(self, fingerprint: str) -> bool:
        """Return whether the newest failure has a fingerprint."""
        return self._failed is not None and self._failed[1] == fingerprint


class FailureManager:
    """The failures of one job, over all runs of its query.

    Args:
        tolerable: how many in a row are tolerated.
    """

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._in_a_row = 0
        self._attempts = InARow()
        self._runs = InARow()
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

    def judge(self, checkpoint: int, error: DeclinedError) -> DeclinedError:
        """Return the error of an attempt, or the one that ends the job if this was the last of too
        many in a row that failed in the same way.
        """
        limit = max(error.limit or SAME_FAILURES, self._tolerable + 1)
        same = self._attempts.count((checkpoint, error.fingerprint))
        return self._judged(error, same, limit, f"Checkpoint {checkpoint}")

    def judge_run(self, error: BaseException) -> BaseException:
        """The same of what has ended a run of the query, between two decided checkpoints: a source
        that cannot plan, say, or a function that does not take its state.
        """
        if not isinstance(error, DeclinedError) or self._attempts.has(error.fingerprint):
            return error
        same = self._runs.count((-1, error.fingerprint))
        return self._judged(error, same, error.limit or SAME_FAILURES, "The job")

    @staticmethod
    def _judged(error: DeclinedError, same: int, limit: int, what: str) -> DeclinedError:
        if same < limit or not error.restartable:
            return error
        ending = RepeatedFailureError(
            f"{error.what} {what} has failed in this way {same} times in a row, so the job stops.",
            remedy=error.remedy or "remove the cause that the message names, then start the job.",
            reason=error.reason,
            fingerprint=error.fingerprint,
        )
        ending.__cause__ = error
        return ending

    def succeeded(self) -> Sequence[DeclinedAttempt]:
        """Note that a checkpoint is decided; return the attempts that were declined before it."""
        self._in_a_row = 0
        self._attempts, self._runs = InARow(), InARow()
        declined = tuple(self._declined)
        self._declined.clear()
        return declined

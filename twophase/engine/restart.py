"""Restart strategies, by Flink's names: the delay before a failed query starts again, if it does.

A policy is a callable: given the time of a failure, it returns the delay in seconds,
or None to give up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

from twophase.contract.sink import Waits
from twophase.options.job_options import JobOptions, RestartStrategy

RestartPolicy = Callable[[float], float | None]
"""Called with the time of the failure, in monotonic seconds."""


def restart_policy(options: JobOptions) -> RestartPolicy:
    """Return the policy that `restart.strategy` names, with no failures counted yet."""
    match options.restart_strategy:
        case RestartStrategy.EXPONENTIAL:
            return Exponential(
                options.restart_delay_s, options.restart_delay_max_s, options.restart_window_s
            )
        case RestartStrategy.FIXED:
            return Fixed(options.restart_delay_s, options.restart_attempts)
        case RestartStrategy.FAILURE_RATE:
            return FailureRate(
                options.restart_delay_s, options.restart_attempts, options.restart_window_s
            )
        case RestartStrategy.NONE:
            return Fixed(0.0, 0)
        case other:
            assert_never(other)


def waits_of(options: JobOptions) -> Waits:
    """Return how long a job lets pieces wait: for a decision, for a retry, for a restart."""
    return Waits(
        options.timeout_s,
        {"commit.backoff_max": options.commit_backoff_max_s, **_restarts(options)},
    )


def _restarts(options: JobOptions) -> dict[str, float]:
    """Return the longest delay before a restart by its option; empty if there are none."""
    first_s, longest_s = options.restart_delay_s, options.restart_delay_max_s
    match options.restart_strategy:
        case RestartStrategy.EXPONENTIAL if longest_s >= first_s:
            return {"restart.delay_max": longest_s}
        case RestartStrategy.NONE:
            return {}
        case _:
            return {"restart.delay": first_s}


class Exponential:
    """Doubles the delay up to a maximum; starts over after a window without a failure.

    The window begins when the delay is over, as Flink's `reset-backoff-threshold` does.
    """

    def __init__(self, delay_s: float, delay_max_s: float, window_s: float) -> None:
        self._first_s = self._delay_s = delay_s
        self._max_s = delay_max_s
        self._window_s = window_s
        self._runs_from_s = float("-inf")

    def __call__(self, now_s: float) -> float | None:
        """Return the delay before the next restart."""
        if now_s - self._runs_from_s > self._window_s:
            self._delay_s = self._first_s
        self._runs_from_s = now_s + self._delay_s
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, self._max_s)
        return delay_s


class Fixed:
    """The same delay each time, a limited number of times over the life of the job."""

    def __init__(self, delay_s: float, attempts: int) -> None:
        self._delay_s = delay_s
        self._left = attempts

    def __call__(self, now_s: float) -> float | None:  # noqa: ARG002 every policy is given the time
        """Return the delay before the next restart, None after the last."""
        self._left -= 1
        return self._delay_s if self._left >= 0 else None


class FailureRate:
    """The same delay each time, up to a maximum number of failures within a window."""

    def __init__(self, delay_s: float, attempts: int, window_s: float) -> None:
        self._delay_s = delay_s
        self._attempts = attempts
        self._window_s = window_s
        self._failures_s: deque[float] = deque()

    def __call__(self, now_s: float) -> float | None:
        """Return the delay before the next restart, None if there were too many failures."""
        self._failures_s.append(now_s)
        while self._failures_s and now_s - self._failures_s[0] > self._window_s:
            self._failures_s.popleft()
        return self._delay_s if len(self._failures_s) <= self._attempts else None

"""The progress of a job at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twophase.cli.display.query_progress import QueryProgress
from twophase.events import CheckpointCommitted

STOPPING = "stopping"
"""The state of a job that has been asked to stop."""


@dataclass(frozen=True)
class Progress:
    """The progress at one moment. Times are monotonic seconds.

    Attributes:
        state: what the job is doing.
        query: records read, their rate, and the lag.
        rows: rows committed, over all sinks.
        rows_by_sink: the same by sink.
        committed: checkpoints committed by this driver.
        last: the newest committed checkpoint.
        last_s: when that was committed.
        current: the checkpoint in progress.
        current_s: when that began.
        has_workers: whether Spark's Python workers have written for a checkpoint since the last
            start of the query.
        pending: decided checkpoints that are not committed yet.
        declined: attempts that were declined.
        restarts: restarts of the query.
        last_error: the newest reason why an attempt was declined, a commit is retried,
            or the query failed.
    """

    state: str = "starting Spark"
    query: QueryProgress = field(default_factory=QueryProgress)
    rows: int = 0
    rows_by_sink: Mapping[str, int] = field(default_factory=dict)
    committed: int = 0
    last: CheckpointCommitted | None = None
    last_s: float = 0.0
    current: int | None = None
    current_s: float = 0.0
    has_workers: bool = False
    pending: frozenset[int] = frozenset()
    declined: int = 0
    restarts: int = 0
    last_error: str = ""

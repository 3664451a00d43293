"""The session for commits in which Delta counts files: with the tasks that the log's size needs.

With every tenth version Delta counts the table's files, by Spark jobs over the state of its log.
They have `spark.databricks.delta.snapshotPartitions` tasks, 50 by default: for a log of a few
hundred kilobytes, in a JVM that has just started, that takes twenty seconds within the commit.
Recovery mostly commits without that count (deferring_transaction.py), the running job with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twophase.sinks.delta.jvm import Jvm

PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_DEFAULT_PARTITIONS = 50
BYTES_A_TASK = 8 * 2**20


class CommitSession:
    """A copy of the session, taken on construction.

    Args:
        jvm: the job's session.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._most = int(jvm.session.conf.get(PARTITIONS, None) or _DEFAULT_PARTITIONS)
        self._java = jvm.java_session.cloneSession()

    @contextmanager
    def active(self, log_bytes: int) -> Iterator[None]:
        """Make the copy the active session of this thread.

        Args:
            log_bytes: the total length of the files that hold the table's state.
        """
        tasks = tasks_for(log_bytes, self._most)
        self._java.sessionState().conf().setConfString(PARTITIONS, str(tasks))
        with self._jvm.active(self._java):
            yield


def tasks_for(log_bytes: int, most: int) -> int:
    """Return how many tasks read a log: one for every 8 MiB, up to the session's setting."""
    return min(most, 1 + log_bytes // BYTES_A_TASK)

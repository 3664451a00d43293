"""The session in which Delta commits if it counts: a copy of the job's, whose jobs over the table's log are no larger than the log.

With every tenth version Delta counts the table's files, by Spark jobs over the state of its log. They have
`spark.databricks.delta.snapshotPartitions` tasks, 50 unless somebody says otherwise: for a log of a few hundred kilobytes, in
a JVM that has just started, twenty seconds within the fence or the first commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twophase.sinks.delta.jvm import Jvm

PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_DEFAULT_PARTITIONS = 50
BYTES_A_TASK = 8 * 2**20


class CommitSession:
    """Copies the session when it is made.

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
            log_bytes: the length of the files that the table's state is read from.
        """
        tasks = tasks_for(log_bytes, self._most)
        self._java.sessionState().conf().setConfString(PARTITIONS, str(tasks))
        with self._jvm.active(self._java):
            yield


def tasks_for(log_bytes: int, most: int) -> int:
    """How many tasks read a log: one for every 8 MiB, and no more than the session says."""
    return min(most, 1 + log_bytes // BYTES_A_TASK)

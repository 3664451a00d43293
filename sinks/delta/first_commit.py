"""Does Delta's one-time work of the first commits while sinks are being opened.

In the first commit Delta derives the columns of its log from its own classes by Scala's reflection:
over half a second of processor time, in the fence of every start. And with every tenth version it
counts the table's files: seconds of Spark jobs whose code a JVM that has just started has yet to
load and compile. Neither writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from twophase.sinks.delta.commit_session import BYTES_A_TASK
from twophase.sinks.delta.jvm import Jvm
from twophase.sinks.delta.log import Log, Snapshot


def derive_columns(jvm: Jvm) -> None:
    """Start to derive the columns of Delta's log; a commit that comes sooner waits for it.

    Args:
        jvm: the JVM of Spark.
    """
    _begin("columns", lambda: jvm.delta("actions.Action").logSchema())


def count_files(log: Log, snapshot: Snapshot, commits: int) -> None:
    """Start to count the files of a table with a short log, if a commit soon counts them.

    A longer log takes long to read, and reading it twice gains nothing.

    Args:
        log: of the table.
        snapshot: the table as it is now.
        commits: the maximum number of commits in recovery.
    """
    counted = snapshot.counted_bytes(commits)
    if counted is None or counted >= BYTES_A_TASK:
        return
    session = log.commit_session

    def count() -> None:
        with session.active(counted):
            snapshot.count_files()

    _begin("files", count)


def _begin(what: str, run: Callable[[], object]) -> None:
    def quietly() -> None:
        with suppress(Exception):  # the commit fails in the same way, and reports it
            run()

    Thread(target=quietly, name=f"twophase-delta-{what}", daemon=True).start()

"""Threads on the driver that Spark treats like the one that made them.

A plain thread has none of its maker's local properties (hazard H58). Also the session of a `InheritableThread` is whichever
was the first, unless it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession


def thread_like_this(session: SparkSession, name: str, run: Callable[[], None]) -> InheritableThread:
    """Make a thread with the local properties and the active session of the calling one; unstarted.

    Args:
        session: the active one where the calling thread has none.
        name: of the thread.
        run: what it runs.
    """
    active = SparkSession.getActiveSession() or session

    def target() -> None:
        SparkSession._get_j_spark_session_class(active._jvm).setActiveSession(active._jsparkSession)
        run()

    return InheritableThread(target=target, name=name, daemon=True)

"""Driver threads that Spark treats like the thread that created them.

A plain thread does not inherit the local properties (hazard H58). And an `InheritableThread` uses
whichever session was created first, unless it is given one.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession


def thread_like_this(
    session: SparkSession, name: str, run: Callable[[], None]
) -> InheritableThread:
    """Return an unstarted thread with the local properties and active session of this one.

    Args:
        session: used if the calling thread has no active session.
        name: the thread's name.
        run: what the thread runs.
    """
    active = SparkSession.getActiveSession() or session

    def target() -> None:
        SparkSession._get_j_spark_session_class(active._jvm).setActiveSession(active._jsparkSession)
        run()

    return InheritableThread(target=target, name=name, daemon=True)

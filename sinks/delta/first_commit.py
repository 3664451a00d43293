"""Does some of Delta's one-time work of the first commit while sinks are being opened.

In the first commit Delta derives the columns of its log from its own classes by Scala's reflection:
over half a second of processor time, in the fence of every start. Jackson then looks into the
classes of what is written to the log and of the statistics. Nothing is written here.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from twophase.sinks.delta.jvm import Jvm

_STATISTICS = "org.apache.spark.sql.delta.stats.CommitStats"


def prepare_commit(jvm: Jvm) -> None:
    """Start that work; a commit that comes sooner waits for it.

    Args:
        jvm: the JVM of Spark.
    """

    def prepare() -> None:
        with suppress(Exception):  # the commit fails in the same way, and reports it
            jvm.delta("actions.Action").logSchema()
            info = jvm.delta("actions.CommitInfo").empty(jvm.option())
            info.json()
            statistics = info.getClass().getClassLoader().loadClass(_STATISTICS)
            jvm.delta("util.JsonUtils").mapper().writerFor(statistics)

    Thread(target=prepare, name="twophase-delta-first-commit", daemon=True).start()

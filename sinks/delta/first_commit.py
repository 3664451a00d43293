"""Does Delta's one-time work of the first commit while sinks are being opened.

In the first commit Delta derives the columns of its log from its own classes by Scala's reflection:
over half a second of processor time, in the fence of every start. Nothing is written.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from twophase.sinks.delta.jvm import Jvm


def derive_columns(jvm: Jvm) -> None:
    """Start to derive the columns of Delta's log; a commit that comes sooner waits for it.

    Args:
        jvm: the JVM of Spark.
    """

    def derive() -> None:
        with suppress(Exception):  # the commit fails in the same way, and reports it
            jvm.delta("actions.Action").logSchema()

    Thread(target=derive, name="twophase-delta-columns", daemon=True).start()

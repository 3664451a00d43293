"""What Delta's first commit in a JVM finds out once, found out while sinks are being opened.

Delta derives the columns of its log from its own classes by Scala's reflection, within the first commit: over half a second
of processor time, in the fence of every start. Nothing is read or written by it.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from sinks.delta.jvm import Jvm


def prepare_first_commit(jvm: Jvm) -> None:
    """Begin, in a thread of its own. A commit that comes sooner waits for it, or does the rest itself.

    Args:
        jvm: the JVM of Spark.
    """
    Thread(target=_derive, args=(jvm,), name="twophase-delta-first-commit", daemon=True).start()


def _derive(jvm: Jvm) -> None:
    with suppress(Exception):  # the commit meets it again, and reports it
        jvm.delta("actions.Action").logSchema()

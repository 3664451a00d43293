"""Access to Spark's JVM through py4j, Python's only way to Scala."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from twophase.errors import PreflightError
from twophase.sinks.common.java import PYTHON_UTILS, java_class
from twophase.spark_versions import DELTA_ARTIFACT

VERSION = "4.4.0"
"""The only version of Delta whose classes below the public API are known to this sink."""

SPARK_CONF = {
    "spark.jars.packages": f"io.delta:{DELTA_ARTIFACT}:{VERSION}",
    # For Unity Catalog and the kernel API: thirty more jars, some in other
    # versions than Spark's own.
    "spark.jars.excludes": (
        "io.delta:delta-kernel-api,io.delta:delta-kernel-defaults,"
        "io.delta:delta-kernel-unitycatalog,"
        "io.unitycatalog:unitycatalog-client,io.unitycatalog:unitycatalog-hadoop"
    ),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings to start Spark with. It fetches the package on its first start, and finds it in its
Ivy cache after that.
"""

_ANSWERED = ". Trace:\n"
"""The text in py4j's errors for an answer of Java without an exception; an error of a lost
connection lacks it.
"""


class Jvm:
    """One Spark session, on the JVM's side.

    Args:
        session: the session whose configuration and catalog are used.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        # py4j creates attributes dynamically; there is nothing to check types against.
        self._jvm: Any = session._jvm
        self.java_session: Any = session._jsparkSession

    def delta(self, name: str) -> Any:
        """Return a class of Delta."""
        return self._class(f"org.apache.spark.sql.delta.{name}")

    def check_delta(self) -> None:
        """Check that Delta is there, in the version that this sink knows.

        Raises:
            PreflightError: it is not.
        """
        is_there = not isinstance(self._jvm.org.apache.spark.sql.delta.DeltaLog, JavaPackage)
        found = f"Delta {self._jvm.io.delta.package.VERSION()}" if is_there else "no Delta"
        if found != f"Delta {VERSION}":
            raise PreflightError(
                f"There is {found} on Spark's class path; this sink works "
                f"with Delta {VERSION} only.",
                remedy="start Spark with the settings of DeltaSink.spark_conf().",
            )

    def hadoop(self, name: str) -> Any:
        """Return a class of Hadoop's file system."""
        return self._class(f"org.apache.hadoop.fs.{name}")

    @property
    def append(self) -> Any:
        """The output mode."""
        return self._class("org.apache.spark.sql.streaming.OutputMode").Append()

    def option(self, value: Any = None) -> Any:
        """Return a Scala Option."""
        return self._class("scala.Option").apply(value)

    def seq(self, items: Sequence[Any]) -> Any:
        """Return a Scala Seq."""
        return self._class(PYTHON_UTILS).toSeq(list(items))

    def map(self, items: Mapping[str, str]) -> Any:
        """Return a Scala Map."""
        return self._class(PYTHON_UTILS).toScalaMap(dict(items))

    def array(self, *items: Any) -> Any:
        """Return a Java array of objects."""
        array: Any = self.session.sparkContext._gateway.new_array(  # type: ignore[union-attr]
            self._class("java.lang.Object"), len(items)
        )
        for index, item in enumerate(items):
            array[index] = item
        return array

    def janino_compiler(self) -> Any:
        """Return a compiler of Java source: Spark has it for the code that it generates."""
        return self._class("org.codehaus.janino.SimpleCompiler")()

    def open_file(self, path: Path) -> Any:
        """Open a local file as a `java.io.RandomAccessFile` for reading and writing."""
        return self._class("java.io.RandomAccessFile")(str(path), "rw")

    def set_property(self, key: str, value: str) -> str | None:
        """Set a system property of the JVM, whichever Python it serves; return the old value."""
        before = self._class("java.lang.System").setProperty(key, value)
        return None if before is None else str(before)

    def clear_property(self, key: str) -> None:
        """Remove a system property of the JVM."""
        self._class("java.lang.System").clearProperty(key)

    def read_all(self, stream: Any) -> bytes:
        """Return the rest of an input stream."""
        return bytes(self._class("org.apache.commons.io.IOUtils").toByteArray(stream))

    def read_exactly(self, stream: Any, length: int) -> bytes:
        """Return a number of bytes from an input stream. Raises if it has fewer."""
        return bytes(self._class("org.apache.commons.io.IOUtils").toByteArray(stream, length))

    @contextmanager
    def active(self, java_session: Any = None) -> Iterator[None]:
        """Make a session the active one of this thread: Delta reads its settings there.

        Args:
            java_session: the session; by default this one.
        """
        sessions = self._class("org.apache.spark.sql.SparkSession")
        before = sessions.getActiveSession()
        sessions.setActiveSession(java_session or self.java_session)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    @contextmanager
    def job_tag(self, tag: str) -> Iterator[None]:
        """Tag the Spark jobs that this thread starts."""
        context = self.session.sparkContext
        context.addJobTag(tag)
        try:
            yield
        finally:
            context.removeJobTag(tag)

    def has_failed_tasks(self, tag: str) -> bool:
        """Return whether a task of the jobs with a tag has failed; True if Spark is too busy."""
        context: Any = self.session.sparkContext._jsc.sc()
        try:
            context.listenerBus().waitUntilEmpty()
        except Py4JJavaError as error:
            if is_java(error, "java.util.concurrent.TimeoutException"):
                return True
            raise
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForTag(tag)]
        stages = [
            tracker.getStageInfo(number)
            for job in jobs
            if job.isDefined()
            for number in job.get().stageIds()
        ]
        return any(stage.isDefined() and stage.get().numFailedTasks() > 0 for stage in stages)

    @contextmanager
    def local_property(self, key: str, value: str) -> Iterator[None]:
        """Set a property of the Spark jobs that this thread starts, not of other threads' jobs."""
        context = self.session.sparkContext
        before = context.getLocalProperty(key)
        context.setLocalProperty(key, value)
        try:
            yield
        finally:
            context.setLocalProperty(key, before)  # type: ignore[arg-type]  # None removes it

    def _class(self, name: str) -> Any:
        return java_class(self.session, name)


def keep_alive(thing: Any) -> None:
    """Keep a Java object alive in the JVM until `release`, even after Python has ended."""
    client = thing._gateway_client
    ThreadSafeFinalizer.remove_finalizer(f"{client.address}{client.port}{thing._target_id}")


def release(thing: Any) -> None:
    """Tell the JVM that Python no longer needs a Java object."""
    thing._detach()


def may_be_running(error: BaseException, older: BaseException | None = None) -> bool:
    """Return whether the JVM, after an error in Python, may still be running the call.

    This happens after an interrupt in the main thread, and when the connection has ended. py4j then
    goes on over another connection, which another thread of the JVM serves.

    Args:
        error: the error of one or several calls, or one that was raised while handling it.
        older: the error that was being handled before the first of the calls. It is in the context
            of all errors of the calls; it and its own causes say nothing about them.
    """
    if not isinstance(error, Exception):
        return True
    if (
        isinstance(error, Py4JError)
        and not isinstance(error, Py4JJavaError)
        and _ANSWERED not in str(error)
    ):
        return True
    before = error.__cause__ or error.__context__
    return before is not None and before is not older and may_be_running(before, older)


def items(seq: Any) -> Iterator[Any]:
    """Return the items of a Scala Seq."""
    iterator = seq.iterator()
    while iterator.hasNext():
        yield iterator.next()


def class_name(thing: Any) -> str:
    """Return the class name of a Java object."""
    return str(thing.getClass().getName())


def messages(error: Exception) -> Iterator[str]:
    """Return the messages of a Java exception and its causes, outermost first; empty for none."""
    # py4j's errors have the one, those that PySpark makes of them have the other.
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield java.getMessage() or ""
        java = java.getCause()


def is_java(error: Py4JJavaError, name: str) -> bool:
    """Return whether a Java exception is an instance of a class."""
    return class_name(error.java_exception) == name

"""The plugin form in the session's own process: prepares a query's folder for Spark.

A micro-batch whose checkpoint is committed, but which Spark has not noted as finished, would run
again at the next start. Its rows are no longer needed, and its records may have expired (hazard
H62). At a start, Spark calls only a listener before it reads its log, and the query waits for it.
The listener is called on the thread that will run the query, so all tasks of the query see a local
property that is set here.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from py4j.java_gateway import is_instance_of
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from twophase.errors import ConfigError
from twophase.internals.clock import SystemClock
from twophase.spark.batch.lost_replay_remedy import begin_afresh
from twophase.spark.batch.spark_jobs import is_lost
from twophase.spark.folder.planned_release import plan_release
from twophase.spark.folder.query_folder import log_folder
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plan import logical_plan
from twophase.spark.plugin.source import PREFIX
from twophase.state.checkpoints import replay_guard
from twophase.state.files.storage import LocalStorage, local_path
from twophase.state.journal.log import JobLog, job_of
from twophase.wording import worded

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from twophase.state.journal.entries import Decision

_TABLE = "org.apache.spark.sql.connector.catalog.SupportsWrite"

_LAST_EVENTS_MS = 5_000

_log = logging.getLogger("twophase")
_listening: WeakSet[SparkSession] = WeakSet()


def listen(spark: SparkSession) -> None:
    """Finish the committed micro-batch whenever a query of this session starts."""
    if spark not in _listening:
        listener = FinishCommitted(spark)
        spark.streams.addListener(listener)
        _listening.add(spark)
        atexit.register(_stop_listening, ref(spark), listener)


def _stop_listening(session: ref[SparkSession], listener: FinishCommitted) -> None:
    """Before Python ends: Spark would report at length that nobody answers its last events."""
    spark = session()
    if spark is not None and not is_lost(spark):
        with suppress(Exception):
            spark.streams.removeListener(listener)
            jvm_context: Any = spark.sparkContext._jsc.sc()
            jvm_context.listenerBus().waitUntilEmpty(_LAST_EVENTS_MS)


class PassesStarts(JStreamingQueryListener):
    """Passes starts on to a listener, and nothing else.

    PySpark reads each report of progress field by field, whoever listens: a quarter of a processor
    second of the JVM for each micro-batch.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        """Do nothing."""

    def onQueryIdle(self, jevent: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, jevent: Any) -> None:
        """Do nothing."""


class FinishCommitted(StreamingQueryListener):
    """Notified of every query of a session; leaves those of other sinks alone.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.PythonStreamingQueryListenerWrapper(PassesStarts(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called before the query reads its folder. Spark only logs an exception raised here."""
        query = self._spark.streams.get(str(event.id))
        if query is not None:
            execution = query._jsq.streamingQuery()
            location = str(execution.resolvedCheckpointRoot())
            finish_committed(location, lambda: logical_plan.has_watermark(execution.analyzedPlan()))
            if self._is_ours(execution.sink()) and logical_plan.keeps_state(
                execution.analyzedPlan()
            ):
                keep_digests(location, self._spark.sparkContext)

    def _is_ours(self, sink: Any) -> bool:
        """Return whether a sink is one of our formats. That of foreachBatch has no name."""
        gateway = self._spark.sparkContext._gateway
        return is_instance_of(gateway, sink, _TABLE) and str(sink.name()).startswith(PREFIX)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""


def finish_committed(location: str, has_watermark: Callable[[], bool]) -> None:
    """Note the newest micro-batch as finished if it is committed and nothing needs it any more, and
    plan the one after it if it leaves released topics behind.

    Args:
        location: the folder of a query as Spark names it, such as "file:/chk/orders".
            Not percent-encoded.
        has_watermark: returns whether records move a watermark. If the query's state depends on
            one, Spark runs the micro-batch again, unless that has failed before
            because of its records.
    """
    path = _local(location)
    if path is None or not (log := log_folder(path)).is_dir():
        return
    storage = LocalStorage(log)
    job = job_of(storage)
    if job is None:
        return
    history = JobLog(storage, job).read()
    if history.lineage is None:
        return
    folder, newest = SparkFolder(path, history.lineage), history.newest(history.lineage.id)
    if newest is not None and replay_guard.was_lost(path, newest):
        _finish_lost(job, folder, newest)
    elif not (folder.has_state and has_watermark()):
        folder.finish(newest)
    plan_release(folder, history.lineage, history, SystemClock().unix_ms())


def _finish_lost(job: str, folder: SparkFolder, newest: Decision) -> None:
    """Finish a micro-batch that Spark ran again without its records. All its tasks are over."""
    number = newest.checkpoint
    if folder.finish(newest):
        _log.warning(
            "Job %r: checkpoint %d is committed, and its records were gone, or others, when Spark "
            "read them again. It is noted as finished, with the watermark that it ran with.",
            job,
            number,
        )
    elif not (folder.path / "commits" / str(number)).exists():
        _log.warning(
            "Job %r: checkpoint %d is committed, and Spark needs its records once more to rebuild "
            "its state. If they are gone: %s",
            job,
            number,
            worded(begin_afresh(number, folder.offsets(number))),
        )


def keep_digests(location: str, context: SparkContext) -> None:
    """Have the Kafka source detect changed records if Spark runs a decided micro-batch again (H35).

    Args:
        location: as for `finish_committed`.
        context: the session's; the calling thread is the one that runs the query.
    """
    path = _local(location)
    if path is not None:
        replay_guard.plan_guard(path, context)


def _local(location: str) -> Path | None:
    try:
        return local_path(location)
    except ConfigError:  # on another kind of storage, so not ours
        return None

"""What the plugin form does in the session's own process: what a start needs before Spark looks.

A micro-batch whose checkpoint is committed, and which Spark has not noted as finished, would run again with the next start.
Nobody needs its rows, and its records may have expired (hazard H62). Of all that Spark calls for a start, only a listener hears
of it before Spark reads its log, and the query waits for it. It hears on the thread that will run the query, so all tasks of the query
see a local property that is set here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from py4j.java_gateway import is_instance_of
from pyspark.sql.streaming.listener import StreamingQueryListener

from twophase.errors import ConfigError
from twophase.runtime import plan
from twophase.runtime.afresh import begin_afresh
from twophase.runtime.plugin.description import log_folder
from twophase.runtime.plugin.source import PREFIX
from twophase.runtime.spark_folder import SparkFolder
from twophase.sources.kafka import range_digest
from twophase.state.log import JobLog, job_of
from twophase.state.storage import LocalStorage, local_path

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from twophase.state.records import Decision

_TABLE = "org.apache.spark.sql.connector.catalog.SupportsWrite"

_log = logging.getLogger("twophase")
_listening: WeakSet[SparkSession] = WeakSet()


def listen(spark: SparkSession) -> None:
    """Finish what is committed whenever a query of this session starts."""
    if spark not in _listening:
        spark.streams.addListener(FinishCommitted(spark))
        _listening.add(spark)


class FinishCommitted(StreamingQueryListener):
    """Hears of every query of a session; those of other sinks have no log of ours, and are left alone.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called before the query reads its folder. Whatever is raised here goes to Spark's log, and the query starts."""
        query = self._spark.streams.get(str(event.id))
        if query is not None:
            execution = query._jsq.streamingQuery()
            location = str(execution.resolvedCheckpointRoot())
            finish_committed(location, lambda: plan.has_watermark(execution.analyzedPlan()))
            if self._is_ours(execution.sink()) and plan.keeps_state(execution.analyzedPlan()):
                keep_digests(location, self._spark.sparkContext)

    def _is_ours(self, sink: Any) -> bool:
        """Whether the query writes to one of our formats. Sinks that are no tables, such as that of foreachBatch, have no name."""
        gateway = self._spark.sparkContext._gateway
        return is_instance_of(gateway, sink, _TABLE) and str(sink.name()).startswith(PREFIX)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing."""


def finish_committed(location: str, has_watermark: Callable[[], bool]) -> None:
    """Note the newest micro-batch as finished if its checkpoint is committed and nothing of it is needed any more.

    Args:
        location: the folder of a query as Spark names it, such as "file:/chk/orders". Not percent-encoded.
        has_watermark: tells whether its records move a watermark. If its state depends on that, Spark runs it again, unless that
            has failed for its records before.
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
    if newest is not None and range_digest.was_lost(path, newest):
        _finish_lost(job, folder, newest)
    elif not (folder.has_state and has_watermark()):
        folder.finish(newest)


def _finish_lost(job: str, folder: SparkFolder, newest: Decision) -> None:
    """Its records were gone, or others, when Spark ran it again. Not noted by that run, of which tasks may have gone on for a while."""
    number = newest.checkpoint
    if folder.finish(newest):
        _log.warning(
            "Job %r: checkpoint %d is committed, and its records were gone, or others, when Spark read them again. It is noted "
            "as finished, with the watermark that it ran with.",
            job,
            number,
        )
    elif not (folder.path / "commits" / str(number)).exists():
        _log.warning(
            "Job %r: checkpoint %d is committed, and Spark needs its records once more to rebuild its state. If they are gone: %s",
            job,
            number,
            begin_afresh(number, folder.offsets(number)),
        )


def keep_digests(location: str, context: SparkContext) -> None:
    """Have the Kafka source notice if a decided micro-batch has other records when Spark runs it again for its state (H35).

    Args:
        location: as for `finish_committed`.
        context: of the session; this thread is the one that runs the query.
    """
    path = _local(location)
    if path is not None:
        range_digest.plan_digests(path, context)


def _local(location: str) -> Path | None:
    try:
        return local_path(location)
    except ConfigError:  # of another storage: none of ours
        return None

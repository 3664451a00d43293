"""Has the class archive recorded behind a run, for the runs to come."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from twophase.events import CheckpointCommitted, Event
from twophase.protocol.sink import NeedsSparkConf, Sink
from twophase.startup.class_archive import ClassArchive
from twophase.startup.packages import JARS, PACKAGES
from twophase.startup.recording import record_in_background

_log = logging.getLogger("twophase.startup")


class Recorder:
    """Begins to record once; an observer of events: when the first rows are committed, the start is over.

    Args:
        archive: what to record; None: nothing.
        conf: of Spark, while it is recorded.
    """

    def __init__(self, archive: ClassArchive | None, conf: Mapping[str, str]) -> None:
        self._archive = archive
        self._conf = conf
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """See `twophase.events.Observer`."""
        if isinstance(event, CheckpointCommitted) and event.rows:
            self.begin()

    def begin(self) -> None:
        """Record, if that is due and was not begun before."""
        with self._lock:
            archive, self._archive = self._archive, None
        try:
            if archive is not None and archive.is_due():
                record_in_background(archive, self._conf)
        except OSError as error:
            _log.debug("no class archive: %s", error)


@contextmanager
def recording(archive: ClassArchive | None, conf: Mapping[str, str], sinks: Mapping[str, Sink]) -> Iterator[Recorder]:
    """A recorder for a run: it begins with the first rows, or when a run without rows has ended well.

    Args:
        archive: of the run's Spark; None if there can be none.
        conf: what this Spark was started with.
        sinks: of the job; of `conf` only what they ask for is used.
    """
    asked = {key for sink in sinks.values() if isinstance(sink, NeedsSparkConf) for key in sink.spark_conf()}
    settings = {key: conf[key] for key in asked if key in conf}
    if archive is not None and archive.jars:
        settings |= {PACKAGES: "", JARS: ",".join(map(str, archive.jars))}
    recorder = Recorder(archive, settings)
    yield recorder
    recorder.begin()

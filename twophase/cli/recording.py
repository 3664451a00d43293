"""Records the class archive in the background of a run, for later runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from twophase.events import CheckpointCommitted, Event
from twophase.protocol.sink import Sink
from twophase.startup.class_archive import ClassArchive
from twophase.startup.packages import JARS, PACKAGES
from twophase.startup.recording import record_in_background

_log = logging.getLogger("twophase.startup")


class Recorder:
    """An observer of events that starts the recording when the first rows are committed.

    Args:
        archive: the archive to record; None records nothing.
        conf: Spark's configuration during the recording.
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
        """Start the recording if it is due and was not started before."""
        with self._lock:
            archive, self._archive = self._archive, None
        try:
            if archive is not None and archive.is_due():
                record_in_background(archive, self._conf)
        except OSError as error:
            _log.debug("no class archive: %s", error)


@contextmanager
def recording(
    archive: ClassArchive | None, conf: Mapping[str, str], sinks: Mapping[str, Sink]
) -> Iterator[Recorder]:
    """Yield the recorder of a run; after a run without rows it records at the end, on success.

    Args:
        archive: the archive for the run's Spark; None if there can be none.
        conf: the configuration that this Spark was started with.
        sinks: the job's sinks; only the settings in `conf` that they need are used.
    """
    asked = {key for sink in sinks.values() for key in sink.spark_conf()}
    settings = {key: conf[key] for key in asked if key in conf}
    if archive is not None and archive.jars:
        settings |= {PACKAGES: "", JARS: ",".join(map(str, archive.jars))}
    recorder = Recorder(archive, settings)
    yield recorder
    recorder.begin()

"""Polls Spark for its progress reports while a job runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from twophase.cli.display.query_progress import QueryProgress, QueryReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 1.0
_JOIN_S = 5.0

_log = logging.getLogger("twophase")


class QueryPoller:
    """Polls Spark once a second in its own thread. A context manager; polls a last time at its end.

    Args:
        query: returns the job's query, another one after a restart.
        report: called with each progress.
    """

    def __init__(
        self, query: Callable[[], StreamingQuery | None], report: Callable[[QueryProgress], None]
    ) -> None:
        self._query = query
        self._report = report
        self._reader = QueryReader()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="twophase-query-progress", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._ended.wait(_POLL_S):
            self._ask()
        self._ask()

    def _ask(self) -> None:
        query = self._query()
        if query is None:
            return
        try:
            self._report(self._reader.read(query))
        except Exception:  # noqa: BLE001 a display must not disturb the job
            _log.debug("The query's progress could not be read", exc_info=True)

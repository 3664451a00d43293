"""The driver's own session: opened when needed, dropped when broken, never reused after an unclear reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from sinks.mysql.codes import is_connection_lost
from sinks.mysql.connection import Session
from sinks.mysql.options import Endpoint
from sinks.mysql.session import end_quietly, open_driver_session


class DriverLink:
    """Gives out one session at a time. Not thread-safe: the coordinator calls a sink from one thread at a time.

    Args:
        endpoint: where to connect.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: Session | None = None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A working session; after an error that leaves doubt about it, the next one is new."""
        if self._session is None or not self._session.open:
            self._session = open_driver_session(self._endpoint)
        try:
            yield self._session
        except pymysql.Error as error:
            if is_connection_lost(error):
                self.close()
            raise

    def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        end_quietly(session)

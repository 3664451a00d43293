"""The driver's own session: opened when needed, dropped when broken or in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from twophase.sinks.mysql.client.refusals import explain
from twophase.sinks.mysql.client.session import SecurityError, Session, hostile
from twophase.sinks.mysql.client.session_settings import end_quietly, open_driver_session
from twophase.sinks.mysql.options import Endpoint


class DriverLink:
    """Gives out one session at a time, to one thread at a time.

    Args:
        endpoint: where to connect.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: Session | None = None

    def follow(self, endpoint: Endpoint) -> None:
        """Open later sessions at this endpoint; an open session stays open."""
        self._endpoint = endpoint

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Yield a working session; after an error in this block, the next call opens a new one.

        After an error the session may be in a transaction, and anything done in it next would be
        rolled back with that.

        Raises:
            PreflightError: the server refuses, and the sink is not open yet.
            TargetUnreachableError: the server does not answer, or stopped answering, or refuses;
                the statement may have taken effect.
        """
        if self._session is None or not self._session.is_alive():
            self.close()
            self._session = open_driver_session(self._endpoint)
        try:
            yield self._session
        except BaseException as error:
            self.close()
            if isinstance(error, SecurityError):
                raise hostile(error) from error
            if isinstance(error, pymysql.Error):
                raise explain(self._endpoint, error, "The session with") from error
            raise

    def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        end_quietly(session)

"""Clients of librdkafka that the driver keeps open: opening one takes longer than using it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from twophase.kafka_client.credentials import fingerprint
from twophase.kafka_client.options import ConnectionOptions

ClientT = TypeVar("ClientT")

_inherited: list[Any] = []
"""Clients of the process that this one was forked from. Their threads are not here, and whoever
closes one, or lets the garbage collector do it, waits for them for ever.
"""


class KeptClient(Generic[ClientT]):
    """One client, opened when it is first used. Safe to use from several threads.

    Another one is opened after a failure, when passwords or PEM files were replaced, as librdkafka
    has those that it was opened with, and in a process that was forked.

    Args:
        options: of the connection.
        open_client: opens a client.
        close_client: closes one.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        open_client: Callable[[], ClientT],
        close_client: Callable[[ClientT], None],
    ) -> None:
        self._options = options
        self._open = open_client
        self._close = close_client
        self._client: ClientT | None = None
        self._secrets = ""
        self._process = os.getpid()
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[ClientT]:
        """Give the client to one caller at a time, who leaves it as it was. A failure ends it."""
        self._leave_to_parent()
        with self._lock:
            client = self._current()
            try:
                yield client
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """Close the client, if there is one; the next use opens another."""
        self._leave_to_parent()
        with self._lock:
            self._end()

    def _current(self) -> ClientT:
        secrets = fingerprint(self._options)
        if secrets != self._secrets:
            self._end()
        if self._client is None:
            self._client, self._secrets = self._open(), secrets
        return self._client

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._close(client)

    def _leave_to_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.append(self._client)
            self._client, self._lock = None, threading.Lock()
            self._process = os.getpid()

"""Clients that the driver keeps open: which of them a caller gets, and which are closed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twophase.sinks.kafka.clients import KeptClient
from twophase.sinks.kafka.options import KafkaSinkOptions


class Opened:
    """Opens and closes numbers."""

    def __init__(self, folder: Path) -> None:
        self.password = folder / "password"
        self.password.write_text("first")
        given = {
            "kafka.bootstrap.servers": "nowhere.invalid:1",
            "topic": "orders",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "app",
            "kafka.sasl.password.file": str(self.password),
        }
        self.count = 0
        self.closed: list[int] = []
        self.kept = KeptClient(KafkaSinkOptions.parse(given), self._open, self.closed.append)

    def _open(self) -> int:
        self.count += 1
        return self.count

    def used(self) -> int:
        """The client that a caller gets."""
        with self.kept.use() as client:
            return client


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def failed(opened: Opened) -> None:
    with pytest.raises(OSError, match="gone"), opened.kept.use():
        raise OSError("gone")


def replaced(opened: Opened) -> None:
    opened.password.write_text("second")


def closed(opened: Opened) -> None:
    opened.kept.close()


def test_a_client_stays_open(opened: Opened) -> None:
    assert [opened.used(), opened.used()] == [1, 1]
    assert opened.closed == []


@pytest.mark.parametrize("event", [failed, replaced, closed])
def test_another_one_is_opened_after(opened: Opened, event: Callable[[Opened], None]) -> None:
    assert opened.used() == 1
    event(opened)
    assert opened.used() == 2
    assert opened.closed == [1]


def test_it_is_closed_once(opened: Opened) -> None:
    opened.used()
    opened.kept.close()
    opened.kept.close()
    assert opened.closed == [1]


def in_child(opened: Opened, answers: Any) -> None:
    """What a forked process gets and closes, the second time after a failure."""
    first = opened.used()
    failed(opened)
    answers.put((first, opened.used(), opened.closed))


def test_a_forked_process_has_its_own_and_leaves_that_of_its_parent(opened: Opened) -> None:
    assert opened.used() == 1
    forked = multiprocessing.get_context("fork")
    answers = forked.SimpleQueue()
    child = forked.Process(target=in_child, args=(opened, answers))
    with opened.kept.use():  # another thread of the parent may hold it
        child.start()
    assert answers.get() == (2, 3, [2])
    child.join()
    assert opened.used() == 1

"""A command that works on the sinks of a job opens them as a start does."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from harness.folder_sink import FolderSink, OpenFolderSink
from harness.memory_driver import JOB
from twophase.cli.repair_setup import open_sinks
from twophase.contract.sink import Sink, SinkContext
from twophase.errors import ConfigError


class Meeting(FolderSink):
    """Is open when the others are being opened, too."""

    def __init__(self, path: Path, all_of_them: Barrier) -> None:
        super().__init__(path, Closable)
        self.all_of_them = all_of_them

    def open(self, context: SinkContext) -> OpenFolderSink:
        assert context.schema is None
        self.all_of_them.wait()
        return super().open(context)


class Closable(OpenFolderSink):
    closed: list[str] = []  # noqa: RUF012 of one test

    def close(self) -> None:
        self.closed.append(self.target())


def opened(sinks: dict[str, Sink]) -> list[str]:
    """What was open, in the user's order, when the command ended."""
    job: Any = SimpleNamespace(name=JOB)
    Closable.closed.clear()
    with ExitStack() as stack:
        found = open_sinks(stack, job, sinks, verbose=False)
        names = [*found]
        assert not Closable.closed
    return names


def test_they_are_opened_side_by_side_and_closed_at_the_end(tmp_path: Path) -> None:
    both = Barrier(2, timeout=30)
    sinks: dict[str, Sink] = {name: Meeting(tmp_path / name, both) for name in ("facts", "lake")}
    assert opened(sinks) == ["facts", "lake"]
    assert len({*Closable.closed}) == 2


def test_two_on_one_target_are_refused_and_closed(tmp_path: Path) -> None:
    sinks: dict[str, Sink] = {name: Meeting(tmp_path, Barrier(1)) for name in ("facts", "copy")}
    with pytest.raises(ConfigError, match="sinks 'facts' and 'copy' write to one target"):
        opened(sinks)
    assert len(Closable.closed) == 2

"""A world in which an operator renames a sink, moves its target, and gives the job functions.

What a test of a beginning checks is the user's: the rows of the targets are those of the source, or
a start is refused before anything is written, and the way on that it names leads to exact rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from harness.memory_driver import JOB, Driver
from harness.savepoint_world import World
from twophase.contract.listener import CheckpointedFunction
from twophase.contract.sink import ArrowSink
from twophase.coordinator.commit.context import JobContext
from twophase.errors import TwoPhaseError


class BeginningWorld(World):
    """See above.

    Args:
        root: for everything.

    Attributes:
        folders: where a sink writes to, if not to the folder of its name.
        kinds: the class of an open sink, if it is another one.
        functions: of the job, by name.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.folders: dict[str, str] = {}
        self.kinds: dict[str, type[OpenFolderSink]] = {}
        self.functions: Mapping[str, CheckpointedFunction] = {}

    def target(self, name: str) -> Path:
        """Return the folder that a sink writes to."""
        return self.root / self.folders.get(name, name)

    def sink(self, name: str) -> ArrowSink:
        return FolderSink(self.target(name), self.kinds.get(name))

    def numbers(self, name: str) -> list[int]:
        return [row["id"] for row in FolderTarget(self.target(name)).rows()]

    def waiting(self, name: str) -> int:
        return len(FolderTarget(self.target(name)).prepared())

    def rename(self, old: str, new: str) -> None:
        """Give a sink another name; its target stays."""
        self.folders[new] = self.folders.pop(old, old)
        self.sinks = tuple(new if name == old else name for name in self.sinks)

    def copy(self, name: str, to: str) -> None:
        """Copy a folder, over what is there."""
        shutil.rmtree(self.root / to, ignore_errors=True)
        shutil.copytree(self.root / name, self.root / to)

    def context(self, folder: str = "job", job: str = JOB, **options: Any) -> JobContext:
        """Return what a repair works with."""
        return self._driver(folder, {"commit.backoff": "1 ms", **options}, job).coordinator.context

    def _driver(self, folder: str, options: Mapping[str, Any], job: str = JOB) -> Driver:
        self.driver = partial(Driver, functions=self.functions)  # type: ignore[assignment]
        return super()._driver(folder, options, job)


def files(root: Path) -> dict[str, bytes]:
    """Return all files below a folder with what is in them; locks and empty folders hold nothing.

    What a sink makes when it is opened (a folder, a lock) is not counted as written.
    """
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@contextmanager
def refused(root: Path) -> Iterator[pytest.ExceptionInfo[TwoPhaseError]]:
    """Check that the block is refused with a way on, and has changed nothing below a folder."""
    before = files(root)
    with pytest.raises(TwoPhaseError) as caught:
        yield caught
    assert caught.value.remedy
    assert files(root) == before

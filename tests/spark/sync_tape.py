"""What a process asks the operating system to make durable, and when it decides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from twophase.internals.record import kind_of
from twophase.spark.folder import spark_folder


class SyncTape:
    """Notes each sync by the path's last two parts, and the link of each decision as "DECIDED".

    Args:
        monkeypatch: of the test.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._fsync, self._link = os.fsync, os.link
        # as it is then: a test may have replaced it
        self._syncfs = vars(spark_folder)["sync_file_system"]
        monkeypatch.setattr(os, "fsync", self._note_fsync)
        monkeypatch.setattr(os, "link", self._note_link)
        monkeypatch.setattr(spark_folder, "sync_file_system", self._note_syncfs)

    def before_decision(self) -> list[str]:
        """What was made durable before the only decision on the tape."""
        assert self.calls.count("DECIDED") == 1
        return self.calls[: self.calls.index("DECIDED")]

    def _note_fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._fsync(descriptor)
        self.calls.append("/".join(path.parts[-2:]))

    def _note_link(self, source: Any, target: Any, **rest: Any) -> None:
        if kind_of(Path(source).read_bytes()) == "DECIDED":
            self.calls.append("DECIDED")
        self._link(source, target, **rest)

    def _note_syncfs(self, path: Path) -> None:
        self._syncfs(path)
        self.calls.append("file system")

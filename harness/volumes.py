"""A volume as a pod has it, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.internals import volumes


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Kubernetes mounts an emptyDir: root's, 0777, without the sticky bit."""
    (tmp_path / "containerenv").touch()
    monkeypatch.setattr(volumes, "_CONTAINER_FILES", (str(tmp_path / "containerenv"),))
    found = tmp_path / "vol"
    found.mkdir()
    found.chmod(0o777)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == found)
    return found

"""A volume of a container is writable by everyone who is there: the job alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twophase.errors import ConfigError
from twophase.state.files import folder_rights
from twophase.state.files.storage import LocalStorage


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Kubernetes mounts an emptyDir: root's, 0777, without the sticky bit."""
    (tmp_path / "containerenv").touch()
    monkeypatch.setattr(folder_rights, "_CONTAINER_FILES", (str(tmp_path / "containerenv"),))
    found = tmp_path / "vol"
    found.mkdir()
    found.chmod(0o777)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == found)
    return found


@pytest.mark.parametrize("rights", [0o777, 0o2777])
@pytest.mark.parametrize("below", ["job", "jobs/orders"])
def test_a_folder_inside_a_volume_is_made_and_found_again(
    volume: Path, rights: int, below: str
) -> None:
    volume.chmod(rights)
    for _ in range(2):
        assert LocalStorage(volume / below).root.stat().st_mode & 0o777 == 0o700


def test_the_volume_itself_is_refused_with_a_remedy_that_a_pod_can_follow(volume: Path) -> None:
    with pytest.raises(ConfigError, match="is writable by everyone") as caught:
        LocalStorage(volume)
    path = caught.value.remedy.rpartition(": ")[2]
    assert Path(path).parent == volume
    LocalStorage(path)


def test_a_folder_of_another_account_in_a_volume_is_refused(volume: Path) -> None:
    (volume / "job").symlink_to(volume)
    with pytest.raises(ConfigError, match="is writable by everyone"):
        LocalStorage(volume / "job" / "orders")
    (volume / "theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(volume / "theirs", 12345, 12345)
        with pytest.raises(ConfigError, match="is writable by everyone"):
            LocalStorage(volume / "theirs")


def test_elsewhere_such_a_folder_is_refused(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume / "open").mkdir()
    (volume / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="run: chmod o-w"):
        LocalStorage(volume / "open" / "job")
    monkeypatch.setattr(folder_rights, "_CONTAINER_FILES", ())
    with pytest.raises(ConfigError, match="run: chmod o-w"):
        LocalStorage(volume / "job")

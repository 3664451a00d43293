"""Tables in a volume of a container, which is writable by everyone who is there: the job alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.staged_sink_harness import FileHarness
from harness.volumes import volume
from twophase.errors import PreflightError
from twophase.internals import volumes

__all__ = ["volume"]

MAKERS: dict[str, Any] = {
    "file": lambda folder: FileHarness(folder / "orders"),
    "iceberg": IcebergHarness,
}


@pytest.mark.parametrize("rights", [0o777, 0o2777])
@pytest.mark.parametrize("below", ["lake", "lakes/shop"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_table_inside_a_volume_is_written(
    volume: Path, kind: str, below: str, rights: int
) -> None:
    volume.chmod(rights)
    (volume / below).mkdir(parents=True)
    with closing(MAKERS[kind](volume / below).opened()):
        pass


@pytest.mark.parametrize("kind", MAKERS)
def test_elsewhere_such_a_folder_is_refused(
    volume: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (volume / "lake").mkdir()
    monkeypatch.setattr(volumes, "_CONTAINER_FILES", ())
    with pytest.raises(PreflightError, match="is writable by everyone") as caught:
        MAKERS[kind](volume / "lake").opened()
    assert caught.value.remedy == f"run: chmod o-w {volume}"
    volume.chmod(0o775)
    MAKERS[kind](volume / "lake").opened().close()


def test_the_volume_itself_is_refused_with_a_remedy_that_a_pod_can_follow(volume: Path) -> None:
    with pytest.raises(PreflightError, match="is writable by everyone") as caught:
        FileHarness(volume).opened()
    advised = Path(caught.value.remedy.rpartition(": ")[2])
    assert advised.parent == volume
    FileHarness(advised).opened().close()

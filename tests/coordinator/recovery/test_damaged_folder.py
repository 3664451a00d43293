"""A part of the job's folder is gone or damaged, and there is no backup of it: what the error names
takes the rest over from the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import Driver, decided, visible
from tests.operations.repair.test_adopt import adopt
from twophase.contract.sink import CommitRequest
from twophase.errors import CheckpointMissingError, CorruptRecordError, TwoPhaseError
from twophase.testing.memory import MemoryTarget


def remove(path: Path) -> None:
    path.unlink()


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize(
    ("file", "damage", "error"),
    [
        ("chk/*-1-*/_metadata", remove, CheckpointMissingError),
        ("chk/*-1-*/_metadata", tear, CorruptRecordError),
        ("log/0000000003", remove, CorruptRecordError),
        ("log/0000000003", tear, CorruptRecordError),
    ],
)
def test_what_is_lost_of_the_folder_is_adopted_from_the_targets_as_the_error_says(
    driver: Driver,
    targets: dict[str, MemoryTarget],
    another: Callable[..., Driver],
    folder: Path,
    file: str,
    damage: Callable[[Path], None],
    error: type[TwoPhaseError],
) -> None:
    """Checkpoint 1 is committed in one of two sinks."""
    driver.run(0)
    decided(driver, 1)
    facts = driver.sinks["facts"]
    facts.commit([CommitRequest(piece) for piece in facts.in_doubt()])
    [path] = folder.glob(file)
    damage(path)
    with pytest.raises(error) as caught:
        another().recover()
    assert "twophase repair adopt-from-target JOB.yaml" in caught.value.remedy
    if path.parent.name == "log":
        assert "mv log log.damaged" in caught.value.remedy
        path.parent.rename(folder / "log.damaged")
    adopt(folder, targets)
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))

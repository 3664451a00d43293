"""Spark's folder inside the job's folder has other offsets than the log has decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.savepoint_world import restoring
from twophase.errors import OffsetMismatchError

pytestmark = pytest.mark.part("runtime")


def restore_spark_s_folder(world: BeginningWorld) -> None:
    world.copy("backup/spark", "job/spark")
    world.drive(5)


def begin_a_lineage(world: BeginningWorld) -> None:
    world.drive(5, **restoring(world.root / "saved", "refuse"))


@pytest.mark.parametrize("go_on", [restore_spark_s_folder, begin_a_lineage])
def test_a_job_whose_spark_folder_was_changed_goes_on_as_it_says(
    tmp_path: Path, go_on: Callable[[BeginningWorld], None]
) -> None:
    """Spark would run the last micro-batch again, over other numbers: nothing is written. I restore
    its folder, or a savepoint of the newest checkpoint.
    """
    world = BeginningWorld(tmp_path)
    world.drive(4)
    world.make()
    world.copy("job", "backup")
    planned = world.spark() / "offsets" / "3"
    planned.write_text(planned.read_text().replace("40", "35"))
    (world.spark() / "commits" / "3").unlink()
    with pytest.raises(OffsetMismatchError) as caught:
        world.drive(5)
    assert "was changed, or replaced by an old copy" in caught.value.remedy
    assert world.ids() == [[*range(40)]] * 2
    go_on(world)
    world.is_exact("job", 5)

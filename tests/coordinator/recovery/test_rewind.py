"""A rewind to a kept checkpoint, over sinks in memory, and deaths between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import (
    JOB,
    Driver,
    completed_of,
    decided,
    dying,
    restoring,
    visible,
)
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import FencedError, RestoreRefusedError, TargetChangedError
from twophase.events import RecoveryFinished, SinkRewound
from twophase.operations.savepoint.restore import restore_of_checkpoint
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Another = Callable[..., Driver]
KEPT = {"checkpoint.num_retained": 9}


@pytest.fixture
def driver(folder: Path, targets: dict[str, MemoryTarget]) -> Driver:
    """Checkpoints 0 to 3 are committed, 4 is decided."""
    driver = Driver(folder, targets, KEPT).recover()
    for number in range(4):
        driver.run(number)
    decided(driver, 4)
    return driver


def to(folder: Path, number: int) -> Restore:
    return replace(
        restoring(completed_of(folder, number), committed=True), sink_ahead=SinkAhead.REWIND
    )


def rewind(driver: Driver, restore: Restore) -> None:
    driver.coordinator.recover(None, restore)
    driver.coordinator.begin_lineage(restore.lineage)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_what_is_committed_or_decided_after_it_is_taken_back(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget], kept: int
) -> None:
    lineage = driver.coordinator.lineage.id
    restarted = another(options=KEPT)
    rewind(restarted, to(folder, kept))
    for target in targets.values():
        assert visible(target) == [*range(10 * (kept + 1))]
        assert not target.prepared
    assert restarted.of(SinkRewound) == [
        SinkRewound("orders", name, lineage, 4, kept) for name in targets
    ]
    history = restarted.history
    assert [one.checkpoint for one in history.decisions] == [*range(kept + 1)]
    assert history.rewinding is None
    again = another(options=KEPT).recover()
    assert again.of(RecoveryFinished)[0].recommitted == 0


@pytest.mark.parametrize("point", ["C18", "C19", "C22", "S11", "S12", "S13"])
def test_a_death_anywhere_is_made_good_by_the_same_restore(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget], point: str
) -> None:
    first = another(options=KEPT)
    dying(point, lambda: rewind(first, to(folder, 1)))
    if first.history.rewinding is not None:
        with pytest.raises(RestoreRefusedError, match="started and not finished"):
            another(options=KEPT).recover()
        with pytest.raises(RestoreRefusedError, match="started and not finished"):
            rewind(another(options=KEPT), to(folder, 3))
    rewind(another(options=KEPT), to(folder, 1))
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


def test_an_older_point_finishes_a_rewind_that_was_begun(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget]
) -> None:
    dying("S12", lambda: rewind(another(options=KEPT), to(folder, 2)))
    rewind(another(options=KEPT), to(folder, 1))
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


def test_rows_that_others_have_removed_refuse_it_before_the_fence(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget]
) -> None:
    whole = [*targets["lake"].visible]
    targets["lake"].visible[:] = [row for row in whole if row["id"] != 35]
    before = {name: visible(target) for name, target in targets.items()}
    generation = driver.coordinator.generation
    with pytest.raises(RestoreRefusedError, match="checkpoint 3 of lineage") as caught:
        rewind(another(options=KEPT), to(folder, 1))
    assert caught.value.remedy
    assert {name: visible(target) for name, target in targets.items()} == before
    assert another(options=KEPT).recover().coordinator.generation == generation + 1
    targets["lake"].visible[:] = [*whole, *targets["lake"].visible[len(whole) - 1 :]]
    rewind(another(options=KEPT), to(folder, 1))
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


def test_a_target_that_is_restored_in_the_middle_is_looked_at_again_by_the_next_start(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget]
) -> None:
    """No other driver goes on: the fence is one of before."""
    before = dict(targets["lake"].fences)

    def restored() -> None:
        targets["lake"].fences = dict(before)

    with pytest.raises(
        TargetChangedError, match="but not the one that this driver has raised"
    ) as caught:
        rewind(another(options=KEPT), replace(to(folder, 1), goes_back=restored))
    assert caught.value.remedy.startswith("start the job again")
    rewind(another(options=KEPT), to(folder, 1))
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


class StillAhead(OpenMemorySink):
    """Its rewind does nothing."""

    def rewind(self, *_: object) -> None: ...


def test_a_sink_that_is_still_ahead_afterwards_stops_the_start(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget]
) -> None:
    with pytest.raises(RestoreRefusedError, match="'lake' still has proof of checkpoint 4"):
        rewind(
            another(options=KEPT, sinks={"lake": StillAhead(targets["lake"], JOB, "lake")}),
            to(folder, 1),
        )
    rewind(another(options=KEPT), to(folder, 1))
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


def test_a_kept_checkpoint_before_decided_ones_is_rewound_to_in_its_own_folder_only(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    [named] = [one for one in driver.history.decisions if one.checkpoint == 1]
    path = folder / named.folder
    for policy, root, allowed in (
        ("refuse", folder, False),
        ("rewind", tmp_path / "copy", False),
        ("rewind", folder, True),
    ):
        given = {"checkpointLocation": str(root), "restore.sink_ahead": policy}
        options = JobOptions.parse(given, "job")
        if allowed:
            assert restore_of_checkpoint("orders", path, options, root).checkpoint.checkpoint == 1
        else:
            with pytest.raises(RestoreRefusedError, match="was decided after it"):
                restore_of_checkpoint("orders", path, options, root)


def test_the_body_that_it_goes_back_to_stays_until_its_lineage_has_begun(
    folder: Path, targets: dict[str, MemoryTarget], another: Another
) -> None:
    driver = Driver(folder, targets).recover()
    for number in range(4):
        driver.run(number)
    decided(driver, 4)
    dying("S12", lambda: rewind(another(), to(folder, 3)))
    rewind(another(), to(folder, 3))
    assert [visible(target) for target in targets.values()] == [[*range(40)]] * 2


def test_a_restore_that_another_driver_has_done_meanwhile_is_not_done_again(
    driver: Driver, another: Another, folder: Path, targets: dict[str, MemoryTarget]
) -> None:
    """Found by the simulation: both were started with the same options. The second would take back
    what the first has written since.
    """
    first, second = to(folder, 1), to(folder, 1)
    restored = another(options=KEPT)
    rewind(restored, first)
    restored.run(1, lambda pending: restored.write_rows(pending, 20))
    records = restored.context.log.length()
    with pytest.raises(FencedError, match=f"another driver has begun lineage {first.lineage.id}"):
        rewind(another(options=KEPT), second)
    restored.run(2, lambda pending: restored.write_rows(pending, 30))
    assert restored.context.log.length() == records + 2, "it was not overtaken"
    last = another(options=KEPT).recover()
    last.run(3, lambda pending: last.write_rows(pending, 40))
    for target in targets.values():
        assert visible(target) == [*range(50)]

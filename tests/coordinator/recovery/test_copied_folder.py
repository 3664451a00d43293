"""A driver over a copy of the folder, beside the one over the original: no log fences
them from each other.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.memory_driver import JOB, Driver, completed_of, restoring, visible
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest, SinkHistory
from twophase.coordinator.commit.fan_out import FanOut, SideBySide, sequentially
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import (
    CheckpointMissingError,
    DeclinedError,
    FencedError,
    RestoreRefusedError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.events import OrphansAborted
from twophase.ids import Attempt
from twophase.internals.clock import Stopwatch
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]


class Down(OpenMemorySink):
    """Commits nothing, and stops its driver instead of letting it wait for ever."""

    up = False
    driver: Driver

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.up:
            return super().commit(requests)
        self.driver.context.stopping.set()
        return [RetryLater("down") for _ in requests]


class Interrupted(OpenMemorySink):
    """Something happens once: when it has said what it remembers, or when it is about to abort or
    to raise its fence.
    """

    def __init__(self, target: MemoryTarget, at: str, action: Callable[[], None]) -> None:
        super().__init__(target, JOB, "facts")
        self._at, self._action = at, action

    def _reaches(self, at: str) -> None:
        if self._at == at:
            self._at = ""
            self._action()

    def history(self) -> SinkHistory:
        said = super().history()
        self._reaches("question")
        return said

    def abort(self, committables: Sequence[Committable]) -> None:
        self._reaches("abort")
        super().abort(committables)

    def fence(self, attempt: Attempt) -> None:
        self._reaches("fence")
        super().fence(attempt)


class Original:
    """The driver over the original, of which a copy was made after checkpoint 0."""

    def __init__(self, folder: Path, targets: Targets, *down: str) -> None:
        self.sinks = {name: Down(targets[name], JOB, name) for name in down}
        self.driver = Driver(folder / "job", targets, sinks={**self.sinks}).recover()
        for sink in self.sinks.values():
            sink.driver, sink.up = self.driver, True
        self.driver.run(0)
        shutil.copytree(folder / "job", folder / "copy")
        for sink in self.sinks.values():
            sink.up = False

    def decides(self) -> None:
        self.driver.run(1)

    def commits_the_rest(self) -> bool:
        for sink in self.sinks.values():
            sink.up = True
        self.driver.context.stopping.clear()
        return self.driver.context.completer.commit_decided(self.driver.history.uncommitted()[0])


def a_thread(run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, daemon=True)


def copy_of(folder: Path) -> Restore:
    return restoring(completed_of(folder / "copy", 0), committed=True)


@pytest.mark.parametrize("at", ["question", "fence"])
@pytest.mark.parametrize("restores", [False, True], ids=["plain", "restore"])
def test_what_the_original_commits_before_the_fences_are_up_stops_the_copy(
    tmp_path: Path, targets: Targets, restores: bool, at: str
) -> None:
    original = Original(tmp_path, targets)
    sinks = {"facts": Interrupted(targets["facts"], at, original.decides)}
    copy = Driver(tmp_path / ("new" if restores else "copy"), targets, sinks={**sinks})
    with pytest.raises(
        RestoreRefusedError if restores else CheckpointMissingError,
        match=r"has committed checkpoint 1",
    ):
        copy.coordinator.recover(restore=copy_of(tmp_path) if restores else None)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize("at", ["question", "fence"])
@pytest.mark.parametrize("restores", [False, True], ids=["plain", "restore"])
@pytest.mark.parametrize("down", ["facts", "lake"])
def test_nothing_is_aborted_while_a_sink_is_ahead(
    tmp_path: Path, targets: Targets, down: str, restores: bool, at: str
) -> None:
    original = Original(tmp_path, targets, down)
    sinks = {"facts": Interrupted(targets["facts"], at, original.decides)}
    copy = Driver(tmp_path / ("new" if restores else "copy"), targets, sinks={**sinks})
    with pytest.raises(
        RestoreRefusedError if restores else CheckpointMissingError,
        match=r"has committed checkpoint 1",
    ):
        copy.coordinator.recover(restore=copy_of(tmp_path) if restores else None)
    assert not copy.of(OrphansAborted)
    assert original.commits_the_rest()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize(
    "fan_out", [sequentially, SideBySide(a_thread)], ids=["in turn", "side by side"]
)
def test_what_is_committed_in_one_sink_while_it_is_closed_is_not_aborted_in_the_next(
    tmp_path: Path, targets: Targets, fan_out: FanOut
) -> None:
    """The original commits in the order of the job, and the copy aborts in it: it never aborts the
    rest of a checkpoint.
    """
    original = Original(tmp_path, targets, "facts", "lake")
    original.decides()

    def commits_facts_only() -> None:
        original.sinks["facts"].up = True
        original.driver.context.stopping.clear()
        decision = original.driver.history.uncommitted()[0]
        assert not original.driver.context.completer.commit_decided(decision)

    sinks = {"facts": Interrupted(targets["facts"], "abort", commits_facts_only)}
    copy = Driver(tmp_path / "copy", targets, sinks={**sinks}, fan_out=fan_out)
    with pytest.raises(CheckpointMissingError, match=r"'facts' has committed checkpoint 1"):
        copy.coordinator.recover()
    assert original.commits_the_rest()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_what_no_sink_shows_is_written_again_and_the_original_is_fenced(
    tmp_path: Path, targets: Targets
) -> None:
    """Decided in a log that the copy does not know, and committed nowhere: no target tells it from
    what is undecided. No row is lost: the copy has read them again.
    """
    original = Original(tmp_path, targets, "facts", "lake")
    original.decides()
    copy = Driver(tmp_path / "copy", targets).recover()
    copy.run(1)
    with pytest.raises(FencedError):
        original.commits_the_rest()
    with pytest.raises(CheckpointMissingError, match="has seen generation 2"):
        Driver(tmp_path / "job", targets).recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_what_only_a_sink_ahead_shows_is_written_again_and_the_original_is_fenced(
    tmp_path: Path, targets: Targets
) -> None:
    facts = Down(targets["facts"], JOB, "facts")
    ahead = {"checkpoint.mode": "at_least_once"}
    original = facts.driver = Driver(tmp_path / "job", targets, ahead, {"facts": facts}).recover()
    facts.up = True
    original.run(0)
    facts.up = False
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    copy = Driver(tmp_path / "copy", targets)

    def the_copy_is_faster(pending: PendingCheckpoint) -> None:
        original.write(pending)
        assert [one.sink for one in original.history.sink_decisions] == ["facts"]
        copy.recover().run(1)
        facts.up = True
        original.context.stopping.clear()
        raise DeclinedError("down.")

    with pytest.raises(FencedError, match="of checkpoint 1 may be of that driver's"):
        original.run(1, the_copy_is_faster)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize("raises_marks", [True, False])
def test_what_a_target_says_after_the_copy_proves_nothing_to_the_original(
    tmp_path: Path, targets: Targets, raises_marks: bool
) -> None:
    """Found by the simulation: a mark covers the number of its checkpoint, and is of the copy's,
    which has other rows. Without one its pieces are gone, and no row is lost: the copy has read
    them again.
    """
    original = Original(tmp_path, targets, "facts", "lake")
    original.decides()
    decided = completed_of(tmp_path / "job", 1)
    copy = Driver(tmp_path / "copy", targets).recover()
    copy.run(1)
    if raises_marks:
        for sink in copy.sinks.values():
            sink.subsume(decided.lineage, 1)
    for sink in original.sinks.values():
        sink.up = True
    original.driver.context.stopping.clear()
    with pytest.raises(FencedError) as caught:
        original.driver.context.completer.commit(decided, Stopwatch(original.driver.clock))
    assert caught.value.remedy.startswith("leave this driver stopped; find out")
    assert original.driver.history.uncommitted(), "it would tell what it does not know"
    copy.run(2)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def test_an_orphan_that_the_original_commits_while_it_is_aborted_is_a_checkpoint_that_the_copy_lacks(  # noqa: E501
    tmp_path: Path, targets: Targets
) -> None:
    """Found by the simulation: the sink says that its rows are visible and to be removed by hand,
    but they were decided.
    """
    original = Original(tmp_path, targets, "facts", "lake")
    original.decides()

    def is_committed() -> None:
        original.commits_the_rest()
        raise StopJobError(
            "It was to be rolled back and is committed: its rows are visible.",
            remedy="remove its rows.",
        )

    sinks = {"facts": Interrupted(targets["facts"], "abort", is_committed)}
    copy = Driver(tmp_path / "copy", targets, sinks={**sinks})
    with pytest.raises(CheckpointMissingError, match=r"'facts' has committed checkpoint 1"):
        copy.coordinator.recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_a_sink_that_does_not_answer_then_is_asked_by_the_next_start(
    tmp_path: Path, targets: Targets
) -> None:
    """Found by the simulation: until it answers, the error must not advise to remove rows
    that may be decided.
    """
    original = Original(tmp_path, targets, "facts", "lake")
    original.decides()

    def is_down() -> None:
        raise TargetUnreachableError("lost connection.")

    def is_committed() -> None:
        original.commits_the_rest()
        sink._at, sink._action = "question", is_down
        raise StopJobError(
            "It was to be rolled back and is committed: its rows are visible.",
            remedy="remove its rows.",
        )

    sink = Interrupted(targets["facts"], "abort", is_committed)
    copy = Driver(tmp_path / "copy", targets, sinks={"facts": sink})
    with pytest.raises(TargetUnreachableError):
        copy.coordinator.recover()
    with pytest.raises(CheckpointMissingError, match=r"'facts' has committed checkpoint 1"):
        Driver(tmp_path / "copy", targets).coordinator.recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))

"""States in which a job refuses to start or stops: the message names what is wrong, and what it
says leads out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.memory_driver import JOB, Driver, completed_of, restoring, visible
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    PreflightError,
    StopJobError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.events import CommitRetried
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


class Scripted(OpenMemorySink):
    """Answers what it is told to, and stops its driver after that."""

    answer: CommitOutcome | TwoPhaseError | None = None
    commits_first = False
    driver: Driver

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.answer is None:
            return super().commit(requests)
        if self.commits_first:
            super().commit(requests)
        self.driver.coordinator.context.stopping.set()
        if isinstance(self.answer, TwoPhaseError):
            raise self.answer
        return [self.answer for _ in requests]


def scripted(folder: Path, targets: Targets) -> tuple[Driver, Scripted]:
    sink = Scripted(targets["facts"], JOB, "facts")
    driver = Driver(folder / "job", targets, sinks={"facts": sink}).recover()
    sink.driver = driver
    driver.run(0)
    return driver, sink


def replica_of(target: MemoryTarget) -> MemoryTarget:
    """Another server with everything that the first one has."""
    replica = MemoryTarget()
    replica.visible, replica.ledger = list(target.visible), set(target.ledger)
    replica.prepared = dict(target.prepared)
    replica.high_water, replica.fences = dict(target.high_water), dict(target.fences)
    return replica


def failed_over(folder: Path, targets: Targets, *, commits_first: bool) -> Targets:
    """The server dies with checkpoint 1 decided; a replica takes over that has all of it."""
    driver, sink = scripted(folder, targets)
    sink.answer, sink.commits_first = RetryLater("lost"), commits_first
    driver.run(1)
    return {"facts": replica_of(targets["facts"]), "lake": targets["lake"]}


def test_after_a_failover_a_piece_that_the_replica_proves_is_committed(
    targets: Targets, tmp_path: Path
) -> None:
    new = failed_over(tmp_path, targets, commits_first=True)
    driver = Driver(tmp_path / "job", new).recover()
    driver.run(2)
    assert visible(new["facts"]) == visible(new["lake"]) == list(range(30))


def test_after_a_failover_a_restore_goes_on_too(targets: Targets, tmp_path: Path) -> None:
    new = failed_over(tmp_path, targets, commits_first=True)
    restore = restoring(completed_of(tmp_path / "job", 1), committed=False)
    driver = Driver(tmp_path / "moved", new)
    driver.coordinator.recover(restore=restore)
    driver.coordinator.begin_lineage(restore.lineage)
    driver.run(1)
    assert visible(new["facts"]) == sorted([*range(20), *range(10, 20)]), (
        "the same offsets, of another lineage"
    )


def test_after_a_failover_a_piece_without_proof_is_not_committed_there(
    targets: Targets, tmp_path: Path
) -> None:
    new = failed_over(tmp_path, targets, commits_first=False)
    with pytest.raises(TargetChangedError, match="was written to memory:"):
        Driver(tmp_path / "job", new).recover()
    assert visible(new["facts"]) == list(range(10))


def test_an_undecided_piece_that_somebody_committed_by_hand_is_named_with_the_way_on(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    driver.dies_undecided(1)
    facts = driver.sinks["facts"]
    (outcome, *_) = facts.commit([CommitRequest(facts.in_doubt()[0])])
    assert not isinstance(outcome, AlreadyCommitted)
    with pytest.raises(CheckpointMissingError, match=r"the pieces 1\.2/0\.200 .*by hand") as caught:
        another().recover()
    assert "delete their rows from the target together with their proofs" in caught.value.remedy

    targets["facts"].visible = [row for row in targets["facts"].visible if row["id"] < 10]
    targets["facts"].ledger = {key for key in targets["facts"].ledger if key[3] == 0}
    another().recover().run(1)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


@pytest.mark.parametrize(
    "error", [ConfigError("There is no table t."), PreflightError("The right is missing.")]
)
def test_what_no_retry_mends_stops_the_job_by_name(
    error: TwoPhaseError, targets: Targets, another: Another, tmp_path: Path
) -> None:
    driver, sink = scripted(tmp_path, targets)
    sink.answer = error
    with pytest.raises(
        StopJobError, match=rf"checkpoint 1 is decided, and sink 'facts' cannot .*{error.what}"
    ):
        driver.run(1)
    assert not driver.of(CommitRetried)
    assert visible(targets["lake"]) == list(range(20)), "the others commit"
    another().recover()
    assert visible(targets["facts"]) == list(range(20))

"""A lineage that has no checkpoint of its own reads the one that it was restored from, whatever its
source has done since.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import JOB, Driver, decided
from harness.newer_version import renew, renew_body
from tests.state.conftest import snapshot
from twophase.errors import CheckpointMissingError, ConfigError, NewerFormatError
from twophase.ids import new_lineage_id
from twophase.operations.savepoint.restore import load_restore, restored_checkpoint
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision, Lineage
from twophase.testing.memory import MemoryTarget


class Source:
    """The folder restored from: its checkpoint 0 is committed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.driver = Driver(
            root, {"facts": MemoryTarget()}, {"checkpoint.num_retained": 2}
        ).recover()
        self.driver.run(0)
        self.restored_from = root / self.decision.folder
        self.origin = self.decision.body_digest

    @property
    def decision(self) -> Decision:
        return self.driver.coordinator.context.log.read().decisions[0]

    def read(self, **options: object) -> CompletedCheckpoint | None:
        """What the restored job does at a start."""
        restored_from = str(self.restored_from)
        lineage = Lineage(new_lineage_id(), restored_from=restored_from, origin=self.origin)
        return restored_checkpoint(
            JOB, lineage, JobOptions.parse({"checkpointLocation": str(self.root), **options}, "job")
        )


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source")


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "never committed"])
def test_what_the_source_decides_later_takes_nothing_away(source: Source, commits: bool) -> None:
    if commits:
        source.driver.run(1)
    else:
        decided(source.driver, 1)
    found = source.read(**{"restore.allow_non_restored_state": True})
    assert found is not None
    assert found.checkpoint == 0


def remove_all(source: Source) -> None:
    shutil.rmtree(source.root)


def remove_body(source: Source) -> None:
    shutil.rmtree(source.restored_from)


def remove_decision(source: Source) -> None:
    source.restored_from = source.restored_from.with_name("another-0-1.1")


GONE = pytest.mark.parametrize("remove", [remove_all, remove_body, remove_decision])


@GONE
def test_one_that_is_gone_is_named(source: Source, remove: Callable[[Source], None]) -> None:
    remove(source)
    with pytest.raises(
        CheckpointMissingError,
        match="has no checkpoint of its own yet, and the one that it began with is",
    ) as caught:
        source.read()
    assert str(source.restored_from) in str(caught.value)
    assert "othing was written" not in caught.value.what, "the start has fenced and aborted by now"
    assert "restore.allow_non_restored_state" in caught.value.remedy


@GONE
def test_its_state_is_dropped_where_it_may_be_and_the_log_says_so(
    source: Source, remove: Callable[[Source], None], caplog: pytest.LogCaptureFixture
) -> None:
    remove(source)
    with caplog.at_level(logging.WARNING, "twophase"):
        assert source.read(**{"restore.allow_non_restored_state": True}) is None
    assert str(source.restored_from) in caplog.text


def test_a_folder_that_everybody_may_write_to_is_not_called_gone(source: Source) -> None:
    source.root.chmod(0o777)
    with pytest.raises(ConfigError, match="writable by everyone"):
        source.read(**{"restore.allow_non_restored_state": True})


def test_a_checkpoint_that_is_subsumed_is_not_kept_any_more(source: Source, tmp_path: Path) -> None:
    """Its decision stays in the log until that is folded. Nothing is damaged: no repair helps."""
    for number in (1, 2):
        source.driver.run(number)
    assert not (source.restored_from / "_metadata").exists()
    assert source.decision.folder == source.restored_from.relative_to(source.root).as_posix()
    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "job")}, "job")
    new, states = LocalStorage(tmp_path / "job"), OperatorStates([], {})
    with pytest.raises(ConfigError, match="no longer kept"):
        load_restore(JOB, str(source.restored_from), new, states, options)


@pytest.mark.parametrize("here", [True, False], ids=["own folder", "another folder"])
def test_a_checkpoint_whose_body_is_gone_is_adopted_in_its_own_folder_only(
    source: Source, tmp_path: Path, here: bool
) -> None:
    """An adoption in the folder of the restore would find nothing that it lacks."""
    remove_body(source)
    root = source.root if here else tmp_path / "job"
    options = JobOptions.parse({"checkpointLocation": str(root)}, "job")
    path, states = str(source.restored_from), OperatorStates([], {})
    with pytest.raises(CheckpointMissingError) as caught:
        load_restore(JOB, path, LocalStorage(root), states, options)
    assert ("adopt-from-target" in caught.value.remedy) is here
    assert ("without restore.path" in caught.value.remedy) is not here


@pytest.mark.parametrize("newer", ["body", "log"])
def test_a_restore_from_what_a_newer_version_has_written_is_refused_by_its_version(
    source: Source, tmp_path: Path, newer: str
) -> None:
    path = (
        source.restored_from / "_metadata"
        if newer == "body"
        else source.root / "log" / "0000000003"
    )
    restored_from, origin = source.restored_from, source.origin
    if newer == "body":
        renew_body(source.root, path)
        origin = source.decision.body_digest
    else:
        renew(path)
    before = snapshot(source.root)
    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "job")}, "job")
    states = OperatorStates([], {})
    with pytest.raises(NewerFormatError, match=f"{path.name} was written by a newer twophase"):
        load_restore(
            JOB, f"file://{restored_from}", LocalStorage(tmp_path / "job"), states, options
        )
    lineage = Lineage(new_lineage_id(), restored_from=str(restored_from), origin=origin)
    dropping = JobOptions.parse(
        {"checkpointLocation": str(source.root), "restore.allow_non_restored_state": True}, "job"
    )
    with pytest.raises(NewerFormatError):
        restored_checkpoint(JOB, lineage, dropping)
    assert snapshot(source.root) == before

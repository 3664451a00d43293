"""A lineage that has no checkpoint of its own reads the one that it was restored from, whatever its
source has done since.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.memory_driver import JOB, Driver, decided, dying, visible
from harness.newer_version import renew, renew_body
from tests.state.conftest import snapshot
from twophase.cli.main import main
from twophase.contract.source import SourceLeg
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    NewerFormatError,
    RestoreRefusedError,
)
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
        return self.driver.context.log.read().decisions[0]

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


def restore(path: Path | str, folder: Path, policy: str = "refuse") -> Restore:
    """What a start with `restore.path` does first, in a folder."""
    given = {"checkpointLocation": str(folder), "restore.sink_ahead": policy}
    states = OperatorStates([SourceLeg("memory", {})], {})
    return load_restore(
        JOB, str(path), LocalStorage(folder), states, JobOptions.parse(given, "job")
    )


def listed(folder: Path) -> list[Path]:
    """The paths that `twophase checkpoints FOLDER` lists of checkpoints that can be restored."""
    result = CliRunner().invoke(main, ["checkpoints", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["checkpoints"]
    return [Path(one["path"]) for one in found if one["state"] == "committed"]


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
    backup = shutil.copytree(source.root, source.root.with_name("backup"))
    remove(source)
    with pytest.raises(
        CheckpointMissingError,
        match="has no checkpoint of its own yet, and the one that it began with is",
    ) as caught:
        source.read()
    assert str(source.restored_from) in str(caught.value)
    assert "othing was written" not in caught.value.what, "the start has fenced and aborted by now"
    assert "`restore.allow_non_restored_state=true`" in caught.value.remedy
    assert source.read(**{"restore.allow_non_restored_state": True}) is None
    shutil.rmtree(source.root, ignore_errors=True)
    backup.rename(source.root)
    source.restored_from = source.root / source.decision.folder
    found = source.read()
    assert found is not None
    assert found.checkpoint == 0


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
    with pytest.raises(ConfigError, match="no longer kept") as caught:
        restore(source.restored_from, tmp_path / "job")
    assert caught.value.remedy == "`twophase checkpoints FOLDER` lists the decided checkpoints."
    kept = [restore(path, tmp_path / "job") for path in listed(source.root)]
    assert [one.checkpoint.checkpoint for one in kept] == [1, 2]


def test_a_path_that_is_not_a_checkpoint_is_told_how_one_is_named(
    source: Source, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="is not a checkpoint") as caught:
        restore(source.root, tmp_path / "job")
    [form] = re.findall("<checkpointLocation>/(.*?);", caught.value.remedy)
    newest = source.decision
    names = {"lineage": newest.lineage, "n": newest.checkpoint, "attempt": newest.attempt}
    for name, value in names.items():
        form = form.replace(f"<{name}>", str(value))
    assert listed(source.root) == [source.root / form]
    assert restore(source.root / form, tmp_path / "job").checkpoint.checkpoint == 0


def test_a_restore_before_a_checkpoint_that_is_decided_is_refused_and_that_one_is_named(
    source: Source, tmp_path: Path
) -> None:
    decided(source.driver, 1)
    with pytest.raises(RestoreRefusedError, match="checkpoint 1 was decided after it") as caught:
        restore(source.restored_from, tmp_path / "job")
    [path] = re.findall(r"restore from (\S+)\.$", caught.value.remedy)
    found = restore(Path(path), tmp_path / "job")
    assert [one.checkpoint for one in found.adopting] == [found.checkpoint.checkpoint] == [1]
    new = Driver(tmp_path / "job", source.driver.targets)
    new.coordinator.recover(restore=found)
    new.coordinator.begin_lineage(found.lineage)
    for target in source.driver.targets.values():
        assert visible(target) == [*range(20)]


@pytest.mark.parametrize("takes_back", [False, True])
def test_a_restore_elsewhere_of_what_a_sink_is_ahead_of_leads_to_the_job_s_own_folder(
    tmp_path: Path, takes_back: bool
) -> None:
    ahead = {"checkpoint.mode": "at_least_once", "checkpoint.num_retained": 2}
    targets = {"facts": MemoryTarget(), "lake": MemoryTarget()}
    first = Driver(tmp_path / "source", targets, ahead).recover()
    first.run(0)
    dying("A02", lambda: first.run(1))
    [path] = listed(tmp_path / "source")
    with pytest.raises(RestoreRefusedError, match="commits checkpoint 1 after it") as caught:
        restore(path, tmp_path / "job")
    assert caught.value.remedy == (
        "start the job in that folder without restore.path to go on from it; or take the rows "
        "back there, with `restore.sink_ahead=rewind`."
    )
    again = Driver(tmp_path / "source", targets, ahead)
    if takes_back:
        found = restore(path, again.folder, "rewind")
        again.coordinator.recover(restore=found)
        again.coordinator.begin_lineage(found.lineage)
        assert [visible(target) for target in targets.values()] == [[*range(10)]] * 2
    else:
        again.recover()
    again.run(1)
    assert [visible(target) for target in targets.values()] == [[*range(20)]] * 2


@pytest.mark.parametrize("here", [True, False], ids=["own folder", "another folder"])
def test_a_checkpoint_whose_body_is_gone_is_adopted_in_its_own_folder_only(
    source: Source, tmp_path: Path, here: bool
) -> None:
    """An adoption in the folder of the restore would find nothing that it lacks."""
    backup = shutil.copytree(source.root, source.root.with_name("backup"))
    remove_body(source)
    root = source.root if here else tmp_path / "job"
    with pytest.raises(CheckpointMissingError) as caught:
        restore(source.restored_from, root)
    assert ("adopt-from-target" in caught.value.remedy) is here
    assert ("without restore.path" in caught.value.remedy) is not here
    if not here:
        assert f"restore the folder {source.root} from a backup" in caught.value.remedy
        shutil.rmtree(source.root)
        backup.rename(source.root)
        assert restore(source.restored_from, root).checkpoint.checkpoint == 0


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
    with pytest.raises(NewerFormatError, match=f"{path.name} was written by a newer twophase"):
        restore(f"file://{restored_from}", tmp_path / "job")
    lineage = Lineage(new_lineage_id(), restored_from=str(restored_from), origin=origin)
    dropping = JobOptions.parse(
        {"checkpointLocation": str(source.root), "restore.allow_non_restored_state": True}, "job"
    )
    with pytest.raises(NewerFormatError):
        restored_checkpoint(JOB, lineage, dropping)
    assert snapshot(source.root) == before

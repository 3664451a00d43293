"""Jobs over Spark's file source are rewound, and their program is changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.beginning_world import refused
from harness.folder_sink import OpenFolderSink
from harness.savepoint_world import restoring
from integration.beginnings.files_driver import FilesJob, once_each
from twophase.errors import ConfigError, DeclinedError, ReplayLostError, SourceLossError
from twophase.spark.batch import batch
from twophase.spark.folder.planned_reads import check_present, check_undecided
from twophase.testing.services.spark_start import spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> FilesJob:
    return FilesJob(spark, tmp_path)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_no_row_of_an_archived_file_is_taken_back(job: FilesJob, folder: str) -> None:
    """I rewind, and the files that came after the savepoint have been archived: it is refused. With
    the files there again it is done.
    """
    for _ in range(2):
        job.add()
    job.run()
    path = job.save()
    later = [job.add() for _ in range(2)]
    job.run()
    archive = job.root / "archive"
    archive.mkdir()
    for file in later:
        shutil.move(file, archive / file.name)
    with refused(job.root):
        job.run(folder, **restoring(path, "rewind"))
    job.add()
    job.run()
    assert job.ids() == [*range(50)]
    for file in later:
        shutil.move(archive / file.name, file)
    job.run(**restoring(path, "rewind"))
    assert job.ids() == [*range(50)]


@pytest.mark.parametrize("read", ["", "*.json"], ids=["folder", "pattern"])
def test_two_file_sources_that_change_places_do_not_read_each_other_s_files(
    job: FilesJob, read: str
) -> None:
    """I wrote the union of two folders of files the other way round: that changes nothing, or is
    refused. In the old order the job goes on.
    """
    job.inputs, job.files = ("north", "south"), read
    for name in job.inputs:
        job.add(name)
        job.add(name)
    job.run()
    job.inputs = ("south", "north")
    with refused(job.root) as caught:
        job.run()
    assert isinstance(caught.value, ConfigError)
    job.inputs = ("north", "south")
    for name in job.inputs:
        job.add(name)
    job.run()
    assert job.ids() == [*range(60)]


class Down(OpenFolderSink):
    """It cannot be written to."""

    def writers(self) -> Any:
        raise DeclinedError("The target is down.")


@pytest.mark.parametrize("read", ["", "*"])
def test_two_file_sources_that_change_places_before_the_first_checkpoint(
    job: FilesJob, read: str
) -> None:
    """The same, and the first micro-batch had been planned, and nothing was decided."""
    job.inputs, job.files, job.kind = ("north", "south"), read, Down
    for name in job.inputs:
        job.add(name)
    with pytest.raises(DeclinedError):
        job.run()
    job.inputs, job.kind = ("south", "north"), OpenFolderSink
    with refused(job.root) as caught:
        job.run()
    assert isinstance(caught.value, ConfigError)
    job.inputs = ("north", "south")
    job.run()
    assert job.ids() == [*range(20)]


def killed(job: FilesJob, point: str, *kind: str) -> None:
    """Run the job in a process that is killed at a failpoint."""
    done = subprocess.run(
        [sys.executable, "-m", "integration.beginnings.files_driver", str(job.root), *kind],
        cwd=_ROOT,
        env=os.environ
        | spark_environment({})
        | {"PYTHONPATH": str(_ROOT), "TWOPHASE_FAILPOINTS": point},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def moved(file: Path) -> Path:
    """Take a file out of its folder."""
    return file.rename(file.parent.parent / f"moved-{file.name}")


@pytest.mark.parametrize("way", ["restored", "without its rows"])
def test_a_file_that_is_gone_when_its_micro_batch_runs_again_is_not_left_out(
    job: FilesJob, way: str
) -> None:
    """The driver was killed before the decision, and somebody has taken the files away, also those
    that are committed. The file that was to be read is named, and nothing is decided without it.
    """
    files = [job.add() for _ in range(3)]
    killed(job, "C06=kill@2")
    gone = moved(files[1])
    moved(files[0])
    named = f"1 is not decided: .*{files[1]} is gone"
    for _ in range(2):
        with pytest.raises(SourceLossError, match=named) as caught:
            job.run()
        assert caught.value.exit_code == 3
        assert job.ids() == [*range(10)]
    assert caught.value.remedy == (
        "restore it; or, to go on without its rows, put a file without rows in its place."
    )
    if way == "restored":
        gone.rename(files[1])
    else:
        files[1].touch()
    job.run()
    without = [] if way == "restored" else [*range(10, 20)]
    assert job.ids() == [number for number in range(30) if number not in without]


class Takes(OpenFolderSink):
    """The input is taken away when Spark has listed it, and has not read it."""

    def writers(self) -> Any:
        for file in (self._folder.root.parent / "input").glob("*.json"):
            moved(file)
        return super().writers()


@pytest.mark.parametrize("ignored", [False, True], ids=["failed", "passed over"])
def test_a_file_that_is_taken_away_under_its_micro_batch_is_not_left_out(
    spark: SparkSession, job: FilesJob, *, ignored: bool
) -> None:
    """Spark fails, and leaves the file out when it tries again; or at once, if the session ignores
    missing files. With the file there again the job has all rows.
    """
    job.kind, file = Takes, job.add()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", str(ignored))
    try:
        with pytest.raises(SourceLossError, match=f"0 is not decided: .*{file} is gone"):
            job.run(**{"restart.strategy": "fixed", "restart.delay": "1 ms"})
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert job.ids() == []
    job.kind = OpenFolderSink
    (job.root / f"moved-{file.name}").rename(file)
    job.run()
    assert job.ids() == [*range(10)]


def test_a_file_may_be_left_out_where_the_source_ignores_missing_files(job: FilesJob) -> None:
    job.kind, file = Down, job.add()
    with pytest.raises(DeclinedError):
        job.run()
    moved(file)
    job.add()
    job.kind, job.options = OpenFolderSink, {"ignoreMissingFiles": "true"}
    job.run()
    assert job.ids() == [*range(10, 20)]


def test_state_is_not_rebuilt_without_a_file_that_is_gone(job: FilesJob) -> None:
    """The driver was killed behind the commit, and Spark runs the micro-batch again for its state:
    it keeps what it has, and still knows the rows of the file.
    """
    job.transform = once_each
    files = [job.add() for _ in range(2)]
    killed(job, "C16=kill@2", "once_each")
    gone = moved(files[1])
    with pytest.raises(ReplayLostError, match=f"{files[1]} is gone"):
        job.run()
    shutil.copy(gone, job.root / "input" / "again.json")
    job.run()
    assert job.ids() == [*range(20)]


def test_state_that_was_rebuilt_without_a_file_is_not_kept(
    spark: SparkSession, job: FilesJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is taken away while the committed micro-batch runs again, and the session ignores
    missing files. With the file there again Spark's state has its rows.
    """
    job.transform = once_each
    files = [job.add() for _ in range(2)]
    killed(job, "C16=kill@2", "once_each")
    gone = files[1].parent.parent / f"moved-{files[1].name}"

    def then_take(*given: Any) -> None:
        check_present(*given)
        if files[1].exists():
            moved(files[1])

    monkeypatch.setattr(batch, "check_present", then_take)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(SourceLossError, match=f"{files[1]} is gone"):
            job.run()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    monkeypatch.undo()
    shutil.copy2(gone, files[1])
    shutil.copy(gone, job.root / "input" / "again.json")
    job.run()
    assert job.ids() == [*range(20)]


def test_a_file_that_is_gone_only_while_spark_lists_is_not_noticed(
    job: FilesJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark lists the files of a planned micro-batch before twophase is called."""
    job.kind, file = Down, job.add()
    with pytest.raises(DeclinedError):
        job.run()
    gone = moved(file)

    def restored(*given: Any) -> None:
        if gone.exists():
            gone.rename(file)
        check_undecided(*given)

    monkeypatch.setattr(batch, "check_undecided", restored)
    job.kind = OpenFolderSink
    job.run()
    assert file.exists()
    assert job.ids() == []

"""Jobs over Spark's file source are rewound, and their program is changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.beginning_world import refused
from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from harness.savepoint_world import restoring
from twophase.errors import ConfigError, DeclinedError, SourceLossError
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import SavepointMaker
from twophase.spark.job.stream_writer import write_stream

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_FIRST_FILE_S = 1_700_000_000


class FilesJob:
    """A job that reads folders of files and unites them.

    Attributes:
        inputs: the names of the folders, in the order of the program.
        files: what is read of each.
        kind: the class of the open sink.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.inputs: tuple[str, ...] = ("input",)
        self.files = ""
        self.kind = OpenFolderSink
        self._spark = spark
        self._next = 0

    def add(self, folder: str = "input") -> Path:
        """Add a file of ten numbers; files are read in the order in which they are added."""
        place = self.root / folder
        place.mkdir(exist_ok=True)
        text = "".join(
            json.dumps({"id": number}) + "\n" for number in range(self._next, self._next + 10)
        )
        temporary = self.root / ".temporary"
        temporary.write_text(text)
        os.utime(temporary, (_FIRST_FILE_S + self._next,) * 2)
        self._next += 10
        return temporary.rename(place / f"{self._next:05d}.json")

    def run(self, folder: str = "job", **options: object) -> None:
        """Process what is there, and end."""
        given = {
            "checkpointLocation": str(self.root / folder),
            "restart.strategy": "none",
            **options,
        }
        writer = write_stream(self._frame(), name="orders")
        writer.sink("facts", FolderSink(self.root / "facts", self.kind)).options(**given)
        writer.trigger(availableNow=True).start().await_termination(120)

    def _frame(self) -> DataFrame:
        reader = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        first, *others = (reader.json(str(self.root / name / self.files)) for name in self.inputs)
        for other in others:
            first = first.union(other)
        return first

    def save(self, name: str = "saved", folder: str = "job") -> Path:
        """Make a savepoint of the stopped job."""
        path = self.root / name
        maker = SavepointMaker("orders", self.root / folder, SystemClock())
        maker.make(str(path), still_waiting=lambda: False)
        return path

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())


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


@pytest.mark.parametrize("way", ["restored", "emptied"])
def test_a_file_that_goes_before_its_micro_batch_is_decided_is_not_left_out(
    job: FilesJob, way: str
) -> None:
    """Spark has planned a micro-batch, the job ended before its decision, and somebody has cleaned
    the folder up: Spark would run it without the file, and say nothing. I do what the error says.
    """
    job.add()
    job.run()
    later = job.add()
    job.kind = Down
    with pytest.raises(DeclinedError):
        job.run()
    job.kind = OpenFolderSink
    kept = later.rename(job.root / "kept")
    for _ in range(2):
        with pytest.raises(SourceLossError, match=f"The file {later}, which") as caught:
            job.run()
        assert caught.value.exit_code == 3
        assert job.ids() == [*range(10)]
    assert "restore it" in caught.value.remedy
    if way == "restored":
        kept.rename(later)
    else:
        later.touch()
    job.add()
    job.run()
    assert job.ids() == [*range(10), *range(20 if way == "emptied" else 10, 30)]


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

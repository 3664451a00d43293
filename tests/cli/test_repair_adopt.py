"""What `twophase repair adopt-from-target` says and asks for; two folders of files,
no server, no Spark.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from harness.memory_driver import (
    JOB,
    SCHEMA,
    Driver,
    completed_of,
    decided,
    offsets,
    open_sinks,
    restoring,
)
from tests.state.conftest import snapshot
from twophase.cli.main import main
from twophase.contract.offset_text import line_text
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.sinks.file.sink import FileSink
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Adoption, StartingOffsets
from twophase.state.journal.log import JobLog


@dataclass
class Files:
    """A job with two folders of files."""

    root: Path
    left: ExitStack

    @property
    def folder(self) -> Path:
        return self.root / "job"

    def driver(self) -> Driver:
        names = ("facts", "lake")
        sinks = open_sinks(
            {name: FileSink(path=str(self.root / name), format="json") for name in names}
        )
        for sink in sinks.values():
            self.left.callback(sink.close)
        return Driver(self.folder, {}, sinks=sinks)

    def restored(self) -> Driver:
        """After checkpoint 0, a driver that goes on in a lineage of its own."""
        self.driver().recover().run(0)
        restore = restoring(completed_of(self.folder, 0), committed=True)
        driver = self.driver()
        driver.coordinator.recover(restore=restore)
        driver.coordinator.begin_lineage(restore.lineage)
        return driver

    def in_commit(self) -> Driver:
        """Restored, and killed when checkpoint 1 was committed in `facts`; Spark had planned it.
        Then the log is gone.
        """
        driver = self.restored()
        planned = self.folder / "spark" / driver.coordinator.lineage.id / "offsets"
        planned.mkdir(parents=True)
        for number in (0, 1):
            (planned / str(number)).write_text(
                "\n".join(["v1", "{}", *map(str, offsets(number).end)])
            )
        decided(driver, 1)
        facts = driver.sinks["facts"]
        facts.commit([CommitRequest(piece) for piece in facts.in_doubt()])
        (self.folder / "log").rename(self.folder / "log.damaged")
        return driver

    def adopt(self, *arguments: str, job_name: str = JOB, **options: str) -> tuple[int, str]:
        """Exit code and output of the command, said yes to."""
        sinks = {
            name: {"type": "file", "options": {"path": str(self.root / name), "format": "json"}}
            for name in ("facts", "lake")
        }
        source = {"format": "twophase-kafka", "schema": "id long", "options": options}
        job = {
            "name": job_name,
            "source": source,
            "sinks": sinks,
            "options": {"checkpointLocation": str(self.folder)},
        }
        (self.root / "job.yaml").write_text(yaml.safe_dump(job))
        command = [
            "repair",
            "adopt-from-target",
            str(self.root / "job.yaml"),
            *arguments,
            "--yes",
            "--reason",
            "lost",
        ]
        result = CliRunner().invoke(main, command)
        return result.exit_code, result.output

    def rows(self, sink: str) -> int:
        return sum(len(path.read_text().splitlines()) for path in (self.root / sink).glob("*.json"))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    for name in ("facts", "lake"):
        (tmp_path / name).mkdir()
    with ExitStack() as left:
        yield Files(tmp_path, left)


def test_a_job_that_was_restored_and_whose_log_is_damaged_goes_on_without_a_flag(
    files: Files,
) -> None:
    lineage = files.in_commit().coordinator.lineage
    code, output = files.adopt()
    assert code == 0, output
    assert f"to be adopted: lineage {lineage.id} up to checkpoint 1" in output
    [end] = offsets(1).end
    assert end is not None
    assert f"- {line_text(end)}" in output
    assert "has no rows of checkpoint" not in output
    assert (files.rows("facts"), files.rows("lake")) == (20, 20)
    assert files.driver().recover().coordinator.lineage.start == offsets(1).end


def newest_record(files: Files) -> Path:
    decided(files.driver().recover(), 0)
    return max((files.folder / "log").iterdir())


def staged_manifest(files: Files) -> Path:
    files.in_commit()
    return next((files.root / "lake").glob("_twophase~*/fence-*/staged/*/manifest"))


@pytest.mark.parametrize("newer", [newest_record, staged_manifest])
def test_what_a_newer_version_has_written_is_not_given_up(
    files: Files, newer: Callable[[Files], Path]
) -> None:
    path = newer(files)
    content = re.sub(rb"\A(twophase[a-z-]*)/1 ", rb"\1/2 ", path.read_bytes())
    path.write_bytes(content)
    before = {name for name, data in snapshot(files.root).items() if data}
    code, output = files.adopt()
    assert code == 3, output
    assert (
        "was written by a newer twophase (format 2; this one reads up to 1). [NewerFormatError]"
        in output
    )
    assert "No data is lost: the file was left unchanged." in output
    assert "Next: start the newer version again." in output
    after = snapshot(files.root)
    left = {name for name in before if name not in after}
    assert not {name for name in left if "/fence-" not in name}, (
        "a fence is raised by renaming its folder"
    )
    assert content in after.values()
    assert len(after) >= len(before)


def test_a_sink_that_has_nothing_of_the_newest_checkpoint_is_named(files: Files) -> None:
    driver = files.in_commit()
    lake = driver.sinks["lake"]
    lake.abort(lake.in_doubt())
    code, output = files.adopt()
    assert (code, "Sink lake has no rows of checkpoint 1" in output) == (0, True), output


def test_pieces_of_several_lineages_are_shown_with_theirs(files: Files) -> None:
    driver = files.in_commit()
    lake, lineage = driver.sinks["lake"], driver.coordinator.lineage
    [old] = lineage.ancestors
    attempt = Attempt(driver.coordinator.generation, 99)
    transaction = TransactionId(JOB, old, 7, attempt, "lake", offsets(7).hash)
    writer = lake.writers()(transaction, Subtask(0, 900))
    writer.write(pa.RecordBatch.from_pylist([{"id": 70}], schema=SCHEMA))
    writer.pre_commit()
    code, output = files.adopt()
    assert code == 0, output
    assert f"{old[:8]} 7: {attempt}/0.900" in output
    assert f"{lineage.id[:8]} 1: " in output


def test_lineages_whose_order_nothing_tells_are_all_named(files: Files) -> None:
    driver = files.restored()
    old = next(iter(driver.coordinator.lineage.ancestors))
    driver.run(1)
    for sink in driver.sinks.values():
        sink.subsume(driver.coordinator.lineage.id, 1)
    shutil.rmtree(files.folder)
    code, refused = files.adopt()
    assert (
        code,
        "nothing tells which is the newest" in refused,
        "--from-starting-offsets" in refused,
    ) == (
        2,
        True,
        True,
    )
    code, adopted = files.adopt("--from-starting-offsets", startingOffsets='{"orders":{"0":20}}')
    assert (code, "The targets do not show which of these lineages is the newest" in adopted) == (
        0,
        True,
    ), adopted
    assert "Next: make sure that checkpointLocation names the newest folder" in refused
    repair = JobLog(LocalStorage(files.folder), JOB).read().repairs[-1]
    assert isinstance(repair, Adoption)
    assert repair.starting == (StartingOffsets("kafka", '{"orders":{"0":20}}'),)
    for output in (refused, adopted):
        for lineage, newest in ((old, 0), (driver.coordinator.lineage.id, 1)):
            assert f"lineage {lineage} up to checkpoint {newest}" in output
    assert "spark/<lineage>/offsets; in the plugin form `offsets` beside `metadata`" in " ".join(
        refused.split()
    )


def fence(files: Files) -> None:
    files.driver().recover()


def pre_commit(files: Files) -> None:
    decided(files.driver().recover(), 0)


@pytest.mark.parametrize(
    ("before", "code", "says"),
    [
        (fence, 3, "there is nothing to adopt"),
        (
            pre_commit,
            2,
            "the targets have no rows of this job, but 4 pieces that were pre-committed",
        ),
    ],
)
def test_targets_without_rows_are_not_said_to_have_some(
    files: Files, before: Callable[[Files], None], code: int, says: str
) -> None:
    before(files)
    shutil.rmtree(files.folder)
    found, output = files.adopt()
    assert (found, says in output.replace("\n", " ")) == (code, True), output
    assert "several lineages" not in output
    assert "have rows of this job" not in output
    if before is pre_commit:
        assert "Next: set startingOffsets of every source to where the job began" in output
        began = '{"orders":{"0":0}}'
        code, output = files.adopt("--from-starting-offsets", startingOffsets=began)
        assert code == 0, output
    files.driver().recover().run(0)
    assert (files.rows("facts"), files.rows("lake")) == (10, 10)


def test_where_nothing_tells_the_end_the_offsets_that_the_operator_has_found_are_taken(
    files: Files,
) -> None:
    files.driver().recover().run(0)
    shutil.rmtree(files.folder)
    code, output = files.adopt()
    assert (code, "tells where the newest of them were read" in " ".join(output.split())) == (
        2,
        True,
    ), output
    assert "Next: find out up to which offsets the targets have the records" in output
    found = '{"orders":{"0":10}}'
    code, output = files.adopt("--from-starting-offsets", startingOffsets=found)
    assert code == 0, output
    files.driver().recover().run(0)  # of the new lineage
    assert (files.rows("facts"), files.rows("lake")) == (20, 20)


def test_the_folder_of_another_job_is_refused_until_the_file_names_its_own(files: Files) -> None:
    driver = files.in_commit()
    (files.folder / "log.damaged").rename(files.folder / "log")
    code, output = files.adopt(job_name="customers")
    assert (code, f"is the folder of job {JOB!r}, not of 'customers'" in output) == (2, True), (
        output
    )
    assert "Next: correct job.yaml." in output
    (files.folder / "log").rename(files.folder / "log.damaged")
    code, output = files.adopt()
    assert code == 0, output
    assert files.driver().recover().coordinator.lineage.start == offsets(1).end
    assert driver.sinks


@pytest.mark.parametrize("offsets", ["latest", '{"orders":{"0":-1}}'])
def test_sources_that_begin_at_the_end_need_the_flag_also_where_nothing_is_adopted(
    files: Files, offsets: str
) -> None:
    """Otherwise what was written since the first start is skipped without a word."""
    fence(files)
    shutil.rmtree(files.folder)
    code, output = files.adopt(startingOffsets=offsets)
    assert (code, "Records since then may be skipped" in output.replace("\n", " ")) == (2, True), (
        output
    )
    code, output = files.adopt("--from-starting-offsets", startingOffsets=offsets)
    assert code == 0, output


def test_a_folder_that_has_missed_a_driver_goes_on_as_it_is(
    files: Files,
) -> None:
    driver = files.driver().recover()

    def without_rows(pending: PendingCheckpoint) -> None:
        for name in driver.sinks:
            pending.acknowledge(name, [])

    driver.run(0, without_rows)
    backup = shutil.copytree(files.folder, files.root / "backup")
    fence(files)
    shutil.rmtree(files.folder)
    backup.rename(files.folder)
    code, output = files.adopt(startingOffsets="latest")
    lineage = driver.coordinator.lineage
    after = f"Lineage {lineage.id} goes on after checkpoint 0."
    assert (code, after in output) == (0, True), output
    assert files.driver().recover().coordinator.lineage == lineage

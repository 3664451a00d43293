"""Spark's file source keeps the contract of sources, over a log as Spark writes it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from twophase.contract.source import SourceLeg
from twophase.errors import CorruptRecordError, SourceLossError
from twophase.sources.spark_files import SparkFileSource
from twophase.testing.contract import SourceContract, SourceHarness


class FileHarness(SourceHarness):
    """Files `a 0.json`, `a 1.json`, ... and the log of a source that has read them one by one."""

    log: Path

    def __init__(self, root: Path) -> None:
        self.folder, self.log = root / "in 100%", root / "sources"
        self.folder.mkdir()
        self.log.mkdir()
        self.source = SparkFileSource()
        self.leg = SourceLeg(f"FileSource[{self.folder}]", {})
        self.added = 0

    def path(self, batch: int) -> Path:
        return self.folder / f"a {batch}.json"

    def append(self) -> str:
        self.path(self.added).write_text("{}")
        (self.log / str(self.added)).write_text(f"v1\n{self.entry(self.added)}")
        self.added += 1
        return json.dumps({"logOffset": self.added - 1}, separators=(",", ":"))

    def entry(self, batch: int) -> str:
        path = self.path(batch)
        changed_ms = path.stat().st_mtime_ns // 1_000_000
        return json.dumps({"path": path.as_uri(), "timestamp": changed_ms, "batchId": batch})

    def compact(self) -> None:
        """All entries so far in one file, as Spark does at every tenth."""
        lines = [self.entry(batch) for batch in range(self.added)]
        for path in self.log.iterdir():
            path.unlink()
        (self.log / f"{self.added - 1}.compact").write_text("\n".join(["v1", *lines]))

    def lose(self, line: str) -> None:
        for batch in range(json.loads(line)["logOffset"] + 1):
            self.path(batch).unlink(missing_ok=True)


@pytest.fixture
def harness(tmp_path: Path) -> FileHarness:
    return FileHarness(tmp_path)


class TestSparkFileSource(SourceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path)


def test_a_compacted_log_has_the_same_files(harness: FileHarness) -> None:
    first, second = harness.append(), harness.append()
    harness.compact()
    assert harness.source.check_readable(harness.leg, first, harness.log)
    harness.lose(second)
    with pytest.raises(
        SourceLossError, match=r"a 1\.json was read after this offset, and is gone"
    ) as caught:
        harness.source.check_readable(harness.leg, first, harness.log)
    assert caught.value.remedy == "restore it, corrected or as it was."
    for text in ("{}", '{"corrected": true}'):
        harness.path(1).write_text(text)
        assert harness.source.check_readable(harness.leg, first, harness.log)


def test_a_corrected_file_is_named_and_read_as_it_is_now(
    harness: FileHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = harness.append(), harness.append()
    os.utime(harness.path(1), (7, 7))
    assert harness.source.check_readable(harness.leg, first, harness.log)
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"{harness.path(1)} was changed after it was read" in record.getMessage()


def test_a_log_that_the_running_driver_cleans_up_meanwhile_is_not_determined(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = harness.append(), harness.append()
    listed = sorted(harness.log.iterdir())
    harness.compact()
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    assert not harness.source.check_readable(harness.leg, first, harness.log)


def test_without_the_log_or_with_files_elsewhere_it_cannot_tell(
    harness: FileHarness, tmp_path: Path
) -> None:
    first = harness.append()
    for log in (None, tmp_path / "nowhere"):
        assert not harness.source.check_readable(harness.leg, first, log)
    assert not harness.source.check_readable(harness.leg, '{"logOffset":5}', harness.log)
    (harness.log / "1").write_text('v1\n{"path":"s3a://b/a.json","timestamp":1,"batchId":1}')
    assert not harness.source.check_readable(harness.leg, first, harness.log)


def present(harness: FileHarness, start: str | None, end: str) -> bool:
    """Whether all that a micro-batch is to read is there."""
    try:
        harness.source.check_present(harness.leg, start, end, harness.log)
    except SourceLossError:
        return False
    return True


@pytest.mark.parametrize("compacted", [False, True])
def test_the_files_of_a_micro_batch_are_looked_for_and_no_others(
    harness: FileHarness, *, compacted: bool
) -> None:
    lines = [harness.append() for _ in range(4)]
    if compacted:
        harness.compact()
    started = [None, *lines]
    harness.path(2).unlink()
    assert [present(harness, *pair) for pair in zip(started, lines, strict=False)] == [
        *(True, True, False, True)
    ]
    assert [present(harness, start, lines[3]) for start in started[:4]] == [False] * 3 + [True]
    harness.path(3).unlink()
    harness.path(3).symlink_to(harness.path(3))
    assert not present(harness, lines[2], lines[3])
    shutil.rmtree(harness.folder)
    harness.folder.touch()
    assert not present(harness, lines[2], lines[3])


def test_a_file_that_was_changed_before_it_was_read_is_named(
    harness: FileHarness, caplog: pytest.LogCaptureFixture
) -> None:
    line = harness.append()
    assert present(harness, None, line)
    assert not caplog.records
    os.utime(harness.path(0), (7, 7))
    assert present(harness, None, line)
    assert f"{harness.path(0)} was changed after Spark has found it" in caplog.text


def test_files_elsewhere_are_not_looked_for_before_a_decision(harness: FileHarness) -> None:
    line = harness.append()
    (harness.log / "0").write_text('v1\n{"path":"s3a://b/a.json","timestamp":1,"batchId":0}')
    assert present(harness, None, line)


@pytest.mark.parametrize("text", ["", "v2", "v1\n{}", "v1\nnothing", "v1\n[]"])
def test_a_log_that_cannot_be_read_stops_the_rewind(
    harness: FileHarness, tmp_path: Path, text: str
) -> None:
    line, _ = harness.append(), harness.append()
    backup = shutil.copytree(harness.log, tmp_path / "backup")
    (harness.log / "1").write_text(text)
    with pytest.raises(
        CorruptRecordError, match="Spark's log of the files that it has read"
    ) as caught:
        harness.source.check_readable(harness.leg, line, harness.log)
    assert caught.value.remedy == "restore Spark's folder from a backup."
    shutil.rmtree(harness.log)
    shutil.copytree(backup, harness.log)
    assert harness.source.check_readable(harness.leg, line, harness.log)


@pytest.mark.parametrize(
    "line", ['{"logOffset":true}', '{"logOffset":"1"}', '{"logOffset":1,"a":2}']
)
def test_what_is_almost_an_offset_is_none(harness: FileHarness, line: str) -> None:
    assert not harness.source.owns(line)


def test_the_offset_of_another_source_is_refused_and_its_own_is_not(harness: FileHarness) -> None:
    line = harness.append()
    with pytest.raises(CorruptRecordError, match="Cannot read this offset") as caught:
        harness.source.check_readable(harness.leg, '{"orders":{"0":5}}', harness.log)
    assert "belong to this job" in caught.value.remedy
    assert harness.source.check_readable(harness.leg, line, harness.log)


def test_only_its_own_folder_can_go_on_with_it(harness: FileHarness) -> None:
    assert harness.source.bound_to_folder()

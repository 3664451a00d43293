"""A full disk under a Delta table: nothing of the checkpoint is visible, nothing is lost, and with room again it goes on."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.delta_harness import DeltaHarness, commit
from twophase.ids import Attempt
from twophase.protocol.outcome import Committed, RetryLater

_BLOCK = b"\0" * 4096


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> Iterator[DeltaHarness]:
    """A table on a disk of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small disk is mounted for this test, which takes root")
    try:
        yield DeltaHarness(delta_spark, disk / "orders")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No room on the disk of a folder."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(_BLOCK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    try:
        yield
    finally:
        os.unlink(filler)


def test_in_phase_1_the_attempt_fails_and_goes(table: DeltaHarness) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    before = table.data_files()
    with full(table.folder.parent), pytest.raises(Exception, match="No space left on device"):
        table.write(sink, range(1, 3), 1)
    assert table.ids() == [0]
    sink.abort(sink.in_doubt())
    assert (table.records(), table.data_files()) == ([], before)
    following = Attempt(1, 2)
    sink.fence(following)
    assert commit(sink, table.write(sink, range(1, 3), 1, following)) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_in_phase_2_the_commit_is_repeated_until_there_is_room(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    with full(table.folder.parent):
        [outcome] = commit(sink, piece)
        assert isinstance(outcome, RetryLater)
        assert "No space left on device" in outcome.reason
    assert table.ids() == []
    assert commit(sink, piece, retries=1) == [Committed()]
    assert table.ids() == [0, 1, 2]

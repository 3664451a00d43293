"""Spark's folders of lineages that a job has left by restores are deleted, and no other."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twophase.ids import Attempt
from twophase.operations.savepoint.abandoned_folders import delete_abandoned
from twophase.operations.savepoint.savepoint_restore import LAID_BY
from twophase.state.journal.entries import CommittedRecord, Decision, FenceRecord, Lineage, Proof
from twophase.state.journal.history import History


def restored(history: History, root: Path, number: int) -> History:
    """The history after one more restore; Spark has begun to write."""
    lineage = f"00000000-0000-4000-8000-{number:012d}"
    (root / lineage / "state" / "0").mkdir(parents=True)
    (root / lineage / "state" / "0" / "1.delta").write_bytes(b"state")
    proofs = history.decisions[-1].proofs if history.decisions else ()
    history = history.apply(FenceRecord(history.generation + 1))
    return history.apply(Lineage(lineage, first_checkpoint=1, proofs=proofs))


def committed(history: History, *sinks: str) -> History:
    """The history after a checkpoint with rows for some of the sinks."""
    assert history.lineage is not None
    lineage, newest = history.lineage, history.newest(history.lineage.id)
    number = newest.checkpoint + 1 if newest else lineage.first_checkpoint
    known = {proof.sink: proof for proof in (newest or lineage).proofs or ()}
    proofs = known | {sink: Proof(sink, lineage.id, number, "memory:x") for sink in sinks}
    decision = Decision(
        lineage.id, number, Attempt(history.generation, 1), "", "", proofs=tuple(proofs.values())
    )
    return history.apply(decision).apply(CommittedRecord(lineage.id, number))


def names(root: Path) -> list[int]:
    return sorted(int(path.name[-2:]) for path in root.iterdir())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "spark").mkdir()
    return tmp_path / "spark"


def lives(root: Path, count: int) -> Iterator[History]:
    history = History()
    for number in range(count):
        history = restored(history, root, number)
        yield history
        history = committed(history, "facts")


@pytest.mark.parametrize("num_retained", [1, 3])
def test_a_job_that_is_restored_again_and_again_keeps_a_bounded_number_of_folders(
    root: Path, num_retained: int
) -> None:
    for history in lives(root, 30):
        delete_abandoned(root, history, num_retained)
        assert len(names(root)) <= num_retained + 1
    assert names(root) == list(range(29 - num_retained, 30))


def test_the_folder_of_a_lineage_that_can_be_restored_is_kept(root: Path) -> None:
    *_, history = lives(root, 2)
    delete_abandoned(root, history, 1)
    assert names(root) == [0, 1], "nothing of the new lineage is committed yet"
    delete_abandoned(root, committed(history, "facts"), 1)
    assert names(root) == [1]


def test_the_folder_with_the_offsets_of_a_sink_s_newest_rows_is_kept(root: Path) -> None:
    history = committed(restored(History(), root, 0), "facts", "lake")
    for number in (1, 2):
        history = committed(restored(history, root, number), "facts")
    delete_abandoned(root, history, 1)
    assert names(root) == [0, 2], "an error about the lake would name offsets of the first"
    delete_abandoned(root, committed(history, "lake"), 1)
    assert names(root) == [2]


def test_a_folder_that_the_log_does_not_know_is_left_alone(root: Path) -> None:
    """A newer driver may have begun a lineage since this one read the log, or somebody
    keeps something there.
    """
    *_, history = lives(root, 2)
    (root / "00000000-0000-4000-8000-000000000077").mkdir()
    delete_abandoned(root, committed(history, "facts"), 1)
    assert names(root) == [1, 77]


def written(root: Path, number: int, generation: int) -> Path:
    """Spark's folder of a lineage that a restore has written, and that never began."""
    folder = root / f"00000000-0000-4000-8000-{number:012d}"
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        (folder / log / "0").write_text("v1")
    (folder / LAID_BY).write_text(str(generation))
    return folder


@pytest.mark.parametrize("call", ["rmtree", "unlink"])
@pytest.mark.parametrize("count", range(1, 4))
def test_a_written_folder_that_cannot_be_deleted_is_by_the_next_start(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, count: int
) -> None:
    """Found by the simulation: the note of who wrote it went first, and nothing told any more that
    the rest may go.
    """
    *_, history = lives(root, 2)
    folder = written(root, 50, generation=1)
    calls = itertools.count(1)
    owner: Any = shutil if call == "rmtree" else os
    real = getattr(owner, call)

    def fails_once(path: Any, *args: Any, **options: Any) -> None:
        if next(calls) == count:
            raise OSError(5, "Input/output error", str(path))
        real(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, fails_once)
        delete_abandoned(root, history, 1)
    assert folder.exists()
    delete_abandoned(root, history, 1)
    assert names(root) == [0, 1]


def test_nothing_outside_is_deleted_whatever_a_log_calls_a_lineage(root: Path) -> None:
    history = committed(restored(History(), root, 0), "facts")
    odd = tuple(
        Lineage(name) for name in ("..", ".", "", "../outside", str(root.parent / "outside"))
    )
    (root.parent / "outside").mkdir()
    delete_abandoned(root, replace(history, lineages=(*odd, *history.lineages)), 1)
    assert (root.parent / "outside").is_dir()
    assert names(root) == [0]


def test_a_folder_that_cannot_be_deleted_keeps_no_job_from_starting(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    *_, history = lives(root, 2)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with caplog.at_level(logging.WARNING, "twophase"):
        delete_abandoned(root, committed(history, "facts"), 1)
    assert names(root) == [0, 1]
    assert "Permission denied" in caplog.text

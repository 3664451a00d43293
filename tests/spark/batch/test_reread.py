"""What a rewrite needs besides the records: the header of the micro-batch, and the task
of each lost piece.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import LINEAGE, JobFolder
from twophase.contract.committable import Committable
from twophase.errors import ConfigError, StopJobError
from twophase.ids import Attempt, Subtask
from twophase.operations.repair.rewrite import Lost
from twophase.spark.batch.reread import batch_header, first_free_task, lost_tasks
from twophase.state.files.storage import LocalStorage

HEADER = '{"batchTimestampMs":7}'
CHECKPOINT = JobFolder.checkpoint(1)
PIECES = CHECKPOINT.committables["facts"]


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """A job's folder with what Spark has noted of micro-batch 1."""
    offsets = tmp_path / "spark" / LINEAGE / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "1").write_text(f"v1\n{HEADER}\n{{}}")
    return tmp_path


def of_task(index: int) -> Committable:
    return replace(PIECES[1], subtask=Subtask(index, 7))


def lost(*pieces: Committable, rewritten: Attempt | None = None) -> Lost:
    return Lost(
        CHECKPOINT,
        "facts",
        pieces,
        whole=False,
        rewritten=frozenset({rewritten} if rewritten else ()),
    )


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_the_time_and_settings_are_those_of_the_micro_batch(noted: Path, form: str) -> None:
    storage = LocalStorage(form.format(noted))
    assert batch_header("orders", storage, CHECKPOINT) == HEADER


@pytest.mark.parametrize(
    "left", ["", "v1", "v1\n\n{}"], ids=["nothing", "a torn file", "no header"]
)
def test_without_them_nothing_is_written_again(noted: Path, left: str) -> None:
    path = noted / "spark" / LINEAGE / "offsets" / "1"
    backup = shutil.copytree(path.parents[1], noted / "backup")
    path.write_text(left) if left else path.unlink()
    with pytest.raises(StopJobError, match=f"{path} does not tell its time and settings") as caught:
        batch_header("orders", LocalStorage(noted), CHECKPOINT)
    assert "twophase repair accept-loss" in caught.value.remedy
    assert "restore Spark's folder of the lineage" in caught.value.remedy
    shutil.rmtree(path.parents[1])
    shutil.move(backup, path.parents[1])
    assert batch_header("orders", LocalStorage(noted), CHECKPOINT) == HEADER


def test_a_piece_belongs_to_the_task_that_wrote_it() -> None:
    assert lost_tasks("orders", lost(PIECES[1], PIECES[0]), 2) == [0, 1]


def test_a_piece_that_was_written_again_in_part_is_refused_by_name() -> None:
    with pytest.raises(
        StopJobError, match=r"was written again before.* is lost once more"
    ) as caught:
        lost_tasks("orders", lost(of_task(2), rewritten=PIECES[1].transaction.attempt), 2)
    assert "twophase repair accept-loss" in caught.value.remedy
    assert "job file" not in caught.value.remedy


@pytest.mark.parametrize(
    "rewritten", [None, Attempt(9, 1)], ids=["never rewritten", "another piece was rewritten"]
)
def test_a_piece_of_a_task_that_the_plan_does_not_have_is_of_another_job_file(
    rewritten: Attempt | None,
) -> None:
    with pytest.raises(
        ConfigError, match="has a piece of task 2, and its records make 2 tasks"
    ) as caught:
        lost_tasks("orders", lost(of_task(2), rewritten=rewritten), 2)
    assert "job file that wrote the checkpoint" in caught.value.remedy


@pytest.mark.parametrize(
    ("tasks", "listed", "free"),
    [(2, (), 2), (2, (of_task(2), of_task(5)), 6), (9, (of_task(2),), 9)],
)
def test_new_pieces_are_of_no_task_that_the_checkpoint_has_pieces_of(
    tasks: int, listed: tuple[Committable, ...], free: int
) -> None:
    """Those of an earlier rewrite among them: an adoption tells the pieces of a task apart
    by its index alone.
    """
    found = replace(CHECKPOINT, committables={"facts": (*PIECES, *listed)})
    assert first_free_task(Lost(found, "facts", PIECES[:1], whole=False), tasks) == free


def test_nor_of_one_whose_piece_was_given_up() -> None:
    found = replace(CHECKPOINT, committables={"facts": PIECES[:1]})
    lost = Lost(found, "facts", PIECES[:1], whole=False, gone=frozenset({4}))
    assert first_free_task(lost, 2) == 5

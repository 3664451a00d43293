"""Who may write: a second driver, pieces touched by hand after the decision, folders put back, a restore.

What needs no Spark is in `plain/test_takeover.py` too, which `make test` takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.branches import branches
from integration.mysql.scenario import Arena
from twophase.errors import FencedError
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.proof]

BATCH = 1000


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession) -> Iterator[Arena]:
    arena = Arena(kafka, {"facts": mysql}, tmp_path, spark=spark)
    arena.produce(BATCH)
    yield arena
    arena.abandon()


def test_a_second_driver_takes_over_and_the_first_is_fenced_out(arena: Arena) -> None:
    first = arena.start()
    first.wait_for(lambda: arena.count("facts") == BATCH, "the first driver to write")
    before = arena.history().generation
    second = arena.start()
    second.wait_for(lambda: arena.history().generation > before, "the second driver to append its fence")
    fenced = None
    while fenced is None:
        arena.produce(BATCH)
        expected = arena.produced
        second.wait_for(lambda expected=expected: arena.count("facts") >= expected, "the new records", 120)
        if not first.running:
            fenced = first.wait()
    assert fenced.code == FencedError.exit_code, fenced.output
    assert "FencedError" in fenced.output
    arena.produce(BATCH)
    second.wait_for(lambda: arena.count("facts") == arena.produced, "the second driver to go on")
    second.kill()
    arena.finish()
    arena.verify()


def decided_uncommitted(arena: Arena) -> list[str]:
    """Bring the job to a decided checkpoint whose pieces are all still prepared."""
    arena.finish()
    arena.produce(BATCH)
    assert arena.run("C11=kill@1").killed
    prepared = arena.prepared("facts")
    assert len(prepared) == 2
    return prepared


def by_hand(arena: Arena, verb: str) -> None:
    """Resolve one prepared branch as an administrator would."""
    arena.sql("facts", f"XA {verb} {branches(arena.servers['facts'])[0]}")


def test_a_branch_rolled_back_by_hand_after_the_decision_is_a_named_error(arena: Arena) -> None:
    decided_uncommitted(arena)
    by_hand(arena, "ROLLBACK")
    ended = arena.run()
    assert ended.code == 3, ended.output
    assert "LostPreparedError" in ended.output
    assert "checkpoint 1 is decided, but 1 of its pieces" in ended.output
    assert "500 rows are lost" in ended.output


def test_a_branch_committed_by_hand_is_recognised(arena: Arena) -> None:
    decided_uncommitted(arena)
    by_hand(arena, "COMMIT")
    arena.finish()
    arena.verify()


def test_the_job_s_folder_deleted_is_a_named_error_and_writes_nothing(arena: Arena) -> None:
    arena.finish()
    shutil.rmtree(arena.scratch / "job")
    arena.produce(BATCH)
    ended = arena.run()
    assert ended.code == 3, ended.output
    assert "CheckpointMissingError" in ended.output
    assert arena.count("facts") == BATCH


def test_an_old_copy_of_the_job_s_folder_is_a_named_error_and_writes_nothing(arena: Arena) -> None:
    arena.finish()
    shutil.copytree(arena.scratch / "job", arena.scratch / "old")
    arena.produce(BATCH)
    arena.finish()
    shutil.rmtree(arena.scratch / "job")
    (arena.scratch / "old").rename(arena.scratch / "job")
    ended = arena.run()
    assert ended.code == 3, ended.output
    assert "CheckpointMissingError" in ended.output
    assert arena.count("facts") == 2 * BATCH


def newest_checkpoint(arena: Arena) -> Path:
    (folder,) = (arena.scratch / "job" / "chk").iterdir()
    return folder


@pytest.mark.parametrize("where", ["the same folder", "a new folder"])
def test_a_restore_begins_a_new_lineage_where_the_checkpoint_ended(arena: Arena, where: str) -> None:
    arena.finish()
    arena.produce(2 * BATCH)
    arena.finish()
    restore = {"restore.path": str(newest_checkpoint(arena))}
    if where == "a new folder":
        arena.settings["location"] = str(arena.scratch / "new")
    arena.settings["options"] |= restore
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    folders = [path.name for path in (Path(arena.settings["location"]) / "spark").iterdir()]
    assert folders == [arena.history().lineage.id], "Spark's folder of the lineage that was left is of no more use"


def test_a_restore_commits_what_the_checkpoint_left_prepared(arena: Arena) -> None:
    decided_uncommitted(arena)
    folder = max((arena.scratch / "job" / "chk").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    arena.settings["location"] = str(arena.scratch / "new")
    arena.settings["options"] |= {"restore.path": str(folder)}
    arena.finish()
    arena.verify()


def test_a_restore_behind_what_the_sink_has_is_refused(arena: Arena) -> None:
    arena.finish()
    shutil.copytree(arena.scratch / "job", arena.scratch / "old")
    arena.produce(BATCH)
    arena.finish()
    (old,) = (arena.scratch / "old" / "chk").iterdir()
    arena.settings["location"] = str(arena.scratch / "new")
    arena.settings["options"] |= {"restore.path": str(old)}
    ended = arena.run()
    assert ended.code == 3, ended.output
    assert "cannot restore" in ended.output
    assert arena.count("facts") == 2 * BATCH

"""A committed micro-batch that Spark has not noted as finished is noted before the next run (hazard H62)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtime.plugin_world import Killed, World
from twophase.runtime.plugin.query_start import finish_committed


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    root = tmp_path / "a job 10%20#1?"
    root.mkdir()
    return World(root, monkeypatch)


def start(world: World) -> list[str]:
    """A query of this folder starts; the micro-batches that Spark takes for finished."""
    finish_committed(f"file:{world.folder}")
    return sorted(path.name for path in (world.folder / "commits").iterdir())


def unfinished(world: World, number: int) -> None:
    """A run is killed before Spark notes the micro-batch, which is committed."""
    world.run(number)
    (world.folder / "commits" / str(number)).unlink()


def test_a_committed_micro_batch_is_noted_with_the_watermark_it_ran_with(world: World) -> None:
    world.run(0)
    world.freeze(1)
    offsets = world.folder / "offsets" / "1"
    offsets.write_text(offsets.read_text().replace('"batchWatermarkMs": 0', '"batchWatermarkMs": 1700'))
    unfinished(world, 1)
    assert start(world) == ["0", "1"]
    version, note = (world.folder / "commits" / "1").read_text().split("\n")
    assert (version, json.loads(note)) == ("v1", {"nextBatchWatermarkMs": 1700})
    world.run(2)
    assert world.ids() == world.expected(3)


def test_the_checksum_of_a_note_that_is_gone_does_not_stay(world: World) -> None:
    unfinished(world, 0)
    (world.folder / "commits" / ".0.crc").write_bytes(b"of another note")
    assert start(world) == ["0"]


def test_what_is_decided_and_not_committed_is_run_again(world: World) -> None:
    world.freeze(0)
    acknowledged = world.write(world.job().plan(), 0)
    world.arm("C11")
    with pytest.raises(Killed):
        world.job().commit(0, acknowledged)
    assert world.history().uncommitted()
    assert start(world) == []


def test_what_is_not_decided_is_run_again(world: World) -> None:
    world.run(0)
    world.freeze(1)
    world.write(world.job().plan(), 1)
    assert start(world) == ["0"]


def test_a_micro_batch_with_other_offsets_is_left_for_spark_to_run_and_to_be_refused(world: World) -> None:
    unfinished(world, 0)
    world.freeze(0, end=7)
    assert start(world) == []


def test_a_folder_of_another_query_is_left_alone(world: World) -> None:
    unfinished(world, 0)
    (world.folder / "metadata").write_text('{"id": "11111111-2222-3333-4444-555555555555"}')
    assert start(world) == []


def test_a_query_that_keeps_state_runs_its_micro_batch_again(world: World) -> None:
    unfinished(world, 0)
    (world.folder / "state" / "0").mkdir(parents=True)
    assert start(world) == []


def test_queries_that_are_not_ours_or_not_here_are_left_alone(world: World) -> None:
    finish_committed(f"hdfs://name-node{world.folder}")
    finish_committed(f"file:{world.root}")
    world.freeze(0)
    assert start(world) == []


def test_a_folder_with_an_empty_authority_is_the_same(world: World) -> None:
    unfinished(world, 0)
    finish_committed(f"file://{world.folder}")
    assert (world.folder / "commits" / "0").exists()


def test_an_old_copy_of_spark_s_folder_is_left_for_the_plan_to_refuse(world: World) -> None:
    world.run(0)
    world.run(1)
    for log in ("offsets", "commits"):
        (world.folder / log / "1").unlink()
    assert start(world) == ["0"]

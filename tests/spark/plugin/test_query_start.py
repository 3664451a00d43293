"""A committed micro-batch that Spark has not noted as finished is noted before the
next run (hazard H62).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.rights import permissions_checked
from tests.spark.plugin.plugin_world import Killed, World
from twophase.errors import OffsetOutOfRangeError, SourceLossError
from twophase.spark.batch.lost_replay_remedy import begin_afresh
from twophase.spark.plugin.query_start import finish_committed
from twophase.state.checkpoints import replay_guard
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.checkpoints.replay_guard import ReplayGuard


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    root = tmp_path / "a job 10%20#1?"
    root.mkdir()
    return World(root, monkeypatch)


def start(world: World, *, has_watermark: bool = False) -> list[str]:
    """A query of this folder starts; the micro-batches that Spark takes for finished."""
    finish_committed(f"file:{world.folder}", lambda: has_watermark)
    return sorted(path.name for path in (world.folder / "commits").iterdir())


def unfinished(world: World, number: int) -> None:
    """A run is killed before Spark notes the micro-batch, which is committed."""
    world.run(number)
    (world.folder / "commits" / str(number)).unlink()


def describe(
    world: World,
    partitions: int,
    operator: str = "stateStoreSave",
    stores: Sequence[str] = ("default",),
) -> None:
    """Spark's driver writes down which stores an operator has: before its tasks, and in 4.2 with
    the shuffle partitions of any plan.
    """
    path = world.folder / "state" / "0" / "_metadata" / "metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    info = [
        {"storeName": name, "numColsPrefixKey": 0, "numPartitions": partitions} for name in stores
    ]
    described = {
        "operatorInfo": {"operatorId": 0, "operatorName": operator},
        "stateStoreInfo": info,
    }
    path.write_text(f"v1\n{json.dumps(described)}")


def keep_state(world: World, number: int, kind: str = "delta") -> list[Path]:
    """The tasks of a micro-batch write what it makes of the state of two partitions."""
    stores = [world.folder / "state" / "0" / str(partition) for partition in range(2)]
    describe(world, partitions=len(stores))
    for store in stores:
        store.mkdir(parents=True, exist_ok=True)
        (store / f"{number + 1}.{kind}").write_bytes(b"changes")
    return [store / f"{number + 1}.{kind}" for store in stores]


def test_a_committed_micro_batch_is_noted_with_the_watermark_it_ran_with(world: World) -> None:
    world.run(0)
    world.freeze(1)
    offsets = world.folder / "offsets" / "1"
    offsets.write_text(
        offsets.read_text().replace('"batchWatermarkMs": 0', '"batchWatermarkMs": 1700')
    )
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


def test_a_decided_uncommitted_micro_batch_is_run_again(world: World) -> None:
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


def test_a_micro_batch_with_other_offsets_is_left_for_spark_to_run_and_to_be_refused(
    world: World,
) -> None:
    unfinished(world, 0)
    world.freeze(0, end=7)
    assert start(world) == []


def test_a_folder_of_another_query_is_left_alone(world: World) -> None:
    unfinished(world, 0)
    (world.folder / "metadata").write_text('{"id": "11111111-2222-3333-4444-555555555555"}')
    assert start(world) == []


@pytest.mark.parametrize("kind", ["delta", "changelog", "zip"])
def test_a_micro_batch_whose_state_exists_is_not_run_again(world: World, kind: str) -> None:
    world.run(0)
    keep_state(world, 0)
    unfinished(world, 1)
    keep_state(world, 1, kind)
    assert start(world) == ["0", "1"]


@pytest.mark.parametrize(
    "lacks", [Path.unlink, Path.touch, lambda file: file.rename(file.with_name("2_ab12.delta"))]
)
def test_a_micro_batch_whose_state_is_not_all_there_is_run_again(
    world: World, lacks: Callable[[Path], object]
) -> None:
    world.run(0)
    keep_state(world, 0)
    unfinished(world, 1)
    _, last = keep_state(world, 1)
    last.write_bytes(b"")
    lacks(last)
    assert start(world) == ["0"]


def test_a_micro_batch_whose_other_partitions_were_on_another_disk_is_run_again(
    world: World,
) -> None:
    """An executor that does not share the folder has kept its part to itself, beginning with
    the first version.
    """
    unfinished(world, 0)
    first, _ = keep_state(world, 0)
    shutil.rmtree(first.parent)
    assert start(world) == []


def test_a_micro_batch_of_which_a_store_is_not_there_is_run_again(world: World) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    describe(world, 2, "symmetricHashJoin", ("default", "left-keyToNumValues"))
    assert start(world) == []


@pytest.mark.parametrize(
    ("operator", "key", "noted"),
    [
        ("globalLimit", '[{"name":"key"}]', True),
        ("stateStoreSave", "[]", True),
        ("stateStoreSave", '[{"name":"id"}]', False),
    ],
    ids=["limit", "no keys", "keys"],
)
def test_what_spark_runs_in_one_partition_has_one(
    world: World, operator: str, key: str, noted: bool
) -> None:
    unfinished(world, 0)
    _, second = keep_state(world, 0)
    shutil.rmtree(second.parent)
    describe(world, 200, operator)
    schema = f'{{"type":"struct","fields":{key}}}'.encode()
    path = world.folder / "state" / "0" / "0" / "_metadata" / "schema"
    path.parent.mkdir()
    path.write_bytes(b"\0\2v2\0\0\0\1" + len(schema).to_bytes(2) + schema + b"\0\0\0\1...")
    assert start(world) == (["0"] if noted else [])


@pytest.mark.parametrize("text", ["", "v3\n[]", 'v1\n{"operatorInfo": {}}'])
def test_state_whose_stores_are_not_known_is_not_all_there(world: World, text: str) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    (world.folder / "state" / "0" / "_metadata" / "metadata").write_text(text)
    assert start(world) == []


def test_state_that_cannot_be_searched_is_not_taken_for_none(world: World) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    (world.folder / "state").chmod(0)
    with permissions_checked(), pytest.raises(PermissionError):
        start(world)
    (world.folder / "state").chmod(0o700)


def test_state_without_a_version_is_not_all_there(world: World) -> None:
    unfinished(world, 0)
    (world.folder / "state" / "0" / "_metadata").mkdir(parents=True)
    assert start(world) == []


def test_a_micro_batch_that_moves_the_watermark_of_a_state_is_run_again(world: World) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    assert start(world, has_watermark=True) == []


def test_a_watermark_without_state_does_not_matter(world: World) -> None:
    unfinished(world, 0)
    assert start(world, has_watermark=True) == ["0"]


def fails_again(world: World, error: SourceLossError | None) -> None:
    """Spark runs the newest micro-batch once more for its state; a task finds that its records are
    gone, or something else fails.
    """
    ranges = world.folder / replay_guard.FOLDER
    ranges.mkdir(exist_ok=True)  # as the listener does when such a query starts
    world.application("second")
    assert world.job().plan().transaction is None
    reported = ReplayGuard._planned(
        ranges, str(json.loads((ranges / "plan").read_text())["checkpoint"])
    )
    assert reported is not None
    if error is not None:
        with pytest.raises(type(error), match="start the query again"):
            reported.lost(error)
    world.job().abort()
    world.application("third")


GONE = OffsetOutOfRangeError("100 records are lost.", remedy="restore a savepoint")


def test_a_micro_batch_whose_records_are_gone_when_it_is_run_again_is_noted_at_the_next_start(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    fails_again(world, GONE)
    # a task of the run that has failed may write yet
    assert not (world.folder / "commits" / "0").exists()
    assert start(world, has_watermark=True) == ["0"]
    assert "checkpoint 0 is committed" in caplog.text
    assert "It is noted as finished, with the watermark that it ran with" in caplog.text
    caplog.clear()
    assert start(world, has_watermark=True) == ["0"]
    world.run(1)
    assert world.ids() == world.expected(2)
    assert caplog.messages == []


def test_a_replay_that_is_stopped_or_fails_for_another_reason_is_run_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    fails_again(world, None)
    assert start(world, has_watermark=True) == []
    assert caplog.messages == []


def test_records_that_were_gone_for_an_older_micro_batch_do_not_matter(world: World) -> None:
    unfinished(world, 0)
    keep_state(world, 0)
    fails_again(world, GONE)
    assert start(world, has_watermark=True) == ["0"]
    unfinished(world, 1)
    keep_state(world, 1)
    assert start(world, has_watermark=True) == ["0"]


def test_a_micro_batch_whose_records_and_state_are_gone_says_where_another_job_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.freeze(0)
    offsets = world.folder / "offsets" / "0"
    entry = {"topic": "orders", "topic_id": "x", "partition": 3, "offset": 10, "leader_epoch": 0}
    line = json.dumps(
        {"version": 1, "source": "shop", "partitions": [entry], "begin": None, "released": []}
    )
    offsets.write_text(offsets.read_text().replace('{"next": 10}', line))
    unfinished(world, 0)
    (world.folder / "state" / "0" / "0").mkdir(parents=True)
    fails_again(world, GONE)
    assert start(world) == []
    reported = "\n".join(caplog.messages)
    assert 'startingOffsets {"orders": {"3": 10}} of source \'shop\'' in reported
    assert "All rows up to checkpoint 0 are in the targets" in reported


def test_a_source_that_is_not_ours_is_named_by_its_offsets() -> None:
    assert 'a source that begins after {"next": 10}.' in begin_afresh(
        0, FrozenOffsets((None,), ('{"next": 10}',))
    )


def test_a_micro_batch_that_fails_when_it_runs_first_is_run_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(0)
    world.freeze(1)
    world.write(world.job().plan(), 1)
    world.job().abort()
    assert start(world) == ["0"]
    assert "begin another" not in caplog.text


def test_a_folder_of_the_same_name_elsewhere_is_another_one(world: World) -> None:
    unfinished(world, 0)
    finish_committed(f"hdfs:{world.folder}", lambda: False)
    assert not (world.folder / "commits" / "0").exists()


def test_queries_that_are_not_ours_are_left_alone(world: World) -> None:
    finish_committed(f"file:{world.root}", lambda: False)
    world.freeze(0)
    assert start(world) == []


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_folder_with_an_authority_is_the_same(world: World, host: str) -> None:
    unfinished(world, 0)
    finish_committed(f"file://{host}{world.folder}", lambda: False)
    assert (world.folder / "commits" / "0").exists()


def test_an_old_copy_of_spark_s_folder_is_left_for_the_plan_to_refuse(world: World) -> None:
    world.run(0)
    world.run(1)
    for log in ("offsets", "commits"):
        (world.folder / log / "1").unlink()
    assert start(world) == ["0"]

"""Rescaled savepoints of a job that keeps state, without Spark: the new one has another number of
partitions, a job goes on from it exactly, and a kill leaves a whole one or none.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.memory_driver import ManualClock
from harness.plain_job import PlainJob
from harness.savepoint_world import World, killed, next_of
from tests.state.conftest import snapshot
from twophase.errors import ConfigError, CorruptRecordError, SavepointError, TwoPhaseError
from twophase.operations.savepoint.format import dispose
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.rescale import Rescaler
from twophase.spark.folder import state_stores
from twophase.spark.folder.state_backend import PROVIDER
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Rescale

_CLASS = "org.apache.spark.sql.execution.streaming.state"
_PARTITIONS = "spark.sql.shuffle.partitions"


class Partitioned(World):
    """Its state has two partitions, until it is rescaled. The sum is in the first."""

    provider = "RocksDB"
    operator = "transformWithStateInPySpark"

    def header(self, spark: Path) -> str:
        planned = [int(path.name) for path in (spark / "offsets").glob("[0-9]*")]
        return self.noted(partitions_of(spark, max(planned)) if planned else 2)

    def noted(self, partitions: int) -> str:
        provider = f"{_CLASS}.{self.provider}StateStoreProvider"
        conf = {PROVIDER: provider, _PARTITIONS: str(partitions)}
        return json.dumps({"batchWatermarkMs": 0, "conf": conf})

    def keep(self, spark: Path, number: int) -> None:  # type: ignore[override]
        partitions = partitions_of(spark, number)
        operator = spark / "state" / "0"
        metadata = operator / "_metadata" / "metadata"
        described = metadata.read_text() if metadata.exists() else self.described(partitions)
        World.keep(spark, number)
        self.note(metadata, described)
        for partition in range(1, partitions):
            self.note(operator / str(partition) / f"{number + 1}.delta", "0")

    def described(self, partitions: int) -> str:
        info = {"operatorInfo": {"operatorName": self.operator}}
        stores = [{"storeName": "default", "numPartitions": partitions}]
        return "v1\n" + json.dumps({**info, "stateStoreInfo": stores})

    def repartition(self, folder: Path, partitions: int) -> None:
        """As Spark: a micro-batch without records, with the state in as many partitions."""
        newest = max(int(path.name) for path in (folder / "offsets").glob("[0-9]*"))
        line = json.dumps({"next": next_of(folder, newest)})
        self.note(folder / "offsets" / str(newest + 1), f"v1\n{self.noted(partitions)}\n{line}")
        operator = folder / "state" / "0"
        whole = (operator / "0" / f"{newest + 1}.delta").read_text()
        for partition in range(partitions):
            self.note(
                operator / str(partition) / f"{newest + 2}.delta", "0" if partition else whole
            )
        note = (folder / "commits" / str(newest)).read_text()
        self.note(folder / "commits" / str(newest + 1), note)

    def rescale(self, path: Path, partitions: int, output: Path) -> Path:
        Rescaler(str(path), partitions, str(output)).run(self.repartition, ManualClock())
        return output


def partitions_of(spark: Path, number: int) -> int:
    header = (spark / "offsets" / str(number)).read_text().split("\n")[1]
    return int(json.loads(header)["conf"][_PARTITIONS])


@pytest.fixture
def world(tmp_path: Path) -> Partitioned:
    return Partitioned(tmp_path)


def restoring(path: Path) -> dict[str, str]:
    return {"restore.path": str(path)}


# -- the whole path --------------------------------------------------------------------------------


def test_a_job_goes_on_from_a_savepoint_that_was_rescaled_twice_and_moved(
    world: Partitioned,
) -> None:
    world.drive(3)
    made = world.make()
    before = snapshot(made)
    once = world.rescale(made, 3, world.root / "once")
    twice = world.rescale(once, 1, world.root / "twice")
    assert snapshot(made) == before
    manifest = open_savepoint(str(twice)).manifest
    rescaled = (Rescale(3, 3), Rescale(4, 1))
    assert (manifest.checkpoint, manifest.rescaled) == (2, rescaled)
    for folder in ("job", "saved", "once"):
        shutil.rmtree(world.root / folder)
    there = twice.rename(world.root / "moved")
    open_savepoint(str(there)).verify()
    world.drive(5, "again", **restoring(there))
    world.is_exact("again", 5)
    assert partitions_of(world.spark("again"), 6) == 1
    lineage = world.history("again").lineage
    assert lineage is not None
    assert (lineage.first_checkpoint, lineage.rescaled) == (5, rescaled)
    world.drive(6, "again", **restoring(there))
    world.is_exact("again", 6)


def test_a_savepoint_of_a_rescaled_job_is_restored_and_rescaled_again(world: Partitioned) -> None:
    world.drive(2)
    first = world.rescale(world.make(), 3, world.root / "first")
    world.drive(3, "second", **restoring(first))
    saved = world.make("next", "second")
    assert open_savepoint(str(saved)).manifest.rescaled == ()
    world.drive(5, "third", **restoring(world.rescale(saved, 5, world.root / "third-saved")))
    world.is_exact("third", 5)


def test_its_state_is_that_of_the_new_partitions_and_of_no_other(world: Partitioned) -> None:
    world.drive(2)
    saved = world.rescale(world.make(), 1, world.root / "one")
    found = [file.path for file in open_savepoint(str(saved)).manifest.below("spark/state/0")]
    assert {path.split("/")[3] for path in found} == {"_metadata", "0"}
    world.drive(3, "again", **restoring(saved))
    assert state_stores.have_version(world.spark("again") / "state", 4)


def test_more_partitions_than_before_must_all_have_a_version(world: Partitioned) -> None:
    world.drive(2)
    world.drive(3, "again", **restoring(world.rescale(world.make(), 3, world.root / "three")))
    state = world.spark("again") / "state"
    assert state_stores.have_version(state, 4)
    (state / "0" / "2" / "4.delta").unlink()
    assert not state_stores.have_version(state, 4)


def test_of_an_operator_s_descriptions_the_newest_counts(tmp_path: Path) -> None:
    world, operator = Partitioned(tmp_path), tmp_path / "state" / "0"
    for batch, partitions in ((0, 3), (10, 1), (9, 2)):
        world.note(operator / "_metadata" / "v2" / str(batch), world.described(partitions))
    world.note(operator / "0" / "12.zip", "state")
    assert state_stores.have_version(tmp_path / "state", 12)


def test_what_is_pending_stays_pending_and_is_committed_under_its_old_identity(
    world: Partitioned,
) -> None:
    world.drive(2)
    assert killed("C11", lambda: world.drive(3))
    (world.spark() / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    waiting = world.prepared()
    saved = world.rescale(world.make(), 3, world.root / "rescaled")
    found = open_savepoint(str(saved))
    assert not found.is_committed
    [pending] = found.pending()
    assert (pending.checkpoint, pending.lineage) == (2, found.manifest.lineage)
    assert world.prepared() == waiting > 0
    shutil.rmtree(world.root / "job")
    world.drive(4, "again", **restoring(saved))
    world.is_exact("again", 4)


# -- what is refused -------------------------------------------------------------------------------


def refused(
    world: Partitioned,
    kind: type[TwoPhaseError],
    match: str,
    partitions: int = 3,
    output: str = "new",
) -> TwoPhaseError:
    """The rescale is refused, and nothing is written."""
    before = snapshot(world.root)
    with pytest.raises(kind, match=match) as caught:
        world.rescale(world.root / "saved", partitions, world.root / output)
    assert snapshot(world.root) == before
    assert caught.value.remedy
    return caught.value


def restored_as_it_is(world: Partitioned, error: TwoPhaseError) -> None:
    """What the refusal says is done with the savepoint of the job's one checkpoint."""
    assert "restore it as it is" in error.remedy
    world.drive(3, "again", **restoring(world.root / "saved"))
    world.is_exact("again", 3)


def test_state_of_another_backend_is_refused_with_what_to_do(world: Partitioned) -> None:
    world.provider = "HDFSBacked"
    world.drive(2)
    world.make()
    error = refused(
        world, ConfigError, "only RocksDB state, and .*HDFSBackedStateStoreProvider wrote this one"
    )
    assert "state.backend=rocksdb" in error.remedy
    restored_as_it_is(world, error)


def test_a_savepoint_without_state_has_nothing_to_rescale(world: Partitioned) -> None:
    plain = BeginningWorld(world.root)
    PlainJob(plain, 2).run()
    path = world.make()
    error = refused(world, ConfigError, "has no keyed state")
    assert error.remedy.startswith("restore it as it is")
    PlainJob(plain, 4, "again", restoring(path)).run()
    assert plain.ids() == [[*range(40)]] * 2


@pytest.mark.parametrize("partitions", [-1, 0, 10_001])
def test_a_number_of_partitions_out_of_range_is_refused(
    world: Partitioned, partitions: int
) -> None:
    world.drive(1)
    world.make()
    error = refused(world, ConfigError, f"cannot have {partitions} partitions", partitions)
    assert error.remedy == "set --partitions to a number from 1 to 10,000."
    world.rescale(world.root / "saved", 1, world.root / "new")
    world.drive(3, "again", **restoring(world.root / "new"))
    world.is_exact("again", 3)


def test_the_same_number_is_refused(world: Partitioned) -> None:
    world.drive(1)
    world.make()
    restored_as_it_is(world, refused(world, ConfigError, "already has 2 partitions", 2))


@pytest.mark.parametrize("output", ["saved", "saved/inside", ""])
def test_a_new_savepoint_in_the_old_one_or_around_it_is_refused(
    world: Partitioned, output: str
) -> None:
    world.drive(1)
    world.make()
    refused(world, ConfigError, "would be inside .*, or contain it", output=output)
    world.rescale(world.root / "saved", 3, world.root / "elsewhere")
    world.drive(3, "again", **restoring(world.root / "elsewhere"))
    world.is_exact("again", 3)


@pytest.mark.parametrize("output", ["two words", "100%", "größer", "a:b"])
def test_a_path_that_spark_would_encode_is_refused(world: Partitioned, output: str) -> None:
    world.drive(1)
    world.make()
    refused(world, ConfigError, "path of plain characters", output=output)
    made = world.rescale(world.root / "saved", 3, world.root / "plain")
    world.drive(3, "again", **restoring(made.rename(world.root / output)))
    world.is_exact("again", 3)


def test_a_rescale_without_room_for_its_copies_is_refused_until_there_is_some(
    world: Partitioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive(1)
    saved = world.make()
    other, usage = world.root / "other", shutil.disk_usage
    other.mkdir()

    def is_full(path: Path) -> object:
        return usage(path) if path == other else shutil._ntuple_diskusage(9, 8, 1)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", is_full)
        refused(world, SavepointError, "needs about .*, but the disk of .* has only 1 left")
        on_another_disk = world.rescale(saved, 3, other / "new")
    for path in (on_another_disk, world.rescale(saved, 3, world.root / "new")):
        open_savepoint(str(path)).verify()
    world.drive(3, "again", **restoring(path))
    world.is_exact("again", 3)


def test_one_over_another_savepoint_or_other_files_is_refused(world: Partitioned) -> None:
    world.drive(1)
    world.make()
    world.make("new")
    refused(world, SavepointError, "already exists")
    (world.root / "full").mkdir()
    (world.root / "full" / "notes").touch()
    refused(world, SavepointError, "among other files", output="full")


def test_a_damaged_or_half_copied_savepoint_is_refused(world: Partitioned) -> None:
    world.drive(1)
    saved = world.make()
    [part] = (saved / "data").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    refused(world, CorruptRecordError, "is damaged")
    (saved / "_savepoint").unlink()
    refused(world, ConfigError, "is incomplete")


def test_an_operator_that_lives_in_one_partition_is_refused(world: Partitioned) -> None:
    world.operator = "globalLimit"
    world.drive(1)
    world.make()
    error = refused(world, ConfigError, "globalLimit keeps all its state in one partition")
    restored_as_it_is(world, error)


def test_what_spark_refuses_leaves_nothing(world: Partitioned) -> None:
    def fails(folder: Path, partitions: int) -> None:
        (folder / "state" / "torn").touch()
        raise RuntimeError(f"no {partitions}")

    world.repartition = fails  # type: ignore[method-assign]
    world.drive(1)
    world.make()
    restored_as_it_is(world, refused(world, SavepointError, "Spark could not repartition .*no 3"))


def test_state_that_is_not_in_all_partitions_afterwards_is_refused(world: Partitioned) -> None:
    whole = world.repartition

    def forgets(folder: Path, partitions: int) -> None:
        whole(folder, partitions)
        (folder / "state" / "0" / "2" / "2.delta").unlink()

    world.repartition = forgets  # type: ignore[method-assign]
    world.drive(1)
    world.make()
    restored_as_it_is(world, refused(world, SavepointError, "did not write all the state"))


# -- kills -----------------------------------------------------------------------------------------

POINTS = ["S01", "S05@1", "S05@4", "S14", "S15", "S02@1", "S02@3", "S03", "S04"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_a_whole_one_or_none_and_what_is_left_can_be_disposed_of(
    world: Partitioned, point: str
) -> None:
    world.drive(3)
    made, new = world.make(), world.root / "new"
    before = snapshot(made)
    rescale: Callable[[], object] = lambda: world.rescale(made, 3, new)  # noqa: E731
    assert killed(point, rescale)
    assert snapshot(made) == before
    if point != "S04":
        with pytest.raises(ConfigError, match="is incomplete: it has no manifest"):
            open_savepoint(str(new))
        with pytest.raises(SavepointError, match="left incomplete"):
            rescale()
        dispose(LocalStorage(new), str(new))
        assert not new.exists()
        rescale()
    assert not (new / "scratch").exists()
    world.drive(5, "again", **restoring(new))
    world.is_exact("again", 5)

"""A decided micro-batch whose ranges have other records when they are read again is noticed, and
nothing else is (H35).
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from harness.spark_features import needs
from twophase.errors import (
    CorruptRecordError,
    NewerFormatError,
    OffsetOutOfRangeError,
    RangeChangedError,
    SourceLossError,
)
from twophase.ids import Attempt
from twophase.sources.kafka import KafkaDataSource, range_reader
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.data_source import KafkaPartition
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.range_digest import RangeDigest, settle
from twophase.spark_versions import LIMITED_READS
from twophase.state.checkpoints import replay_guard
from twophase.state.checkpoints.replay_guard import ReplayGuard
from twophase.state.journal.entries import Decision

pytestmark = needs(LIMITED_READS)

ITEM = OffsetRange("kafka", "t", "id-1", 0, 10, 110, 3)
OFFSETS = range(10, 110)


def values(offsets: Sequence[int]) -> list[bytes | None]:
    return [None if offset % 7 == 0 else b"value %d" % offset for offset in offsets]


def blocks(offsets: Sequence[int], size: int = 1_000) -> Iterator[Block]:
    for low in range(0, len(offsets), size):
        yield Block(values(offsets[low : low + size]), offsets[low : low + size])


def digest(offsets: Sequence[int] = OFFSETS, size: int = 1_000) -> RangeDigest:
    found = RangeDigest()
    for block in blocks(offsets, size):
        found.take(block)
    return found


class Folder:
    """Spark's folder of a lineage."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def first(self, checkpoint: int = 5, generation: int = 2) -> ReplayGuard:
        return replay_guard.begin(self.path, checkpoint, generation, None)

    def replay(self, checkpoint: int = 5, generation: int = 2) -> ReplayGuard:
        """A driver of a later generation runs again what `generation` has decided."""
        decision = Decision("lineage", checkpoint, Attempt(generation, 1), "", "", proofs=())
        return replay_guard.begin(self.path, checkpoint, generation + 1, decision)

    def again(self, checkpoint: int = 5, generation: int = 2) -> ReplayGuard:
        """A sink has the rows of this micro-batch already, and the others are to write them."""
        return replay_guard.begin_again(self.path, checkpoint, generation)

    def names(self) -> list[str]:
        root = self.path / replay_guard.FOLDER
        return sorted(path.name for path in root.iterdir()) if root.is_dir() else []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# -- the digest


def test_a_digest_does_not_depend_on_how_the_range_came_in_blocks() -> None:
    whole = digest()
    noise = random.Random(35)
    for _ in range(50):
        cuts = sorted({0, 100, *noise.sample(range(100), noise.randrange(20))})
        found = RangeDigest()
        for low, high in itertools.pairwise(cuts):
            offsets = OFFSETS[low:high] if noise.random() < 0.5 else list(OFFSETS[low:high])
            found.take(Block(values(offsets), offsets))
        assert found == whole


@pytest.mark.parametrize("gone", [[0], [99], [50], [0, 99], list(range(99))])
def test_records_that_are_gone_change_it(gone: list[int]) -> None:
    left = [offset for index, offset in enumerate(OFFSETS) if index not in gone]
    assert digest(left) != digest()


def test_other_values_and_other_offsets_change_it() -> None:
    other = RangeDigest()
    other.take(Block([b"other", *values(OFFSETS[1:])], OFFSETS))
    moved = RangeDigest()
    moved.take(Block(values(OFFSETS), [*OFFSETS[:-1], 111]))
    assert other.records == moved.records == 100
    assert len({(found.offsets, found.values) for found in (digest(), other, moved)}) == 3


# -- kept and compared


def test_a_replay_that_reads_the_same_goes_on(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    settle(folder.replay(), ITEM, digest(size=7))


def test_a_replay_that_reads_fewer_records_stops_and_says_what_and_where(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    with pytest.raises(RangeChangedError) as caught:
        settle(folder.replay(), ITEM, digest([50, 109]))
    assert "t-0:10 to 110 (topic 't', partition 0)" in str(caught.value)
    assert "100 then, 2 now (compaction)" in str(caught.value)
    assert f"delete {folder.path}/ranges/5-2" in caught.value.remedy


def test_a_replay_that_reads_as_many_others_stops(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    other = RangeDigest()
    other.take(Block([b"other"] * 100, OFFSETS))
    with pytest.raises(RangeChangedError, match="100 then, 100 now, with other offsets or values"):
        settle(folder.replay(), ITEM, other)


def test_whichever_attempt_has_read_other_records_stops_the_replay(folder: Folder) -> None:
    """Whose rows the reducers took is not known here."""
    first = folder.first()
    settle(first, ITEM, digest())
    settle(first, ITEM, digest([50, 109]))
    for offsets in (OFFSETS, [50, 109]):
        with pytest.raises(RangeChangedError):
            settle(folder.replay(), ITEM, digest(offsets))


def test_the_leader_epoch_may_be_another_by_now(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    later = OffsetRange("kafka", "t", "id-1", 0, 10, 110, 4)
    with pytest.raises(RangeChangedError):
        settle(folder.replay(), later, digest([50]))


@pytest.mark.parametrize(
    "item",
    [
        OffsetRange("other", "t", "id-1", 0, 10, 110),
        OffsetRange("kafka", "t", "id-1", 1, 10, 110),
        OffsetRange("kafka", "t", "id-1", 0, 10, 60),
    ],
    ids=["source", "partition", "cut otherwise"],
)
def test_another_range_is_not_compared(
    folder: Folder, item: OffsetRange, caplog: pytest.LogCaptureFixture
) -> None:
    settle(folder.first(), ITEM, digest())
    settle(folder.replay(), ITEM, digest())
    assert caplog.messages == []
    settle(folder.replay(), item, digest([50]))
    assert f"{item} is read again for Spark's state, and no digest" in caplog.text


def test_what_was_read_before_the_attempt_that_is_decided_is_not_compared(folder: Folder) -> None:
    """An undecided micro-batch is written as it is read."""
    settle(folder.first(generation=1), ITEM, digest())
    settle(folder.first(generation=2), ITEM, digest([50]))
    settle(folder.replay(generation=2), ITEM, digest([50]))


def test_without_a_digest_nothing_is_compared_and_that_is_said(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    settle(folder.replay(), ITEM, digest([50]))
    assert "no digest of its first read" in caplog.text
    assert folder.names() == []


def test_a_damaged_digest_stops_the_replay(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    [kept] = (folder.path / replay_guard.FOLDER / "5-2").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"100", b"101"))
    with pytest.raises(CorruptRecordError):
        settle(folder.replay(), ITEM, digest())


def test_a_digest_of_a_newer_version_stops_the_replay_and_is_not_deleted(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    [kept] = (folder.path / replay_guard.FOLDER / "5-2").iterdir()
    content = kept.read_bytes().replace(b"twophase/1 ", b"twophase/2 ", 1)
    kept.write_bytes(content)
    with pytest.raises(
        NewerFormatError, match=r"written by a newer twophase \(format 2; this one reads up to 1\)"
    ):
        settle(folder.replay(), ITEM, digest())
    folder.first(checkpoint=8, generation=3)
    assert kept.read_bytes() == content


def test_a_task_that_does_not_see_the_driver_s_folder_leaves_nothing_and_says_so(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    first = folder.first()
    shutil.rmtree(folder.path / replay_guard.FOLDER)
    settle(first, ITEM, digest())
    assert [*folder.path.iterdir()] == []
    assert [
        message
        for message in caplog.messages
        if "Nothing is kept" in message and first.path in message
    ]


# -- nothing grows


@pytest.mark.parametrize("generation", [2, 4])
def test_what_a_sink_that_is_ahead_has_read_is_compared(folder: Folder, generation: int) -> None:
    """By a retry of this driver, or by a later one."""
    settle(folder.first(), ITEM, digest())
    settle(folder.again(generation=generation), ITEM, digest(size=7))
    with pytest.raises(RangeChangedError):
        settle(folder.again(generation=generation), ITEM, digest(range(10, 109)))


def test_it_is_there_for_a_replay_of_the_driver_that_decides(folder: Folder) -> None:
    settle(folder.first(), ITEM, digest())
    settle(folder.again(generation=3), ITEM, digest())
    settle(folder.again(generation=4), ITEM, digest())
    assert folder.names() == ["5-4"]
    with pytest.raises(RangeChangedError):
        settle(folder.replay(generation=4), ITEM, digest(range(10, 109)))


def test_without_digests_of_a_sink_that_is_ahead_nothing_is_compared(folder: Folder) -> None:
    settle(folder.again(), ITEM, digest())
    assert folder.names() == []


def test_the_digests_of_two_micro_batches_are_there_at_most(folder: Folder) -> None:
    generation = 0
    for checkpoint in range(1, 40):
        for _ in range(3):  # two drivers die in it
            generation += 1
            settle(folder.first(checkpoint, generation), ITEM, digest())
            assert len(folder.names()) <= 2
        settle(folder.replay(checkpoint, generation), ITEM, digest())
        assert f"{checkpoint}-{generation}" in folder.names()


def test_a_driver_that_was_overtaken_takes_no_digest_of_a_newer_one(folder: Folder) -> None:
    settle(folder.first(5, 3), ITEM, digest())
    folder.first(5, 2)
    assert folder.names() == ["5-2", "5-3"]


# -- the tasks


class Reading:
    """A reader of raw values whose fetches come from here."""

    def __init__(self, folder: Folder, patch: pytest.MonkeyPatch) -> None:
        self.offsets: Sequence[int] = OFFSETS
        self._properties: dict[str, str] = {"streaming.sql.batchId": "5"}
        options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "columns": "value"}
        self._reader = KafkaDataSource(options).streamReader(
            StructType([StructField("value", BinaryType())])
        )
        self._folder = folder
        self.gone = False
        patch.setattr(range_reader, "read_range", self._fetched)
        patch.setattr(
            TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=self._properties.get)
        )
        self.context = SimpleNamespace(setLocalProperty=self._properties.__setitem__)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self._reader.read(KafkaPartition(ITEM))

    def _fetched(self, *_: object, **__: object) -> Iterator[Block]:
        if self.gone:
            raise OffsetOutOfRangeError("100 records are lost.", remedy="restore a savepoint")
        yield from blocks(self.offsets, 10)

    def kept(self) -> int:
        return len([*(self._folder.path / replay_guard.FOLDER).glob("*-*/*")])


@pytest.fixture
def reading(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(folder, monkeypatch)


def test_a_task_that_was_told_nothing_keeps_nothing(reading: Reading) -> None:
    assert sum(batch.num_rows for batch in reading.read()) == 100
    assert reading.kept() == 0


def test_a_task_keeps_what_it_has_read_to_the_end(reading: Reading, folder: Folder) -> None:
    folder.first().share(reading.context)  # type: ignore[arg-type]
    next(reading.read())  # a LIMIT is satisfied
    assert reading.kept() == 0
    assert sum(batch.num_rows for batch in reading.read()) == 100
    assert reading.kept() == 1


def test_a_task_of_a_replay_compares_what_it_reads(reading: Reading, folder: Folder) -> None:
    folder.first().share(reading.context)  # type: ignore[arg-type]
    list(reading.read())
    folder.replay().share(reading.context)  # type: ignore[arg-type]
    list(reading.read())
    reading.offsets = [50, 109]
    with pytest.raises(RangeChangedError):
        list(reading.read())
    assert reading.kept() == 1


def test_a_task_of_the_plugin_form_reads_a_note_for_its_micro_batch(
    reading: Reading, folder: Folder
) -> None:
    assert not replay_guard.are_planned(folder.path)
    replay_guard.plan_guard(folder.path, reading.context)  # type: ignore[arg-type]
    assert replay_guard.are_planned(folder.path)
    list(reading.read())
    folder.first(4).plan(4)
    list(reading.read())
    assert reading.kept() == 0
    folder.first(5).plan(5)
    list(reading.read())
    assert reading.kept() == 1
    folder.replay(5).plan(5)
    reading.offsets = [50, 109]
    with pytest.raises(RangeChangedError):
        list(reading.read())


def test_a_half_written_note_of_a_driver_that_died_is_deleted_a_day_later(
    reading: Reading, folder: Folder
) -> None:
    replay_guard.plan_guard(folder.path, reading.context)  # type: ignore[arg-type]
    root = folder.path / replay_guard.FOLDER
    left, being_written = root / ".plan-left", root / ".plan-being-written"
    left.touch()
    being_written.touch()
    os.utime(left, (time.time() - 90_000,) * 2)
    folder.first(5).plan(5)
    assert {path.name for path in root.iterdir() if path.is_file()} == {being_written.name, "plan"}


def test_nothing_is_said_where_another_driver_was_quicker_to_delete(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.first(1)
    root = folder.path / replay_guard.FOLDER
    note = root / ".plan-left"
    note.touch()
    os.utime(note, (0, 0))
    listed = [*os.listdir(root), "0-1"]  # 0-1 is gone since

    def delete_first() -> float:
        note.unlink(missing_ok=True)
        return 1e9

    monkeypatch.setattr(os, "listdir", lambda _: listed)
    monkeypatch.setattr(time, "time", delete_first)
    replay_guard._prune(root, 3, 2)
    replay_guard._delete_half_written(root / "plan")
    monkeypatch.undo()
    assert (caplog.messages, folder.names()) == ([], [])


@pytest.mark.parametrize("error", [OffsetOutOfRangeError, RangeChangedError])
def test_a_replay_of_the_plugin_form_that_fails_for_its_records_says_so_to_the_next_start(
    reading: Reading, folder: Folder, error: type[SourceLossError]
) -> None:
    replay_guard.plan_guard(folder.path, reading.context)  # type: ignore[arg-type]
    decision = Decision("lineage", 5, Attempt(2, 1), "", "", proofs=())
    folder.first().plan(5)
    list(reading.read())
    reading.gone, reading.offsets = error is OffsetOutOfRangeError, [50, 109]
    if reading.gone:  # nothing is decided yet
        with pytest.raises(
            OffsetOutOfRangeError, match=r"^100 records are lost\. Next: restore a savepoint"
        ):
            list(reading.read())
    assert not replay_guard.was_lost(folder.path, decision)
    folder.replay().plan(5)
    with pytest.raises(error, match=r"^The micro-batch is committed already") as caught:
        list(reading.read())
    assert (
        "Next: start the query again: it goes on with the state of the first read. Only if"
        in str(caught.value)
    )
    assert replay_guard.was_lost(folder.path, decision)
    reading.gone, reading.offsets = False, OFFSETS
    list(reading.read())  # the mark is no digest


def test_a_replay_of_write_stream_leaves_that_to_its_driver(
    reading: Reading, folder: Folder
) -> None:
    folder.replay().share(reading.context)  # type: ignore[arg-type]
    reading.gone = True
    with pytest.raises(
        OffsetOutOfRangeError, match=r"^100 records are lost\. Next: restore a savepoint"
    ):
        list(reading.read())
    assert folder.names() == []


def test_a_task_that_can_leave_no_mark_does_not_advise_another_start(
    reading: Reading, folder: Folder
) -> None:
    replay_guard.plan_guard(folder.path, reading.context)  # type: ignore[arg-type]
    replay = folder.replay()
    replay.plan(5)
    shutil.rmtree(replay.path)  # on this executor's disk it never was
    reading.gone = True
    with pytest.raises(
        OffsetOutOfRangeError, match=r"^100 records are lost\. Next: restore a savepoint"
    ):
        list(reading.read())

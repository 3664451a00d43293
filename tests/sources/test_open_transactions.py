"""An open transaction holds the last stable offset back, also below what was read: that is no loss.

Whatever compares an offset with the end of a log does so with its high watermark; against a cluster
that lives in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.contract.source import RereadsRanges, SourceLeg
from twophase.errors import OffsetOutOfRangeError, SourceUnavailableError
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import Limits, OffsetRange, PartitionOffset, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.planner import PATIENCE_S, OffsetPlanner
from twophase.sources.kafka.source import KafkaSource
from twophase.sources.spark_kafka import SparkKafkaSource

STABLE, READ, HIGH = 900, 1_000, 1_100
"""Where the transaction is open, up to where a reader of uncommitted records has read, and where
the log ends.
"""
OPTIONS = {"kafka.bootstrap.servers": "memory:1", "subscribe": "t"}
OURS = KafkaSource(), SourceLeg("twophase-kafka", OPTIONS)
SPARK_S = (
    SparkKafkaSource(),
    SourceLeg("kafka", OPTIONS | {"kafka.isolation.level": "read_committed"}),
)


@pytest.fixture
def log(memory: MemoryCluster) -> Log:
    memory.logs = {"t": ("id-1", [Log(0, STABLE, high=HIGH)])}
    return memory.logs["t"][1][0]


def offset(at: int) -> SourceOffset:
    return SourceOffset.of("kafka", [PartitionOffset("t", "id-1", 0, at, leader_epoch=0)])


class Job:
    """The driver's side of the source."""

    def __init__(self, memory: MemoryCluster, **options: str) -> None:
        self.clock = Clock()
        parsed = KafkaOptions.parse(OPTIONS | options)
        self.planner = OffsetPlanner(parsed, memory, self.clock)  # type: ignore[arg-type]

    def next(self, start: SourceOffset, limits: Limits = Limits()) -> SourceOffset:  # noqa: B008
        self.clock.now += 60
        return self.planner.latest(start, limits)


def reading(memory: MemoryCluster, start: int, end: int) -> tuple[ReadGuard, Clock]:
    clock = Clock()
    item = OffsetRange("kafka", "t", "id-1", 0, start, end, 0)
    return ReadGuard(KafkaOptions.parse(OPTIONS), memory, item, clock), clock  # type: ignore[arg-type]


def starts(**options: str) -> Callable[[MemoryCluster, int], object]:
    def start(memory: MemoryCluster, at: int) -> object:
        memory.group = {Partition("t", 0): at}
        job = Job(memory, **{"group.id": "g"}, **options)
        return job.next(SourceOffset.initial("kafka"))

    return start


def starts_at_an_offset(memory: MemoryCluster, at: int) -> object:
    named = json.dumps({"t": {"0": at}})
    return Job(memory, startingOffsets=named).next(SourceOffset.initial("kafka"))


def goes_on(memory: MemoryCluster, at: int) -> object:
    return Job(memory).next(offset(at))


def goes_on_to_the_end(memory: MemoryCluster, at: int) -> object:
    job = Job(memory)
    job.planner.freeze()
    return job.next(offset(at), Limits(per_trigger=10))


def rewinds(memory: MemoryCluster, at: int) -> object:
    source, leg = OURS
    return source.check_readable(leg, offset(at).to_line(), None)


def rewinds_spark_s(memory: MemoryCluster, at: int) -> object:
    source, leg = SPARK_S
    return source.check_readable(leg, json.dumps({"t": {"0": at}}), None)


def reads_again(memory: MemoryCluster, at: int) -> object:
    reading(memory, 10, at)[0].check()
    return None


def reads(memory: MemoryCluster, at: int) -> object:
    return reading(memory, 10, at)[0].look(10)


def writes_again(
    source: RereadsRanges[OffsetRange], leg: SourceLeg, start: str, end: str
) -> Sequence[OffsetRange]:
    items = source.ranges(leg, start, end)
    for item in items:
        source.check_range(leg, item)
    return items


def writes_a_checkpoint_again(memory: MemoryCluster, at: int) -> object:
    return writes_again(*OURS, offset(10).to_line(), offset(at).to_line())


def writes_a_checkpoint_again_of_spark_s(memory: MemoryCluster, at: int) -> object:
    return writes_again(*SPARK_S, '{"t": {"0": 10}}', json.dumps({"t": {"0": at}}))


LOOKS: dict[str, Callable[[MemoryCluster, int], object]] = {
    "a start from committed": starts(startingOffsets="committed"),
    "a start from named offsets": starts_at_an_offset,
    "the next micro-batch": goes_on,
    "the next micro-batch of available-now": goes_on_to_the_end,
    "a rewind": rewinds,
    "a rewind over Spark's source": rewinds_spark_s,
    "a micro-batch that Spark runs again": reads_again,
    "a read": reads,
    "lost pieces that are written again": writes_a_checkpoint_again,
    "the same over Spark's source": writes_a_checkpoint_again_of_spark_s,
}


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("at", [READ, HIGH])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_lies_behind_the_last_stable_offset_is_not_gone(
    memory: MemoryCluster, look: Callable[[MemoryCluster, int], object], at: int
) -> None:
    look(memory, at)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_lies_behind_the_high_watermark_is_gone(
    memory: MemoryCluster, look: Callable[[MemoryCluster, int], object]
) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        look(memory, HIGH + 5)
    assert f"5 records are gone: offsets {HIGH} to {HIGH + 4}" in str(caught.value)


@pytest.mark.parametrize("limits", [Limits(), Limits(per_trigger=30), Limits(per_partition=30)])
def test_nothing_is_admitted_until_the_last_stable_offset_has_passed(
    memory: MemoryCluster, log: Log, limits: Limits
) -> None:
    """Other partitions go on meanwhile, with all that the limits allow."""
    memory.logs["t"][1].append(Log(0, 30))
    job = Job(memory, startingOffsets=json.dumps({"t": {"0": READ, "1": 0}}))
    first = job.next(SourceOffset.initial("kafka"), limits)
    assert first.positions() == {Partition("t", 0): READ, Partition("t", 1): 30}
    log.end = READ - 1
    assert job.next(first, limits).positions()[Partition("t", 0)] == READ
    log.end_transaction()
    after = READ + (HIGH - READ if limits == Limits() else 30)
    assert job.next(first, limits).positions()[Partition("t", 0)] == after


@pytest.mark.parametrize("log_ends", [True, False])
def test_a_start_at_a_time_leaves_out_older_records_of_the_transaction(
    memory: MemoryCluster, log: Log, *, log_ends: bool
) -> None:
    memory.times = {Partition("t", 0): None if log_ends else READ}
    begin = starts(startingOffsets="timestamp:1000")(memory, 0)
    assert isinstance(begin, SourceOffset)
    assert begin.start.positions() == {Partition("t", 0): HIGH if log_ends else READ}


def test_the_stall_that_is_reported_is_that_of_the_last_stable_offset(
    memory: MemoryCluster, caplog: pytest.LogCaptureFixture, log: Log
) -> None:
    job = Job(memory)
    for _ in range(2):
        assert job.next(offset(READ)) == offset(READ)
        job.clock.now += PATIENCE_S
    assert f"at its last stable offset {STABLE}" in caplog.text
    assert f"{HIGH - STABLE} offsets wait" in caplog.text


@pytest.mark.parametrize(("at", "left"), [(500, HIGH - 500), (READ, HIGH - READ)])
@pytest.mark.usefixtures("log")
def test_a_topic_that_is_released_is_given_up_with_what_its_transactions_hold(
    memory: MemoryCluster, at: int, left: int
) -> None:
    memory.logs["other"] = ("id-2", [Log(0, 1)])
    leg = SourceLeg("twophase-kafka", OPTIONS | {"subscribe": "other"})
    _, [lost] = KafkaSource().missing(leg, offset(at).to_line(), ["t"])
    assert f"offsets {at} to {HIGH - 1}: {left} records are not read" in lost


class Appending(MemoryCluster):
    """A record arrives just after the answer that there is none of a time."""

    def at_timestamp(self, partitions: Collection[Partition], milliseconds: int) -> Any:
        found = super().at_timestamp(partitions, milliseconds)
        self.logs["t"][1][0].end += 1
        return found


def test_a_record_that_comes_while_a_start_at_a_time_is_looked_up_is_read() -> None:
    memory = Appending({"t": ("id-1", [Log(0, 10)])})
    found = Job(memory, startingOffsets="timestamp:1000").next(SourceOffset.initial("kafka"))
    assert found.start.positions() == {Partition("t", 0): 10}


@pytest.mark.parametrize("position", [STABLE, READ])
def test_a_read_that_a_transaction_holds_up_waits_and_says_so(
    memory: MemoryCluster, log: Log, position: int
) -> None:
    guard, clock = reading(memory, position, HIGH)
    guard.check()

    def wait(seconds: int) -> None:
        for _ in range(seconds):
            clock.now += 1
            guard.waited(position)

    wait(110)
    with pytest.raises(SourceUnavailableError) as caught:
        wait(20)
    assert f"no progress at offset {position}" in str(caught.value)
    assert f"a transaction is open at offset {STABLE}" in str(caught.value)
    assert "Nothing is lost" in str(caught.value)
    assert "let its producer end it: start that again if it is down" in caught.value.remedy
    log.end_transaction()
    guard.moved()
    wait(110)
    with pytest.raises(SourceUnavailableError, match="it waits for offset 1099"):
        wait(20)

"""What the next batch reads, and when it stops by name instead: against a cluster
that lives in memory.
"""

from __future__ import annotations

import json
import re
import traceback

import pytest

from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.errors import (
    ConfigError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    PreflightError,
    TopicRecreatedError,
    from_text,
)
from twophase.kafka_client.partitions import LogEnd, Partition
from twophase.sources.kafka.offsets import Limits, SourceOffset, ranges
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.planner import PATIENCE_S, OffsetPlanner, StallAlarm

pytestmark = pytest.mark.usefixtures("worker")


class Bench:
    """A planner with its cluster and clock."""

    def __init__(self, cluster: MemoryCluster, **options: str) -> None:
        base = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "group.id": "g"}
        if "subscribePattern" in options:
            del base["subscribe"]
        self.cluster = cluster
        self.clock = Clock()
        self.options = KafkaOptions.parse(base | options)
        self.planner = OffsetPlanner(self.options, cluster, self.clock)  # type: ignore[arg-type]

    def start(self) -> SourceOffset:
        """Where the source begins: the end of a first batch that admits no records."""
        return self.first(Limits(per_trigger=0))

    def first(self, limits: Limits = Limits()) -> SourceOffset:  # noqa: B008
        return self.planner.latest(SourceOffset.initial("kafka"), limits)

    def next(self, offset: SourceOffset, limits: Limits = Limits()) -> SourceOffset:  # noqa: B008
        self.clock.now += 1
        return self.planner.latest(offset, limits)


def cluster(*logs: Log) -> MemoryCluster:
    return MemoryCluster({"t": ("id-1", list(logs))})


def at(offset: SourceOffset) -> dict[str, int]:
    return {str(entry.key): entry.offset for entry in offset.partitions or ()}


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("earliest", [5, 0]),
        ("latest", [20, 9]),
        ("timestamp:1000", [7, 9]),
        ("committed", [11, 3]),
        ('{"t": {"0": 6, "1": -2}}', [6, 0]),
        ('{"t": {"0": -1, "1": 9}}', [20, 9]),
    ],
)
def test_the_start(starting: str, expected: list[int]) -> None:
    store = cluster(Log(5, 20), Log(0, 9))
    store.group = {Partition("t", 0): 11, Partition("t", 1): 3}
    store.times = {Partition("t", 0): 7, Partition("t", 1): None}
    assert list(at(Bench(store, startingOffsets=starting).start()).values()) == expected


def test_committed_without_a_commit_falls_back_only_on_request() -> None:
    store = cluster(Log(5, 20), Log(0, 9))
    store.group = {Partition("t", 0): 11}
    with pytest.raises(PreflightError, match="no committed offset for t-1"):
        Bench(store, startingOffsets="committed").start()
    for fallback, expected in (("earliest", 0), ("latest", 9)):
        bench = Bench(store, startingOffsets="committed", **{"startingOffsets.fallback": fallback})
        assert at(bench.start()) == {"t-0": 11, "t-1": expected}


@pytest.mark.parametrize("offset", [4, 21])
def test_a_committed_or_named_start_out_of_range_is_not_reset(offset: int) -> None:
    store = cluster(Log(5, 20))
    store.group = {Partition("t", 0): offset}
    for starting in ("committed", f'{{"t": {{"0": {offset}}}}}'):
        with pytest.raises(OffsetOutOfRangeError, match="1 record is gone"):
            Bench(store, startingOffsets=starting).start()


def test_named_starts_must_name_existing_partitions() -> None:
    store = cluster(Log(0, 9), Log(0, 9))
    some = '{"t": {"0": 1}}'
    with pytest.raises(ConfigError, match="no offset for t-1") as caught:
        Bench(store, startingOffsets=some).start()
    assert "name every partition, or" in caught.value.remedy
    for fallback, end in (("earliest", 0), ("latest", 9)):
        assert f"`startingOffsets.fallback={fallback}`" in caught.value.remedy
        bench = Bench(store, startingOffsets=some, **{"startingOffsets.fallback": fallback})
        assert at(bench.start()) == {"t-0": 1, "t-1": end}
    with pytest.raises(ConfigError, match="t-5") as caught:
        Bench(store, startingOffsets='{"t": {"0": 1, "1": 1, "5": 1}}').start()
    partitions = re.findall(r"t-(\d)", caught.value.remedy)
    every = json.dumps({"t": dict.fromkeys(partitions, 1)})
    assert at(Bench(store, startingOffsets=every).start()) == {"t-0": 1, "t-1": 1}


def test_a_topic_that_does_not_exist_is_refused_at_the_start() -> None:
    bench = Bench(cluster(Log(0, 1)), subscribe="t,x")
    with pytest.raises(PreflightError, match="'x' does not exist") as caught:
        bench.start()
    assert caught.value.remedy == "create it, or correct `subscribe`."
    assert at(Bench(bench.cluster, subscribe="t").start()) == {"t-0": 0}
    bench.cluster.logs["x"] = ("id-2", [Log(0, 1)])
    bench.clock.now += bench.options.discovery_interval_s
    assert at(bench.start()) == {"t-0": 0, "x-0": 0}


def test_the_first_batch_reads_to_the_end_and_says_where_it_began() -> None:
    first = Bench(cluster(Log(5, 9), Log(0, 4))).first()
    assert (at(first), at(first.start)) == ({"t-0": 9, "t-1": 4}, {"t-0": 5, "t-1": 0})
    limited = Bench(cluster(Log(5, 9), Log(0, 4))).first(Limits(per_trigger=2))
    assert (at(limited), at(limited.start)) == ({"t-0": 6, "t-1": 1}, {"t-0": 5, "t-1": 0})


def test_a_partition_that_is_found_while_the_first_batch_is_planned_is_in_its_end_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(cluster(Log(0, 9)))
    resolve = bench.planner._resolve

    def grows() -> SourceOffset:
        begin = resolve()
        bench.cluster.logs["t"][1].append(Log(0, 3))
        return begin

    monkeypatch.setattr(bench.planner, "_resolve", grows)
    first = SourceOffset.parse(bench.first().to_line())
    assert (at(first), at(first.start)) == ({"t-0": 9, "t-1": 0}, {"t-0": 0})
    assert [str(item) for item in ranges(SourceOffset.initial("kafka"), first)] == ["t-0:0 to 9"]
    assert at(bench.next(first)) == {"t-0": 9, "t-1": 3}


def test_only_the_first_batch_says_where_the_source_began() -> None:
    bench = Bench(cluster(Log(0, 9)))
    second = bench.next(bench.first(Limits(per_trigger=4)))
    assert (at(second), second.begin) == ({"t-0": 9}, None)


def test_a_first_batch_without_records_is_one_nevertheless() -> None:
    """It makes the start durable: `latest` must not be asked for again."""
    bench = Bench(cluster(Log(0, 9)), startingOffsets="latest")
    first = bench.first()
    assert (at(first), at(first.start)) == ({"t-0": 9}, {"t-0": 9})
    assert bench.next(first) is first


def test_the_next_batch_reads_to_the_end() -> None:
    bench = Bench(cluster(Log(0, 9), Log(0, 4)))
    assert at(bench.next(bench.start())) == {"t-0": 9, "t-1": 4}


def test_nothing_new_is_the_same_object_and_asked_at_most_every_50_ms() -> None:
    bench = Bench(cluster(Log(9, 9)))
    start = bench.start()
    asked = bench.cluster.asked
    for _ in range(100):
        bench.clock.now += 0.012
        assert bench.planner.latest(start, Limits()) is start
    assert bench.cluster.asked - asked <= 1.2 / 0.05 + 3


def test_a_new_partition_enters_at_its_first_offset_before_it_is_read() -> None:
    bench = Bench(cluster(Log(0, 5)))
    offset = bench.start()
    bench.cluster.logs["t"][1].append(Log(0, 8))
    bench.cluster.logs["t"][1][0].end = 6
    offset = bench.next(offset)
    assert at(offset) == {"t-0": 6, "t-1": 0}
    assert at(bench.next(offset)) == {"t-0": 6, "t-1": 8}


def test_records_that_a_new_partition_has_lost_stop_the_job() -> None:
    """It was made after the job's start, while the job stood still for longer than
    its records are kept.
    """
    bench = Bench(cluster(Log(0, 5)))
    offset = bench.start()
    bench.cluster.logs["t"][1].append(Log(2, 8))
    bench.clock.now += bench.options.discovery_interval_s
    message = lost(bench, offset, OffsetOutOfRangeError)
    assert "t-1" in message
    assert (
        "offset 0 is wanted, offsets 2 to 8 are available. 2 records are gone: offsets 0 to 1"
        in message
    )


def test_a_new_partition_is_found_while_nothing_else_moves() -> None:
    bench = Bench(cluster(Log(0, 0)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1].append(Log(0, 0))
    bench.clock.now += bench.options.discovery_interval_s
    assert at(bench.next(offset)) == {"t-0": 0, "t-1": 0}


def test_a_pattern_finds_new_topics() -> None:
    """Nothing tells records that had expired by then from those before a topic
    was given to the job.
    """
    bench = Bench(cluster(Log(0, 5)), subscribePattern="t.*")
    offset = bench.start()
    bench.cluster.logs |= {"t2": ("id-2", [Log(3, 7)]), "other": ("id-3", [Log(0, 1)])}
    assert at(bench.next(offset)) == {"t-0": 5, "t2-0": 3}


def test_available_now_stops_at_the_frozen_end() -> None:
    bench = Bench(cluster(Log(0, 5), Log(0, 5)))
    bench.planner.freeze()
    offset = bench.start()
    for log in bench.cluster.logs["t"][1]:
        log.end = 50
    bench.cluster.logs["t"][1].append(Log(0, 9))
    offset = bench.next(offset, Limits(per_trigger=8))
    assert at(offset) == {"t-0": 4, "t-1": 4}
    offset = bench.next(offset, Limits(per_trigger=8))
    assert at(offset) == {"t-0": 5, "t-1": 5}
    assert bench.next(offset) is offset


def test_available_now_with_latest_ends_at_once() -> None:
    bench = Bench(cluster(Log(0, 5)), startingOffsets="latest")
    bench.planner.freeze()
    bench.cluster.logs["t"][1][0].end = 9
    offset = bench.start()
    assert bench.next(offset) is offset


def lost(bench: Bench, offset: SourceOffset, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        bench.next(offset)
    assert type(from_text("".join(traceback.format_exception(caught.value)))) is kind
    return str(caught.value)


def test_deleted_records_stop_the_job_with_the_lost_range() -> None:
    bench = Bench(cluster(Log(0, 5)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1][0] = Log(12, 20)
    message = lost(bench, offset, OffsetOutOfRangeError)
    assert (
        "offset 5 is wanted, offsets 12 to 20 are available. 7 records are gone: offsets 5 to 11"
        in message
    )


def test_deleted_records_that_were_read_do_not_matter() -> None:
    bench = Bench(cluster(Log(0, 5)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1][0] = Log(5, 5)
    assert bench.next(offset) is offset


def test_a_truncated_log_stops_the_job() -> None:
    bench = Bench(cluster(Log(0, 9)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1][0] = Log(0, 4, epoch=1)
    message = lost(bench, offset, OffsetOutOfRangeError)
    assert "5 records are gone: offsets 4 to 8" in message
    begin_afresh(bench, message, 4)


def test_a_log_that_was_truncated_and_has_grown_again_stops_the_job() -> None:
    bench = Bench(cluster(Log(0, 9)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1][0] = Log(0, 30, epoch=1, epoch_ends={0: 6})
    message = lost(bench, offset, OffsetOutOfRangeError)
    assert "3 records are gone: offsets 6 to 8" in message
    begin_afresh(bench, message, 6)


def begin_afresh(before: Bench, message: str, offset: int) -> None:
    """What the error says: another job, that goes on at an offset."""
    assert "begin another job" in message
    assert "startingOffsets that name where to go on" in message
    bench = Bench(before.cluster, startingOffsets=json.dumps({"t": {"0": offset}}))
    begin = bench.start()
    assert at(begin) == {"t-0": offset}
    assert at(bench.next(begin)) == {"t-0": before.cluster.logs["t"][1][0].end}


@pytest.mark.parametrize("epoch_end", [9, 12, -1])
def test_a_new_leader_that_has_everything_is_no_loss(epoch_end: int) -> None:
    bench = Bench(cluster(Log(0, 9)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1][0] = Log(0, 30, epoch=1, epoch_ends={0: epoch_end})
    assert at(bench.next(offset)) == {"t-0": 30}


@pytest.mark.parametrize("end", [3, 5, 50])
def test_a_recreated_topic_stops_the_job_whatever_its_offsets_are(end: int) -> None:
    bench = Bench(cluster(Log(0, 5)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"] = ("id-2", [Log(0, end)])
    bench.clock.now += bench.options.discovery_interval_s
    message = lost(bench, offset, TopicRecreatedError)
    assert "id-1" in message
    assert "id-2" in message


def test_a_vanished_topic_or_partition_stops_the_job() -> None:
    bench = Bench(cluster(Log(0, 5), Log(0, 5)))
    offset = bench.next(bench.start())
    bench.cluster.logs["t"][1].pop()
    assert "t-1 (topic 't', partition 1)" in lost(bench, offset, PartitionVanishedError)
    del bench.cluster.logs["t"]
    assert "the topic no longer exists" in lost(bench, offset, PartitionVanishedError)


def test_a_topic_taken_out_of_the_options_is_not_dropped_in_silence() -> None:
    store = cluster(Log(0, 5))
    store.logs["u"] = ("id-2", [Log(0, 5)])
    offset = Bench(store, subscribe="t,u").start()
    with pytest.raises(ConfigError, match="'u'"):
        Bench(store).next(offset)


def test_offsets_of_another_source_are_refused() -> None:
    bench = Bench(cluster(Log(0, 5)), uid="left")
    with pytest.raises(OffsetMismatchError, match="'right'") as caught:
        bench.next(SourceOffset.initial("right"))
    assert "keep the uids" in caught.value.remedy
    kept = Bench(bench.cluster, uid="right")
    assert at(kept.next(SourceOffset.initial("right"))) == {"t-0": 5}


def test_an_open_transaction_that_holds_a_partition_back_is_reported_once_in_a_while() -> None:
    alarm, key = StallAlarm(), Partition("t", 0)
    held, high = {key: LogEnd(5)}, {key: LogEnd(9)}
    assert alarm.observe(0, held, high) == []
    assert "offset 5 for 60 s while 4 offsets wait" in alarm.observe(PATIENCE_S, held, high)[0]
    assert alarm.observe(PATIENCE_S + 1, held, high) == []
    assert alarm.observe(3 * PATIENCE_S, {key: LogEnd(6)}, high) == []
    assert alarm.observe(5 * PATIENCE_S, {key: LogEnd(9)}, high) == []


def test_the_first_batches_of_a_start_are_small_and_grow_up_to_the_limit() -> None:
    bench = Bench(cluster(Log(0, 1_000_000)))
    offset, sizes = bench.start(), []
    for _ in range(6):
        begin, offset = offset, bench.next(offset, Limits(per_trigger=200_000))
        sizes.append(at(offset)["t-0"] - at(begin)["t-0"])
    assert sizes == [20_000, 60_000, 180_000, 200_000, 200_000, 200_000]


def test_a_look_that_finds_nothing_new_does_not_use_up_a_small_batch() -> None:
    bench = Bench(cluster(Log(0, 0)))
    offset = bench.start()
    for _ in range(5):
        offset = bench.next(offset, Limits(per_trigger=200_000))
    bench.cluster.logs["t"][1][0].end = 500_000
    assert at(bench.next(offset, Limits(per_trigger=200_000)))["t-0"] == 20_000


def test_a_batch_without_a_limit_reads_to_the_end_at_once() -> None:
    bench = Bench(cluster(Log(0, 1_000_000)))
    assert at(bench.next(bench.start()))["t-0"] == 1_000_000


def test_a_minute_after_the_start_and_not_sooner_a_batch_may_have_its_full_size() -> None:
    bench, limits = Bench(cluster(Log(0, 1_000_000))), Limits(per_trigger=200_000)
    offset = bench.start()
    bench.clock.now = 58.5
    offset = bench.next(offset, limits)
    assert (bench.clock.now, at(offset)["t-0"]) == (59.5, 20_000)
    bench.clock.now = 59.0
    offset = bench.next(offset, limits)
    assert (bench.clock.now, at(offset)["t-0"]) == (60.0, 220_000)

"""The offset of the source: one line in Spark's offset log, one entry a partition
in the checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.contract.source_entry_points import first_line
from twophase.errors import (
    CorruptRecordError,
    NewerFormatError,
    OffsetMismatchError,
    TopicRecreatedError,
)
from twophase.internals.json_values import to_json
from twophase.kafka_client.partitions import LogEnd, Partition
from twophase.sources.kafka.offsets import (
    Limits,
    PartitionOffset,
    SourceOffset,
    advance,
    ranges,
    share,
)
from twophase.sources.kafka.source import KafkaSource

SOURCE = KafkaSource()
TOPIC_ID = "661db855-9547-41b1-9ef1-1e15e7bc6787"

names = st.text("abcXYZ019._-", min_size=1, max_size=12)
entries = st.builds(
    PartitionOffset,
    topic=names,
    topic_id=st.just(TOPIC_ID),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
offsets = st.lists(entries, max_size=8, unique_by=lambda entry: entry.key).map(
    lambda e: SourceOffset.of("kafka", e)
)


firsts = st.builds(
    lambda offset, known: replace(offset, begin=offset.partitions[:known]),
    offsets,
    st.integers(0, 8),
)
"""Ends of a source's first batch; of their partitions so many were known where it began."""


def offset_of(*positions: int, topic_id: str = TOPIC_ID, epoch: int = 0) -> SourceOffset:
    return SourceOffset.of(
        "kafka", [PartitionOffset("t", topic_id, i, at, epoch) for i, at in enumerate(positions)]
    )


def ends_of(*positions: int, epoch: int = 0) -> dict[Partition, LogEnd]:
    return {Partition("t", i): LogEnd(at, epoch) for i, at in enumerate(positions)}


def positions(offset: SourceOffset) -> list[int]:
    return [entry.offset for entry in offset.partitions or ()]


def test_the_initial_offset_is_a_constant() -> None:
    assert to_json(SourceOffset.initial("kafka")) == {
        "version": 1,
        "source": "kafka",
        "partitions": None,
        "begin": None,
        "released": [],
    }


@given(offsets | firsts)
def test_a_line_reads_back_as_the_same_offset_and_the_same_line(offset: SourceOffset) -> None:
    assert SourceOffset.parse(offset.to_line()) == offset
    assert SourceOffset.parse(offset.to_line()).to_line() == offset.to_line()
    # Spark's runner hands over what json.loads makes of the line and writes what json.dumps
    # makes of the answer.
    assert json.dumps(to_json(SourceOffset.parse(json.loads(offset.to_line())))) == offset.to_line()


@given(offsets)
def test_the_state_has_one_entry_a_partition_and_rebuilds_the_line(offset: SourceOffset) -> None:
    found = SOURCE.entries(offset.to_line())
    assert len(found) == len(offset.partitions or ())
    assert SOURCE.start_line("kafka", [*reversed(found)]) == offset.to_line()


@given(firsts)
def test_the_state_does_not_say_where_the_source_began(offset: SourceOffset) -> None:
    found = SOURCE.entries(offset.to_line())
    assert SOURCE.start_line("kafka", found) == replace(offset, begin=None).to_line()


def test_before_the_start_is_resolved_there_is_no_state() -> None:
    assert SOURCE.entries(SourceOffset.initial("kafka").to_line()) == []


@pytest.mark.parametrize("entries", [[], [PartitionOffset("orders", "a", 0, 5)]])
def test_a_source_has_begun_once_its_start_is_resolved_also_to_no_partition(
    entries: list[PartitionOffset],
) -> None:
    assert not SourceOffset.initial("kafka").has_begun
    assert SourceOffset.of("kafka", entries).has_begun


def test_partitions_are_sorted_by_topic_and_number() -> None:
    listed = [
        PartitionOffset(topic, TOPIC_ID, number, 0)
        for topic, number in [("b", 0), ("a", 10), ("a", 2)]
    ]
    assert [str(entry.key) for entry in SourceOffset.of("kafka", listed).partitions or ()] == [
        "a-2",
        "a-10",
        "b-0",
    ]


GOOD = to_json(offset_of(5))
ENTRY = GOOD["partitions"][0]


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        {**GOOD, "version": 0},
        {**GOOD, "version": True},
        {key: value for key, value in GOOD.items() if key != "begin"},
        {**GOOD, "version": "1"},
        {**GOOD, "source": 7},
        {**GOOD, "more": 1},
        {**GOOD, "partitions": {}},
        {**GOOD, "partitions": [ENTRY, ENTRY]},
        {**GOOD, "partitions": [{**ENTRY, "offset": -1}]},
        {**GOOD, "partitions": [{**ENTRY, "offset": "5"}]},
        {**GOOD, "partitions": [{**ENTRY, "offset": 5.0}]},
        {**GOOD, "partitions": [{**ENTRY, "offset": True}]},
        {**GOOD, "partitions": [{**ENTRY, "topic": None}]},
        {**GOOD, "partitions": [{**ENTRY, "extra": 1}]},
        {**GOOD, "partitions": [{key: value for key, value in ENTRY.items() if key != "topic_id"}]},
        {**GOOD, "partitions": [7]},
        {**GOOD, "begin": 7},
        {**GOOD, "begin": [ENTRY, ENTRY]},
        {**GOOD, "begin": [{**ENTRY, "partition": 1}]},
        {**GOOD, "partitions": None, "begin": []},
    ],
    ids=str,
)
def test_a_damaged_offset_is_refused(damaged: object) -> None:
    with pytest.raises(CorruptRecordError):
        SourceOffset.parse(damaged)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{}, {"partitions": "0:5"}, {"epochs": []}], ids=str)
def test_an_offset_of_a_newer_version_is_refused_by_its_version(more: dict[str, object]) -> None:
    line = json.dumps({**GOOD, "version": 2, **more})
    with pytest.raises(NewerFormatError) as caught:
        SourceOffset.parse(line)
    assert (
        "Kafka source 'kafka' was written by a newer twophase (format 2; this one reads up to 1)"
    ) in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        '{"version": 2, "snapshot_id": 7, "position": 0}',
        '{"version": 7, "source": "api", "page": 3}',
    ],
)
def test_the_version_of_another_source_s_offset_is_its_own(line: str) -> None:
    assert first_line(line) is None


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(CorruptRecordError):
        SourceOffset.parse(text)


def test_without_limits_a_batch_reads_to_the_end() -> None:
    assert positions(advance(offset_of(1, 5), ends_of(10, 5), Limits())) == [10, 5]


def test_nothing_new_gives_the_same_object() -> None:
    start = offset_of(10, 5)
    assert advance(start, ends_of(10, 5), Limits()) is start


def test_a_partition_without_an_end_stays() -> None:
    start = offset_of(1, 1)
    assert positions(advance(start, {Partition("t", 1): LogEnd(4)}, Limits())) == [1, 4]


def test_the_epoch_is_recorded_only_where_the_offset_moves() -> None:
    end = advance(offset_of(1, 5, epoch=3), ends_of(10, 5, epoch=4), Limits())
    assert [entry.leader_epoch for entry in end.partitions or ()] == [4, 3]


def test_the_limit_for_a_partition_holds_for_each() -> None:
    assert positions(advance(offset_of(0, 0, 0), ends_of(100, 7, 0), Limits(per_partition=10))) == [
        10,
        7,
        0,
    ]


def test_the_limit_for_a_trigger_is_shared_by_lag() -> None:
    assert positions(advance(offset_of(0, 0), ends_of(900, 100), Limits(per_trigger=100))) == [
        90,
        10,
    ]


def test_both_limits_together() -> None:
    limits = Limits(per_trigger=12, per_partition=10)
    assert positions(advance(offset_of(0, 0), ends_of(1000, 5), limits)) == [8, 4]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 10**12))
def test_shares_use_the_budget_up_and_exceed_nothing(wanted: list[int], budget: int) -> None:
    shares = share(wanted, budget)
    assert sum(shares) == min(budget, sum(wanted))
    assert all(0 <= got <= want for got, want in zip(shares, wanted, strict=True))
    if budget >= len(wanted):
        assert all(got for got, want in zip(shares, wanted, strict=True) if want), "nobody starves"


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=5), st.integers(5, 700), st.integers(5, 400)
)
def test_repeated_batches_reach_the_end_without_gap_or_overlap(
    lags: list[int], trigger: int, partition: int
) -> None:
    offset, ends = offset_of(*[0] * len(lags)), ends_of(*lags)
    read = [0] * len(lags)
    for _ in range(1000):
        following = advance(offset, ends, Limits(trigger, partition))
        if following is offset:
            break
        for item in ranges(offset, following):
            assert item.start == read[item.partition]
            read[item.partition] = item.end
        offset = following
    assert read == lags


def test_the_first_batch_is_planned_from_where_its_end_says_that_it_began() -> None:
    end = replace(offset_of(5, 6), begin=offset_of(5, 2).partitions)
    assert [str(item) for item in ranges(SourceOffset.initial("kafka"), end)] == ["t-1:2 to 6"]
    assert ranges(offset_of(5, 6), end) == [], "a batch that begins at an offset begins there"
    with pytest.raises(OffsetMismatchError):
        ranges(SourceOffset.initial("another"), end)


def test_a_first_batch_whose_end_does_not_say_where_it_began_has_no_records() -> None:
    """As releases up to now have planned it: empty."""
    assert ranges(SourceOffset.initial("kafka"), offset_of(5, 6)) == []


def test_the_line_of_a_source_s_beginning_is_found_in_the_end_of_its_first_batch() -> None:
    end = replace(offset_of(5, 6), begin=offset_of(5, 2).partitions)
    assert first_line(end.to_line()) == offset_of(5, 2).to_line()
    for other in (
        None,
        "",
        '{"t":{"0":5}}',
        '{"logOffset":3}',
        "17",
        offset_of(5).to_line(),
        SourceOffset.initial("kafka").to_line(),
    ):
        assert first_line(other) is None


def test_a_partition_that_enters_the_list_is_not_read_yet() -> None:
    assert [str(item) for item in ranges(offset_of(5), offset_of(9, 3))] == ["t-0:5 to 9"]


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_split_ranges_cover_exactly_the_range(length: int, tasks: int) -> None:
    pieces = ranges(offset_of(100), offset_of(100 + length), min_tasks=tasks)
    assert len(pieces) >= min(tasks, length)
    assert [pieces[0].start, pieces[-1].end] == [100, 100 + length]
    assert all(before.end == after.start for before, after in itertools.pairwise(pieces))
    assert all(piece.end > piece.start for piece in pieces)


def test_a_batch_never_reads_backwards() -> None:
    with pytest.raises(OffsetMismatchError, match="backwards, from 5 to 4"):
        ranges(offset_of(5), offset_of(4))


def test_a_batch_never_loses_a_partition() -> None:
    with pytest.raises(OffsetMismatchError):
        ranges(offset_of(5, 5), offset_of(6))


def test_a_batch_never_spans_two_creations_of_a_topic() -> None:
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        ranges(offset_of(5), offset_of(6, topic_id="other"))

"""Sources keep their offsets by uid when the plan around them changes, and two with one uid are
refused where a lineage begins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from twophase.contract.source import SourceLeg
from twophase.errors import ConfigError
from twophase.ids import Attempt
from twophase.options.job_options import JobOptions
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets

LINEAGE = "11111111-2222-3333-4444-555555555555"


def kafka(uid: str | None, topic: str, key: str = "uid") -> SourceLeg:
    return SourceLeg("twophase-kafka", {"subscribe": topic} | ({key: uid} if uid else {}))


def line(uid: str, topic: str) -> str:
    return SourceOffset(uid, (PartitionOffset(topic, "id-1", 0, 7, 3),)).to_line()


A, B, RATE = kafka("a", "orders"), kafka("b", "payments"), SourceLeg("rate", {})
LINES = {"a": line("a", "orders"), "b": line("b", "payments"), "rate": '{"value":3}'}


def taken(legs: Sequence[SourceLeg], *lines: str) -> CompletedCheckpoint:
    """A checkpoint of a job with these sources."""
    offsets = FrozenOffsets((None,) * len(lines), lines)
    states = OperatorStates(legs, {}).snapshot(3, offsets)
    return CompletedCheckpoint("orders", LINEAGE, 3, Attempt(1, 4), 0, offsets, **states)


def restored(checkpoint: CompletedCheckpoint, *legs: SourceLeg, **options: Any) -> Any:
    parsed = JobOptions.parse({"checkpointLocation": "/chk/orders", **options}, "job")
    return OperatorStates(legs, {}).start_offsets(checkpoint, parsed)


OPTIONS = JobOptions.parse({"checkpointLocation": "/chk/orders"}, "job")
BOTH = taken([A, RATE, B], LINES["a"], LINES["rate"], LINES["b"])


@pytest.mark.parametrize("legs", [[A, RATE, B], [B, A, RATE], [RATE, B, A]])
def test_sources_in_another_order_keep_their_offsets(legs: list[SourceLeg]) -> None:
    by_leg = [(A, LINES["a"]), (B, LINES["b"]), (RATE, LINES["rate"])]
    assert restored(BOTH, *legs) == tuple(
        text for leg in legs for one, text in by_leg if one is leg
    )


def test_a_source_that_is_new_begins_at_its_start() -> None:
    new = kafka("c", "returns")
    assert restored(BOTH, new, A, RATE, B) == (None, LINES["a"], LINES["rate"], LINES["b"])


def test_a_source_that_is_gone_or_renamed_is_refused_by_its_uid() -> None:
    with pytest.raises(ConfigError, match="has no place for: source 'b' of twophase-kafka"):
        restored(BOTH, A, RATE)
    with pytest.raises(ConfigError, match="source 'b' of twophase-kafka"):
        restored(BOTH, A, RATE, kafka("renamed", "payments"))
    with pytest.raises(ConfigError, match="a source of rate"):
        restored(BOTH, A, B)


def test_it_is_dropped_where_it_may_be_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    found = restored(BOTH, A, RATE, **{"restore.allow_non_restored_state": True})
    assert found == (LINES["a"], LINES["rate"])
    assert "source 'b' of twophase-kafka" in caplog.text


def test_the_default_uid_and_its_case_are_those_of_the_options() -> None:
    checkpoint = taken([kafka(None, "orders")], line("kafka", "orders"))
    assert restored(checkpoint, kafka("kafka", "orders", key="UID")) == (line("kafka", "orders"),)


def test_sources_of_a_format_without_uids_are_taken_in_order() -> None:
    checkpoint = taken([RATE, RATE], '{"value":1}', '{"value":2}')
    assert restored(checkpoint, A, RATE, RATE) == (None, '{"value":1}', '{"value":2}')


def test_two_sources_with_one_uid_are_refused_where_a_lineage_begins() -> None:
    legs = [kafka("a", "orders"), kafka("a", "payments")]
    with pytest.raises(ConfigError, match="2 sources twophase-kafka of the job have the uid 'a'"):
        OperatorStates(legs, {}).check_uids()
    with pytest.raises(ConfigError, match="have the uid 'a'"):
        restored(taken([A], LINES["a"]), *legs)
    with pytest.raises(ConfigError) as caught:
        OperatorStates(legs, {}).check_uids()
    assert '.option("uid", ...)' in caught.value.remedy
    named = [kafka("a", "orders"), kafka("b", "payments")]
    OperatorStates(named, {}).check_uids()
    assert restored(taken([A], LINES["a"]), *named) == (LINES["a"], None)


def test_two_that_were_there_before_the_check_are_restored_in_order() -> None:
    legs = [kafka("a", "orders"), kafka("a", "payments")]
    lines = line("a", "orders"), line("a", "payments")
    assert restored(taken(legs, *lines), *legs) == lines


@pytest.mark.parametrize(
    ("legs", "same"),
    [([A, RATE, B], True), ([B, RATE, A], False), ([A, RATE], False), ([A, B, RATE], False)],
)
def test_spark_s_folder_goes_on_with_the_same_sources_in_the_same_order_only(
    legs: list[SourceLeg], same: bool
) -> None:
    """Its log has no uids: it would give a source the offsets of another."""
    assert OperatorStates(legs, {}).reads_same_sources(BOTH) is same


def test_a_source_that_is_read_twice_is_no_collision() -> None:
    OperatorStates([A, A], {}).check_uids()
    assert restored(taken([A, A], LINES["a"], LINES["a"]), A, A) == (LINES["a"], LINES["a"])


NORTH, SOUTH, MOVED = (SourceLeg(f"FileSource[/in/{name}]", {}) for name in ("n", "s", "new"))
FILES = taken([NORTH, SOUTH], '{"logOffset":1}', '{"logOffset":1}')


@pytest.mark.parametrize(
    ("checkpoint", "legs", "message"),
    [
        (FILES, [SOUTH, NORTH], r"FileSource\[/in/s\] would go on where FileSource\[/in/n\] is"),
        (FILES, [MOVED, NORTH], r"FileSource\[/in/n\] would go on where FileSource\[/in/s\] is"),
        (FILES, [SOUTH], r"FileSource\[/in/s\] would go on where FileSource\[/in/n\] is"),
        (BOTH, [B, RATE, A], r"source 'b' of twophase-kafka would go on where source 'a' of"),
    ],
    ids=["swapped", "moved by one", "the first one is gone", "with uids"],
)
def test_sources_that_have_changed_places_are_refused_with_their_old_order(
    checkpoint: CompletedCheckpoint, legs: list[SourceLeg], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        OperatorStates(legs, {}).check_plan(checkpoint, OPTIONS)
    order = [
        caught.value.remedy.find(f"{state.uid or state.format}") for state in checkpoint.sources
    ]
    assert -1 not in order
    assert order == sorted(order)


def spark_s(**options: str) -> SourceLeg:
    return SourceLeg("kafka", {"kafka.bootstrap.servers": "memory:1", **options})


def at(*topics: str) -> str:
    """A line of Spark's own Kafka source."""
    return json.dumps({topic: {"0": 7} for topic in topics})


ORDERS, PAYMENTS = spark_s(subscribe="orders"), spark_s(subscribePattern="pay.*")
RETURNS = spark_s(assign='{"returns":[0]}')
TOPICS = taken([ORDERS, PAYMENTS], at("orders"), at("payments"))


@pytest.mark.parametrize(
    ("legs", "message"),
    [
        ([PAYMENTS, ORDERS], r"kafka \(pay.*\) would go on where kafka \(orders\) is"),
        ([RETURNS, ORDERS, PAYMENTS], r"kafka \(orders\) would go on where kafka \(pay.*\) is"),
        (
            [PAYMENTS, spark_s(Subscribe="more, orders")],
            r"kafka \(pay.*\) would go on where kafka \(more, orders\) is",
        ),
    ],
    ids=["swapped", "moved by one", "swapped, and one reads more"],
)
def test_two_of_spark_s_kafka_sources_are_told_apart_by_their_topics(
    legs: list[SourceLeg], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        OperatorStates(legs, {}).check_plan(TOPICS, OPTIONS)
    first, second = (caught.value.remedy.find(name) for name in ("orders)", "(pay.*)"))
    assert -1 < first < second
    OperatorStates([ORDERS, PAYMENTS], {}).check_plan(TOPICS, OPTIONS)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"subscribe": "orders,more"}, {"subscribe": "payments"}),
        ({"subscribe": "orders"}, {"subscribe": "payments,orders"}),
        ({"subscribe": "other"}, {"subscribe": "payments"}),
        ({"subscribe": "payments"}, {"subscribe": "payments"}),
        ({"subscribePattern": "("}, {"subscribe": "payments"}),
        ({"subscribePattern": ".*"}, {"subscribe": "orders,payments"}),
        ({"assign": "("}, {"subscribe": "payments"}),
        ({}, {"subscribe": "payments"}),
    ],
    ids=["more", "both", "another", "gone", "not known", "all", "no JSON", "nothing"],
)
def test_a_topic_that_comes_or_goes_is_no_change_of_places(
    first: dict[str, str], second: dict[str, str]
) -> None:
    OperatorStates([spark_s(**first), spark_s(**second)], {}).check_plan(TOPICS, OPTIONS)


def test_two_that_read_the_same_topics_are_not_told_apart() -> None:
    legs = [spark_s(subscribe="orders", maxOffsetsPerTrigger=most) for most in ("1", "2")]
    both = taken(legs, at("orders"), at("orders"))
    OperatorStates([*reversed(legs)], {}).check_plan(both, OPTIONS)


def test_without_a_topic_fewer_they_have_not_changed_places() -> None:
    both = taken([ORDERS, PAYMENTS], at("orders", "more"), at("payments"))
    OperatorStates([ORDERS, PAYMENTS], {}).check_plan(both, OPTIONS)


@pytest.mark.parametrize(
    ("legs", "lines"),
    [
        ([PAYMENTS, ORDERS], ["payments", "orders"]),
        ([RETURNS, ORDERS], ["payments", "orders"]),
        ([PAYMENTS, RETURNS], ["payments", "orders"]),
    ],
    ids=["swapped", "another topic first", "another topic last"],
)
def test_what_is_restored_goes_to_the_source_of_its_topics_and_the_rest_by_order(
    legs: list[SourceLeg], lines: list[str]
) -> None:
    assert restored(TOPICS, *legs) == tuple(map(at, lines))


def test_before_the_first_checkpoint_spark_s_own_log_tells_them_apart(tmp_path: Path) -> None:
    for place, topic in enumerate(["orders", "payments"]):
        (tmp_path / "sources" / str(place)).mkdir(parents=True)
        (tmp_path / "sources" / str(place) / "0").write_text(f"\0v1\n{at(topic)}")
    for legs in ([ORDERS, PAYMENTS], [ORDERS, RETURNS], [RETURNS, PAYMENTS]):
        OperatorStates(legs, {}).check_logs("orders", tmp_path)
    with pytest.raises(ConfigError, match=r"kafka \(pay.*\) would go on where kafka \(orders\)"):
        OperatorStates([PAYMENTS, ORDERS], {}).check_logs("orders", tmp_path)


@pytest.mark.parametrize("legs", [[NORTH, SOUTH], [NORTH, MOVED], [MOVED, SOUTH], [NORTH]])
def test_a_source_that_is_new_in_its_place_may_be_the_old_one_by_another_name(
    legs: list[SourceLeg],
) -> None:
    OperatorStates(legs, {}).check_plan(FILES, OPTIONS)

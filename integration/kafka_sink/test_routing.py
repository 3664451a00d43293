"""Rows that name their topic are in it once they are committed, and in no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.kafka_sink.test_topics import committed, written
from twophase.contract.outcome import Committed, Lost
from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, DeclinedError, RejectedRowsError, TargetUnreachableError
from twophase.ids import Subtask
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.testing.harness import FIRST, JOB, SINK, fresh_name, transaction_id
from twophase.testing.services import KafkaService

ROWS = pa.schema([("id", pa.int64()), ("region", pa.string())])
RAW = pa.schema([("value", pa.string()), ("topic", pa.string())])
CONTEXT = SinkContext(JOB, SINK, ROWS, parallelism=2)


@pytest.fixture(params=["transaction", "staged"])
def harness(topics: Topics, request: pytest.FixtureRequest) -> KafkaHarness:
    return KafkaHarness(
        topics,
        protocol=request.param,
        topic_column="region",
        other_topics=[topics.create(1, fresh_name(region)) for region in ("eu", "us")],
    )


def opened(harness: KafkaHarness, context: SinkContext = CONTEXT, **options: Any) -> OpenKafkaSink:
    sink = harness.new_sink(**options).open(context)
    sink.fence(FIRST)
    return sink


@pytest.fixture
def sink(harness: KafkaHarness) -> Iterator[OpenKafkaSink]:
    with closing(opened(harness)) as made:
        yield made


def routed(*places: str | None) -> list[dict[str, Any]]:
    """Rows that name these topics, numbered from 0."""
    return [{"id": number, "region": place} for number, place in enumerate(places)]


def ids_in(harness: KafkaHarness, topic: str) -> list[int]:
    return [json.loads(one.value() or b"")["id"] for one in harness.topics.records(topic)]


def test_each_row_is_in_the_topic_that_it_names(harness: KafkaHarness, sink: OpenKafkaSink) -> None:
    eu, us = harness.options["other_topics"]
    piece = written(sink, routed(eu, us, None, harness.topic, eu), ROWS)
    assert [ids_in(harness, name) for name in (harness.topic, eu, us)] == [[], [], []]
    assert committed(sink, piece) == Committed()
    assert [sorted(ids_in(harness, name)) for name in (harness.topic, eu, us)] == [
        [2, 3],
        [0, 4],
        [1],
    ]


def test_an_empty_name_is_no_topic(sink: OpenKafkaSink) -> None:
    with pytest.raises(RejectedRowsError, match="Row 1 of a task names the topic ''"):
        written(sink, routed(""), ROWS)


def test_a_topic_that_is_not_the_sink_s_is_rejected_before_the_decision(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    with pytest.raises(
        RejectedRowsError, match=r"Row 2 of a task names the topic 'nowhere'"
    ) as why:
        written(sink, routed(None, "nowhere"), ROWS)
    assert "other_topics" in why.value.remedy
    nowhere = harness.topics.create(1, fresh_name("nowhere"))
    more = [*harness.options["other_topics"], nowhere]
    with closing(opened(harness, other_topics=more)) as wider:
        piece = written(wider, routed(None, nowhere), ROWS)
        assert committed(wider, piece) == Committed()
    assert ids_in(harness, nowhere) == [1]


def test_what_waits_is_committed_by_a_sink_that_has_the_topic_no_more(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    eu, us = harness.options["other_topics"]
    piece = written(sink, routed(eu, us), ROWS)
    with closing(opened(harness, other_topics=[us])) as narrower:
        assert committed(narrower, piece) == Committed()
    assert (ids_in(harness, eu), ids_in(harness, us)) == ([0], [1])


@pytest.fixture
def of_transactions(harness: KafkaHarness) -> KafkaHarness:
    if harness.options["protocol"] != "transaction":
        pytest.skip("staged rows are not in the topics yet")
    return harness


@pytest.mark.parametrize("is_made_again", [True, False])
def test_rows_in_a_topic_that_was_deleted_are_lost_and_those_of_other_pieces_are_not(
    of_transactions: KafkaHarness, is_made_again: bool
) -> None:
    harness, (eu, us) = of_transactions, of_transactions.options["other_topics"]
    with closing(opened(harness, CONTEXT, **{"request.timeout": "2 s"})) as sink:
        waiting = written(sink, routed(None, eu), ROWS)
        beside = written(sink, routed(us), ROWS, 1)
        if is_made_again:
            harness.topics.recreate(eu, 1)
        else:
            harness.topics.delete(eu)
        found = committed(sink, waiting)
        assert isinstance(found, Lost)
        assert f"topics that were deleted since: '{eu}'" in found.evidence
        assert committed(sink, beside) == Committed()
        sink.abort([waiting])
    assert ids_in(harness, harness.topic) == []
    assert ids_in(harness, us) == [0]


def test_a_topic_that_was_created_again_is_written_to_by_the_next_checkpoint(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    """Nothing has waited for the old one."""
    eu, _ = harness.options["other_topics"]
    assert committed(sink, written(sink, routed(None, eu), ROWS)) == Committed()
    harness.topics.recreate(eu, 1)
    assert committed(sink, written(sink, routed(None, eu), ROWS, 1)) == Committed()
    assert (ids_in(harness, harness.topic), ids_in(harness, eu)) == ([0, 0], [1])


def test_staged_rows_are_copied_to_a_topic_that_was_created_again(topics: Topics) -> None:
    eu = topics.create(1, fresh_name("eu"))
    harness = KafkaHarness(topics, protocol="staged", topic_column="region", other_topics=[eu])
    with closing(opened(harness)) as sink:
        waiting = written(sink, routed(None, eu), ROWS)
        topics.recreate(eu, 1)
        assert committed(sink, waiting) == Committed()
    assert (ids_in(harness, harness.topic), ids_in(harness, eu)) == ([0], [1])


def test_a_topic_that_is_deleted_under_a_job_is_named_and_not_created(topics: Topics) -> None:
    """Also by brokers that create each topic that a client asks for."""
    with (
        KafkaService(own=True, settings={"auto.create.topics.enable": "true"}) as broker,
        Topics(broker.bootstrap_servers) as eager,
    ):
        eu = eager.create(1, fresh_name("eu"))
        harness = KafkaHarness(eager, topic_column="region", other_topics=[eu])
        with closing(opened(harness, transaction_timeout="10 s")) as sink:
            writer = sink.writers()(transaction_id(), Subtask(0, 0))
            eager.delete(eu)
            writer.write(pa.RecordBatch.from_pylist(routed(eu), schema=ROWS))
            with pytest.raises(DeclinedError, match=f"could not be written to topic '{eu}'"):
                writer.pre_commit()
            writer.abort()
            with pytest.raises(TargetUnreachableError, match=f"{eu}.* not exist any more") as why:
                sink.writers()
            assert eu not in eager.admin.list_topics()
            eager.create(1, eu)
            assert "create it again" in why.value.remedy
            assert committed(sink, written(sink, routed(eu), ROWS, 1)) == Committed()


@pytest.mark.parametrize("option", ["topic", "other_topics"])
def test_a_topic_that_does_not_exist_is_named_with_its_option(
    harness: KafkaHarness, option: str
) -> None:
    missing = fresh_name("missing")
    given: dict[str, Any] = {option: missing if option == "topic" else [missing]}
    with pytest.raises(ConfigError, match=missing) as caught:
        harness.new_sink(**given).check_connection()
    assert caught.value.remedy == f"create it, or correct the option {option}."
    harness.new_sink().check_connection()
    harness.topics.create(1, missing)
    harness.new_sink(**given).check_connection()


def test_rows_that_are_records_name_it_in_the_column_topic(topics: Topics) -> None:
    other = topics.create(1, fresh_name("other"))
    harness = KafkaHarness(topics, format="raw", other_topics=[other])
    context = SinkContext(JOB, SINK, RAW, parallelism=1)
    with closing(opened(harness, context)) as sink:
        rows: list[dict[str, Any]] = [{"value": "a", "topic": other}, {"value": "b", "topic": None}]
        assert committed(sink, written(sink, rows, RAW)) == Committed()
    assert [one.value() for one in topics.records(other)] == [b"a"]
    assert [one.value() for one in topics.records(harness.topic)] == [b"b"]


def test_each_topic_has_limits_of_its_own(topics: Topics) -> None:
    small = topics.create(1, fresh_name("small"), {"max.message.bytes": "1000"})
    harness = KafkaHarness(topics, protocol="staged", format="raw", other_topics=[small])
    context = SinkContext(JOB, SINK, RAW, parallelism=1)
    with closing(opened(harness, context)) as sink:
        large: dict[str, Any] = {"value": "x" * 2_000, "topic": None}
        with pytest.raises(RejectedRowsError, match=f"topic '{small}'.*too large"):
            written(sink, [large, large | {"topic": small}], RAW)
        assert committed(sink, written(sink, [large], RAW)) == Committed()

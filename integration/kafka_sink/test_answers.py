"""Errors that a broker answers with: each says what it means and what to do, which helps, or is
waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from integration.kafka.topics import Topics
from twophase.errors import TargetUnreachableError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.testing.harness import fresh_name

pytestmark = pytest.mark.server

PATIENCE_S = 60


@pytest.fixture
def brokers(topics: Topics) -> Iterator[Brokers]:
    given = {"kafka.bootstrap.servers": topics.servers, "topic": "rows"}
    with closing(Brokers(KafkaSinkOptions.parse(given))) as made:
        yield made


def test_more_replicas_than_brokers_are_told_from_brokers_that_are_not_there(
    topics: Topics, brokers: Brokers
) -> None:
    name = fresh_name("ledger")
    with pytest.raises(TargetUnreachableError, match="fewer brokers than replicas") as caught:
        brokers.create(name, 2, {}, replicas=3)
    assert f"answers creation of topic {name} with an error" in str(caught.value)
    assert "create the topic with as many replicas as there are brokers" in caught.value.remedy
    topics.create(2, name)
    brokers.create(name, 2, {}, replicas=3)


def test_settings_that_the_cluster_does_not_allow_are_named(
    topics: Topics, brokers: Brokers
) -> None:
    name, forbidden = fresh_name("ledger"), {"min.insync.replicas": "0"}
    with pytest.raises(TargetUnreachableError, match="the cluster does not allow it") as caught:
        brokers.create(name, 2, forbidden, replicas=1)
    assert "min.insync.replicas" in str(caught.value)
    assert "create the topic with what the cluster allows" in caught.value.remedy
    topics.create(2, name)
    brokers.create(name, 2, forbidden, replicas=1)


def test_any_other_error_has_the_broker_s_words(brokers: Brokers) -> None:
    with pytest.raises(TargetUnreachableError, match="InvalidTopicError") as caught:
        brokers.create("no topic's name", 1, {}, replicas=1)
    assert "did not answer" not in str(caught.value)
    assert caught.value.remedy.startswith("correct what this error names")
    brokers.create(fresh_name("name"), 1, {}, replicas=1)


def test_a_topic_that_the_broker_has_not_heard_of_yet_is_waited_for(
    topics: Topics, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was created through another broker of a cluster."""
    name, asked = fresh_name("topic"), threading.Event()
    monkeypatch.setattr(brokers._cluster, "_look_again", lambda *_: asked.set())
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(brokers.replicas, name)
        assert asked.wait(PATIENCE_S)
        topics.create(2, name)
        assert found.result(PATIENCE_S) == {name: 1}

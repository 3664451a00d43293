"""What is said of each kind of error that kafka-python raises."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from kafka import errors as kafka_errors

from twophase.errors import SourceUnavailableError
from twophase.kafka_client.access import is_answer, meaning
from twophase.kafka_client.client import BrokerClient
from twophase.kafka_client.options import ConnectionOptions

ALL = [
    kind
    for _, kind in inspect.getmembers(kafka_errors, inspect.isclass)
    if issubclass(kind, kafka_errors.KafkaError)
]
OPTIONS = ConnectionOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    ("error", "means", "remedy"),
    [
        (kafka_errors.CoordinatorNotAvailableError(), "no broker coordinates", "start the brokers"),
        (kafka_errors.NotCoordinatorError(), "no broker coordinates", "`__transaction_state`"),
        (kafka_errors.UnknownBrokerIdError(-1), "has no leader now", "that have its replicas"),
        (kafka_errors.NotLeaderForPartitionError(), "has no leader now", "that have its replicas"),
        (kafka_errors.NotEnoughReplicasError(), "min.insync.replicas", "the other replicas"),
        (kafka_errors.KafkaStorageError(), "cannot use its disk", "log.dirs"),
        (kafka_errors.InvalidReplicationFactorError(), "fewer brokers", "start the other brokers"),
        (kafka_errors.PolicyViolationError("no"), "does not allow it: .*no", "create the topic"),
        (kafka_errors.InvalidConfigurationError(), "does not allow it", "create the topic"),
        (kafka_errors.UnsupportedVersionError(), "are too old", "3.0 or newer to write to"),
        (kafka_errors.IncompatibleBrokerVersion(), "are too old", "2.8 or newer to read from"),
        (kafka_errors.UnknownError("words"), "UnknownError: words", "this error names"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_an_answer_says_what_it_means_and_not_that_there_was_none(
    error: kafka_errors.KafkaError, means: str, remedy: str
) -> None:
    client = Answering(error)
    with pytest.raises(
        SourceUnavailableError, match=f"answers a question with .*{means}"
    ) as caught:
        client.call("a question", lambda _: None)
    assert "did not answer" not in str(caught.value)
    assert remedy in caught.value.remedy


class Answering(BrokerClient):
    """Each request ends with an error, and none is tried again."""

    def __init__(self, error: kafka_errors.KafkaError) -> None:
        super().__init__(OPTIONS)
        self._error = error

    def call(self, what: str, call: Any) -> Any:
        raise self._without_answer(what, self._error)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_of_all_kinds_those_of_brokers_are_answers(kind: type[kafka_errors.KafkaError]) -> None:
    error = kind("its text")
    told_by_broker = issubclass(kind, kafka_errors.BrokerResponseError) and kind not in {
        kafka_errors.RequestTimedOutError,
        kafka_errors.NetworkExceptionError,
    }
    assert is_answer(error) is (told_by_broker or kind is kafka_errors.UnrecognizedBrokerVersion)
    means, remedy = meaning(error)
    assert "its text" in means
    assert remedy


def test_a_long_answer_is_cut() -> None:
    means, _ = meaning(kafka_errors.UnknownError("word " * 1000))
    assert len(means) < 500

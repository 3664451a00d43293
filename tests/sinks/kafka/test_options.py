"""Options of the Kafka sink, and the secrets that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.errors import ConfigError
from twophase.sinks.kafka import KafkaSink

GIVEN = {"kafka.bootstrap.servers": "nowhere.invalid:1", "topic": "orders"}
ACCOUNT = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "app",
}


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ({"kafka.sasl.password.env": "NOT_SET_ANYWHERE"}, "which is not set"),
        ({"kafka.sasl.password.file": "/nowhere/password"}, "cannot be read"),
    ],
)
def test_a_secret_that_is_not_there_is_the_sink_s(secret: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        KafkaSink(**GIVEN, **ACCOUNT, **secret).check_connection()
    assert str(caught.value).startswith("KafkaSink: option 'kafka.sasl.password.")


def test_an_empty_file_is_no_password(tmp_path: Path) -> None:
    (tmp_path / "password").touch()
    sink = KafkaSink(**GIVEN, **ACCOUNT, **{"kafka.sasl.password.file": str(tmp_path / "password")})
    with pytest.raises(ConfigError, match="which is empty"):
        sink.check_connection()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "a/b"}, "topic"),
        ({"ledger": "orders"}, "the same topic"),
        ({"format": "raw", "key": "customer"}, "key goes with format=json"),
        ({"transaction_timeout": "5 s"}, "transaction_timeout"),
        ({"other_topics": "a,b/c", "topic_column": "x"}, "other_topics"),
        ({"other_topics": "a,orders", "topic_column": "x"}, "name a topic twice"),
        ({"other_topics": "twophase-ledger", "topic_column": "x"}, "the same topic"),
        ({"other_topics": "a"}, "other_topics and topic_column go together"),
        ({"topic_column": "x"}, "other_topics and topic_column go together"),
        ({"format": "raw", "other_topics": "a", "topic_column": "x"}, "goes with format=json"),
        ({"acks": "1"}, "acks"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        KafkaSink(**(GIVEN | options))

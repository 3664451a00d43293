"""The Kafka sink over TLS with a password: right is written and committed, anything else is refused
by name before the first row, and no secret is anywhere.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from harness.one_sink_job import OneSinkJob
from integration.kafka.secure_broker import PASSWORD, USER, SecureKafka
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    DeclinedError,
    PreflightError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.events import CheckpointTriggered
from twophase.ids import Subtask
from twophase.sinks.kafka.brokers import RIGHTS
from twophase.sinks.kafka.staging import STAGING_RIGHTS
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import JOB, SINK, transaction_id

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]


class TestASinkWithAPassword(ContractBase):
    @pytest.fixture
    def password(self, tmp_path: Path) -> Path:
        path = tmp_path / "password"
        path.write_text(PASSWORD)
        return path

    @pytest.fixture
    def harness(self, broker: SecureKafka, plain: Topics, password: Path) -> KafkaHarness:
        options = {
            "kafka.bootstrap.servers": broker.sasl,
            "request.timeout": "5 s",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": str(broker.ca),
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": USER,
            "kafka.sasl.password.file": str(password),
        }
        return KafkaHarness(plain, **options)

    def refused(self, harness: KafkaHarness, **options: Any) -> TwoPhaseError:
        """The error of a start, without the password in it."""
        with pytest.raises(PreflightError) as caught:
            harness.opened(**options)
        assert PASSWORD not in str(caught.value)
        return caught.value

    @pytest.mark.parametrize("protocol", ["transaction", "staged"])
    def test_writes_and_commits(self, harness: KafkaHarness, protocol: str) -> None:
        harness.options["protocol"] = protocol
        sink = harness.opened()
        pieces = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        assert self.commit(sink, pieces) == [Committed()]
        assert self.ids_visible() == [1, 2]
        assert PASSWORD not in repr((pieces, sink.target(), harness.contents()))
        sink.close()

    def test_a_wrong_password_is_refused_at_the_start_and_the_remedy_helps(
        self, harness: KafkaHarness, password: Path
    ) -> None:
        password.write_text("wrong")
        found = self.refused(harness, **{"request.timeout": "30 s"})
        assert "check user, password and ACLs" in found.remedy
        password.write_text(PASSWORD)
        harness.opened().close()

    def test_a_wrong_password_of_an_open_sink_is_waited_for(
        self, harness: KafkaHarness, password: Path
    ) -> None:
        """It was replaced on the broker first: new connections of driver and ledger fail."""
        sink = harness.opened()
        [piece] = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        password.write_text("wrong")
        sink._brokers.close()
        with pytest.raises(TargetUnreachableError) as caught:
            sink.commit([CommitRequest(piece)])
        assert "reads passwords and PEM files again" in caught.value.remedy
        assert "Kafka aborts it in" in caught.value.what
        password.unlink()
        with pytest.raises(TargetUnreachableError, match="cannot be read"):
            sink.commit([CommitRequest(piece)])
        password.write_text(PASSWORD)
        assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]
        sink.close()

    @pytest.mark.parametrize("protocol", ["transaction", "staged"])
    def test_a_password_that_a_task_cannot_read_declines_its_attempt_and_the_next_one_writes(
        self, harness: KafkaHarness, password: Path, protocol: str
    ) -> None:
        """It is being replaced."""
        harness.options["protocol"] = protocol
        with closing(harness.opened()) as sink:
            writer = sink.writers()(transaction_id(), Subtask(0, 0))
            password.unlink()
            with pytest.raises(DeclinedError, match="cannot be read") as caught:
                pre_committed(writer, self.batch([1]))
            writer.abort()
            assert "reads passwords and PEM files again" in caught.value.remedy
            password.write_text(PASSWORD)
            pieces = self.prepare(sink, [1, 2], transaction_id(1), Subtask(0, 0))
            assert self.commit(sink, pieces) == [Committed()]
        assert self.ids_visible() == [1, 2]

    @pytest.mark.parametrize("of", ["topic", "ledger"])
    def test_a_right_that_is_taken_under_a_job_is_named_and_given_again_it_goes_on(
        self, harness: KafkaHarness, plain: Topics, of: str
    ) -> None:
        with closing(harness.opened()) as sink:
            writer = sink.writers()(transaction_id(), Subtask(0, 0))
            rules = all_but(harness, of, "WRITE")
            plain.admin.create_acls(rules)
            wait_for(plain, rules, there=True)
            with pytest.raises(DeclinedError, match="Topic authorization failed") as caught:
                pre_committed(writer, self.batch([1]))
            writer.abort()
            assert "that the account may write to topic, ledger" in caught.value.remedy
            assert caught.value.fingerprint == "TOPIC_AUTHORIZATION_FAILED"
            plain.admin.delete_acls(rules)
            wait_for(plain, rules, there=False)
            pieces = self.prepare(sink, [1, 2], transaction_id(1), Subtask(0, 0))
            assert self.commit(sink, pieces) == [Committed()]
        assert self.ids_visible() == [1, 2]

    @pytest.mark.proof
    def test_a_right_that_stays_away_ends_the_job_and_given_again_it_goes_on(
        self, harness: KafkaHarness, plain: Topics, tmp_path: Path
    ) -> None:
        rules = all_but(harness, "topic", "WRITE")

        def take() -> None:
            plain.admin.create_acls(rules)
            wait_for(plain, rules, there=True)

        batches = [[harness.rows([1])]]
        job = OneSinkJob(harness, tmp_path / "job", batches)
        job.on(CheckpointTriggered, take)
        error = job.run_until_repeated()
        assert "Topic authorization failed" in error.what
        assert "that the account may write to topic, ledger" in error.remedy
        assert self.ids_visible() == []
        plain.admin.delete_acls(rules)
        wait_for(plain, rules, there=False)
        assert OneSinkJob(harness, tmp_path / "job", batches).run() is None
        assert self.ids_visible() == [1]

    @pytest.mark.parametrize("of", ["topic", "staging"])
    def test_settings_that_a_repair_may_not_read_are_named_and_each_remedy_helps(
        self, harness: KafkaHarness, plain: Topics, of: str
    ) -> None:
        """It opens the sink without rows to come, and checks no rights."""
        harness.options["protocol"] = "staged"
        harness.opened().close()
        rules = all_but(harness, of, "DESCRIBE_CONFIGS")
        plain.admin.create_acls(rules)
        wait_for(plain, rules, there=True)
        repair = SinkContext(JOB, SINK, None, parallelism=0)
        name = {"topic": harness.topic, "staging": harness.staging}[of]
        with pytest.raises(PreflightError, match=f"settings of topic '{name}' cannot be") as caught:
            harness.new_sink().open(repair)
        assert "give the account the right to DESCRIBE_CONFIGS of it" in caught.value.remedy
        if of == "topic":
            assert caught.value.remedy.endswith("or set `protocol=transaction`.")
            harness.new_sink(protocol="transaction").open(repair).close()
        plain.admin.delete_acls(rules)
        wait_for(plain, rules, there=False)
        harness.new_sink().open(repair).close()

    def test_another_authority_is_refused(self, harness: KafkaHarness, broker: SecureKafka) -> None:
        found = self.refused(harness, **{"kafka.ssl.ca.location": str(broker.other_ca)})
        assert "certificate verify failed" in found.what
        assert "kafka.ssl.ca.location" in found.remedy

    @pytest.mark.parametrize(
        ("protocol", "of", "right"),
        [
            *(
                ("transaction", *one)
                for one in [
                    ("topic", "WRITE"),
                    ("ledger", "READ"),
                    ("ledger", "WRITE"),
                    ("transactions", "WRITE"),
                ]
            ),
            ("staged", "topic", "DESCRIBE_CONFIGS"),
            *(("staged", "staging", right) for right in STAGING_RIGHTS),
        ],
    )
    def test_a_missing_right_is_named_before_the_first_row_and_given_it_works(
        self, harness: KafkaHarness, plain: Topics, protocol: str, of: str, right: str
    ) -> None:
        harness.options["protocol"] = protocol
        harness.opened().close()
        rules = all_but(harness, of, right)
        plain.admin.create_acls(rules)
        wait_for(plain, rules, there=True)
        found = self.refused(harness)
        name = {
            "topic": f"no right to {right} topic {harness.topic!r}",
            "ledger": f"no right to {right} topic {harness.ledger!r}",
            "staging": f"no right to {right} topic {harness.staging!r}",
            "transactions": f"transaction twophase/{harness.topic}/{JOB}/{SINK}/",
        }[of]
        assert name in found.what
        assert found.remedy == RIGHTS
        assert self.ids_visible() == []
        look = harness.new_sink().check_connection
        if of in ("topic", "ledger"):  # the other names have those of job and sink in them
            with pytest.raises(PreflightError, match=re.escape(name)):
                look()
        else:
            look()
        plain.admin.delete_acls(rules)
        wait_for(plain, rules, there=False)
        harness.opened().close()


def pre_committed(writer: SinkWriter, batch: pa.RecordBatch) -> None:
    writer.write(batch)
    writer.pre_commit()


def all_but(harness: KafkaHarness, of: str, right: str) -> list[ACL]:
    """Rules that give the account all rights on something, but one."""
    resource = {
        "topic": ResourcePattern(ResourceType.TOPIC, harness.topic),
        "ledger": ResourcePattern(ResourceType.TOPIC, harness.ledger),
        "staging": ResourcePattern(ResourceType.TOPIC, harness.staging),
        "transactions": ResourcePattern(
            ResourceType.TRANSACTIONAL_ID,
            f"twophase/{harness.topic}/",
            ACLResourcePatternType.PREFIXED,
        ),
    }[of]
    return [
        ACL(f"User:{USER}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, resource),
        ACL(f"User:{USER}", "*", ACLOperation[right], ACLPermissionType.DENY, resource),
    ]


def wait_for(topics: Topics, rules: list[ACL], *, there: bool) -> None:
    """Wait until the broker goes by rules, or does not any more."""
    deadline = time.monotonic() + 30
    while any(bool(topics.admin.describe_acls(rule)[0]) is not there for rule in rules):
        assert time.monotonic() < deadline, f"the broker goes by its old rules: {rules}"
        time.sleep(0.02)

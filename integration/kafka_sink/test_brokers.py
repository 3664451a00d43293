"""A broker is killed while rows are written, wait, are copied or are committed, and comes back."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.cli.checkpoints import checkpoints
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import DeclinedError, TargetUnreachableError
from twophase.events import CheckpointDecided, CommitRetried, Event
from twophase.ids import Attempt, Subtask
from twophase.kafka_client.connection import CLIENT_ID
from twophase.sinks.kafka.clients import UNCOMMITTED, RangeReader, RecordWriter
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import JOB, LINEAGE, SINK, fresh_name, transaction_id
from twophase.testing.plain_host import ListedRows, plain_engine
from twophase.testing.services import KafkaService
from twophase.testing.services.kafka_install import java_command

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

SECOND = Attempt(1, 2)
SHORT = {"request.timeout": "2 s"}
RETRIES, PATIENCE_S = 2, 600


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaService]:
    with KafkaService(own=True) as service:
        yield service


def come_back(broker: KafkaService, harness: KafkaHarness) -> None:
    """With new clients for the test, which may have given up."""
    broker.restart()
    look_again(broker, harness)


def look_again(broker: KafkaService, harness: KafkaHarness) -> None:
    harness.topics.admin.close()
    harness.topics = Topics(broker.bootstrap_servers)


def test_brokers_that_throttle_are_waited_for_as_long_as_rows_get_through(
    broker: KafkaService,
) -> None:
    """As by a quota of the account: the last rows wait for longer than the brokers may be silent
    (four times `request.timeout`).
    """
    with Topics(broker.bootstrap_servers) as topics:
        harness = KafkaHarness(topics, **SHORT)
        harness.topic = topics.create(1, fresh_name("slow"), {"max.message.bytes": "100000"})
        rows = [{**row, "name": "x" * 10_000} for row in harness.rows(range(230))]
        with closing(harness.opened()) as sink:
            writer = sink.writers()(transaction_id(), Subtask(0, 0))
            quota(broker, "--add-config", "producer_byte_rate=100000")
            try:
                writer.write(pa.RecordBatch.from_pylist(rows, schema=harness.schema))
                began = time.monotonic()
                piece = writer.pre_commit()
            finally:
                quota(broker, "--delete-config", "producer_byte_rate")
            assert time.monotonic() - began > 8, "nothing was throttled"
            assert piece is not None
            assert sink.commit([CommitRequest(piece)]) == [Committed()]
        assert len(harness.rows_visible()) == len(rows)


def quota(broker: KafkaService, *change: str) -> None:
    """Change what the brokers take of the sink's clients."""
    options = ("--bootstrap-server", broker.bootstrap_servers, "--alter", *change)
    clients = ("--entity-type", "clients", "--entity-name", CLIENT_ID)
    command = java_command(["-Xmx128m"], "kafka.admin.ConfigCommand", *options, *clients)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class TestABrokerThatIsKilled(ContractBase):
    @pytest.fixture(params=["transaction", "staged"])
    def harness(
        self, broker: KafkaService, request: pytest.FixtureRequest
    ) -> Iterator[KafkaHarness]:
        topics = Topics(broker.bootstrap_servers)
        made = KafkaHarness(topics, protocol=request.param, **SHORT)
        yield made
        made.topics.admin.close()

    def test_while_a_piece_waits_keeps_it(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        [piece] = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        broker.kill()
        come_back(broker, harness)
        assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]

    def test_when_a_piece_is_to_be_committed_is_waited_for(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        [piece] = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        broker.kill()
        with pytest.raises(TargetUnreachableError):
            sink.commit([CommitRequest(piece)])
        come_back(broker, harness)
        assert self.commit(sink, [piece]) == [Committed()]
        assert isinstance(self.commit(sink, [piece])[0], AlreadyCommitted)
        assert self.ids_visible() == [1, 2]

    def test_between_two_checkpoints_is_reached_again_by_the_clients_that_are_open(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        for number in range(2):
            transaction = transaction_id(number)
            [piece] = self.prepare(sink, [number], transaction, Subtask(0, number))
            if number:
                broker.kill()
                come_back(broker, harness)
            assert self.commit(sink, [piece]) == [Committed()]
            sink.subsume(LINEAGE, number)
        assert sink.history().committed == {LINEAGE: 1}
        assert self.ids_visible() == [0, 1]
        sink.close()

    def test_while_rows_are_written_declines_the_attempt_and_the_next_one_writes_them(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        writer.write(self.batch([1, 2]))
        broker.kill()
        with pytest.raises(DeclinedError) as caught:
            writer.pre_commit()
        assert caught.value.remedy.startswith("check that the brokers run, that enough replicas")
        come_back(broker, harness)
        sink.abort(sink.in_doubt())
        sink.fence(SECOND)
        [piece] = self.prepare(sink, [1, 2], transaction_id(attempt=SECOND), Subtask(0, 0))
        assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]
        with closing(harness.opened(SECOND)) as again:
            assert not again.in_doubt()


def test_clients_that_reach_no_broker_say_so_and_work_once_it_runs_again(
    broker: KafkaService,
) -> None:
    with Topics(broker.bootstrap_servers) as topics:
        topic = topics.create(1, fresh_name("ledger"), {"cleanup.policy": "compact"})
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows"}
    options = KafkaSinkOptions.parse(given | SHORT)
    with (
        closing(RecordWriter(options, topic)) as writer,
        closing(RangeReader(options, UNCOMMITTED)) as reader,
    ):
        writer.write({"a": b"1"}, 0)
        broker.kill()
        with pytest.raises(TargetUnreachableError, match="could not be written") as unwritten:
            writer.write({"b": b"2"}, 0)
        with pytest.raises(TargetUnreachableError, match="cannot be read") as unread:
            reader.read(topic, 0, 0, 1)
        for caught in (unwritten, unread):
            assert caught.value.remedy.startswith("check that its brokers run")
        broker.restart()
        writer.write({"c": b"3"}, 0)
        assert [entry.value for entry in reader.read(topic, 0, 0, 2)] == [b"1", b"3"]


def test_a_broker_that_is_killed_while_rows_are_copied_is_waited_for(
    broker: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are in the open transaction of the copy, and so is their proof."""
    harness = KafkaHarness(Topics(broker.bootstrap_servers), protocol="staged", **SHORT)
    calls = ContractBase()
    calls.use(harness)
    sink = harness.opened()
    [piece] = calls.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))

    def killed(point: str) -> None:
        if point == "K02":
            broker.kill()

    monkeypatch.setattr("twophase.sinks.kafka.staged.failpoint", killed)
    [found] = sink.commit([CommitRequest(piece)])
    assert isinstance(found, RetryLater)
    monkeypatch.undo()
    come_back(broker, harness)
    assert calls.commit(sink, [piece]) == [Committed()]
    assert calls.ids_visible() == [1, 2]
    sink.close()
    harness.topics.admin.close()


def waiting(folder: Path) -> Any:
    """The handle of the piece that waits, found as docs/operations.md tells."""
    result = CliRunner().invoke(checkpoints, [str(folder), "--json"])
    assert result.exit_code == 0, result.output
    [entry] = json.loads(result.stdout)["checkpoints"]
    assert entry["pending_commits"] == {SINK: 1}
    metadata = Path(entry["path"], "_metadata").read_text()
    [piece] = json.loads(metadata.partition("\n")[2])["committables"][SINK]
    return piece["handle"]


LEFT = re.compile(r"Kafka aborts it in (\d+) s \(transaction_timeout\), and then its rows are lost")
TIMEOUT_S = 900


@pytest.mark.parametrize("protocol", ["transaction", "staged"])
def test_while_a_broker_is_down_each_retry_says_how_long_a_decided_transaction_has_left(
    broker: KafkaService, tmp_path: Path, protocol: str
) -> None:
    """By the clock: Kafka counts from the task's first row. Staged rows have all the time. The
    command shows the same, and where the rows wait.
    """
    patience = {"request.timeout": "5 s"}  # each retry takes as long
    harness = KafkaHarness(Topics(broker.bootstrap_servers), protocol=protocol, **patience)
    heard: list[tuple[float, CommitRetried]] = []
    waits: list[Any] = []

    def observe(event: Event) -> None:
        if isinstance(event, CheckpointDecided):
            broker.kill()
        if isinstance(event, CommitRetried):
            heard.append((time.time(), event))
            if len(heard) == RETRIES:
                waits.append(waiting(tmp_path / "job"))
                broker.restart()

    given = {"checkpointLocation": str(tmp_path / "job"), "commit.backoff": "1 ms"}
    batch = pa.RecordBatch.from_pylist(harness.rows([1, 2]), schema=harness.schema)
    sinks = {SINK: harness.new_sink(transaction_timeout=f"{TIMEOUT_S} s")}
    engine = plain_engine(JOB, sinks, ListedRows([[batch]]), given, observe)
    began_s = time.time()
    engine.start()
    assert engine.await_termination(PATIENCE_S)
    ended_s = heard[0][0]
    left = [(now_s, LEFT.search(event.reason)) for now_s, event in heard]
    [handle] = waits
    if protocol == "staged":
        assert not any(found for _, found in left)
        assert (handle["staging"], handle["partition"]) == (harness.staging, 0)
        assert handle["offsets"] == [0, 1]
    else:
        assert handle["id"].startswith(f"twophase/{harness.topic}/{JOB}/{SINK}/")
        until_s = [now_s + int(found[1]) for now_s, found in left if found]
        assert len(until_s) == len(heard), [event.reason for _, event in heard]
        for one in [*until_s, handle["until"]]:
            assert began_s + TIMEOUT_S - 2 <= one <= ended_s + TIMEOUT_S + 1
        assert max(until_s) - min(until_s) <= 2, "it counts down as the clock does"
    look_again(broker, harness)
    assert sorted(row["id"] for row in harness.rows_visible()) == [1, 2]
    harness.topics.admin.close()

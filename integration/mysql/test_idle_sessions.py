"""A session that has been idle: what stands before the server may have forgotten it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import twophase.sinks.mysql.client.session as client
from harness.tcp_proxy import SilentProxy
from integration.mysql.plain_job import MySqlJob
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import DeclinedError
from twophase.events import CheckpointDecided, CommitRetried
from twophase.ids import Subtask

pytestmark = pytest.mark.part("mysql")

IO_TIMEOUT_S = 600


def test_a_session_whose_bytes_vanish_is_given_up_long_before_the_deadline_of_a_statement(
    sql_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = MySqlHarness(sql_server, "id BIGINT PRIMARY KEY", pa.schema([("id", pa.int64())]))
    monkeypatch.setattr(client, "_IDLE_S", 0.0)  # each use asks for a sign of life
    with SilentProxy(sql_server.host, sql_server.port) as proxy:
        url = f"mysql://{sql_server.user}@127.0.0.1:{proxy.port}/{harness.database}"
        job = MySqlJob(
            harness,
            tmp_path / "job",
            [[[{"id": number}]] for number in range(3)],
            url=url,
            connect_timeout="1 s",
            io_timeout=f"{IO_TIMEOUT_S} s",
        )
        job.on(CheckpointDecided, proxy.silence, at=2)
        ended = threading.Event()

        def run() -> None:
            assert job.run() is None
            ended.set()

        threading.Thread(target=run, daemon=True).start()
        assert ended.wait(IO_TIMEOUT_S / 10)
    assert not any(isinstance(event, CommitRetried) for event in job.events)
    assert harness.ids() == [0, 1, 2]
    assert job.leaves_nothing()


def test_a_writer_that_was_idle_does_not_wait_for_the_deadline_of_a_statement(
    sql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = MySqlHarness(sql_server, "id BIGINT PRIMARY KEY", pa.schema([("id", pa.int64())]))
    with SilentProxy(sql_server.host, sql_server.port) as proxy:
        url = f"mysql://{sql_server.user}@127.0.0.1:{proxy.port}/{harness.database}"
        timeouts = {"connect_timeout": "1 s", "io_timeout": f"{IO_TIMEOUT_S} s"}
        writer = harness.begun(harness.opened(url=url, **timeouts), [1])
        monkeypatch.setattr(client, "_IDLE_S", 0.0)
        proxy.silence()
        started_s = time.monotonic()
        with pytest.raises(DeclinedError, match="no sign of life after a pause"):
            writer.pre_commit()
        assert time.monotonic() - started_s < IO_TIMEOUT_S / 10
        writer.abort()
        sink = harness.opened(url=url, **timeouts)  # through the proxy that waits longer now
        again = harness.begun(sink, [1], Subtask(0, 1)).pre_commit()
        assert again is not None
        assert commit(sink, again) == [Committed()]

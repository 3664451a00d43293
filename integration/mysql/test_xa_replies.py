"""What each error number means at the end of a branch: the attempt is declined while its branch is
prepared, as while rows are written; a decided branch waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.tcp_proxy import RewritingProxy
from integration.mysql.plain_job import MySqlJob
from integration.mysql.sink_harness import TASK, MySqlHarness, Server, commit
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import DeclinedError, RejectedRowsError
from twophase.events import CommitRetried
from twophase.testing.harness import transaction_id

pytestmark = pytest.mark.part("mysql")

AT_ONCE, REPEATED, FOR_EVER = "at once", "repeated", "for ever"
REPLIES = [
    ("22012", 1365, AT_ONCE),
    ("23000", 1062, AT_ONCE),
    ("45000", 1644, AT_ONCE),
    ("HY000", 1366, AT_ONCE),
    ("HY000", 1205, REPEATED),
    ("40001", 1213, REPEATED),
    ("HY000", 1197, REPEATED),
    ("42000", 1142, REPEATED),
    ("42000", 1227, REPEATED),
    ("42S02", 1146, REPEATED),
    ("XAE04", 1397, REPEATED),
    ("XAE07", 1399, REPEATED),
    ("XAE03", 1401, REPEATED),
    ("XA100", 1402, REPEATED),
    ("XA106", 1613, REPEATED),
    ("XA102", 1614, REPEATED),
    ("HY000", 9999, REPEATED),
    ("HY000", 1021, FOR_EVER),
    ("HY000", 1290, FOR_EVER),
    ("42000", 1226, FOR_EVER),
    ("08S01", 1053, FOR_EVER),
    ("70100", 1317, FOR_EVER),
]


def answering(state: str, number: int) -> bytes:
    text = f"SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'on purpose'"
    return text.encode()


@contextmanager
def proxied(server: Server, statement: str) -> Iterator[tuple[MySqlHarness, RewritingProxy]]:
    """A table behind a proxy that may have the server answer a statement with an error."""
    with RewritingProxy(
        server.host, server.port, statement.encode() + rb" '[^)]*\d", None
    ) as proxy:
        harness = MySqlHarness(server)
        harness.options["url"] = f"mysql://{server.user}@127.0.0.1:{proxy.port}/{harness.database}"
        yield harness, proxy


@pytest.mark.parametrize("statement", ["XA END", "XA PREPARE"])
def test_while_a_branch_is_prepared_the_attempt_is_declined(
    sql_server_in_proof: Server, statement: str
) -> None:
    with proxied(sql_server_in_proof, statement) as (harness, proxy):
        sink = harness.opened()
        for checkpoint, (state, number, end) in enumerate(REPLIES):
            writer = sink.writers()(transaction_id(checkpoint), TASK)
            writer.write(harness.batch(harness.rows([number])))
            proxy.instead = answering(state, number)
            with pytest.raises(DeclinedError, match=rf"on purpose.*\({number}\)") as caught:
                writer.pre_commit()
            proxy.instead = None
            writer.abort()
            assert isinstance(caught.value, RejectedRowsError) is (end == AT_ONCE), number
            assert (caught.value.fingerprint == "") is (end != REPEATED), number
            assert harness.branches() == []
        piece = harness.write(sink, harness.rows([1]), checkpoint=len(REPLIES))
        assert commit(sink, piece) == [Committed()]
        assert harness.ids() == [1]


def test_once_it_is_decided_it_waits_until_the_server_commits_it(
    sql_server_in_proof: Server,
) -> None:
    with proxied(sql_server_in_proof, "XA COMMIT") as (harness, proxy):
        sink = harness.opened()
        for checkpoint, (state, number, _) in enumerate(REPLIES):
            piece = harness.write(sink, harness.rows([number]), checkpoint)
            proxy.instead = answering(state, number)
            [outcome] = commit(sink, piece)
            proxy.instead = None
            assert isinstance(outcome, RetryLater), number
            [outcome] = commit(sink, piece, retries=1)
            assert outcome == Committed(), number
        assert harness.ids() == sorted(number for _, number, _ in REPLIES)
        assert harness.branches() == []


def test_a_job_goes_on_when_the_server_commits_again(
    sql_server_in_proof: Server, tmp_path: Path
) -> None:
    with proxied(sql_server_in_proof, "XA COMMIT") as (harness, proxy):
        proxy.instead = answering("HY000", 1366)
        job = MySqlJob(harness, tmp_path / "job", [[harness.rows([number])] for number in range(3)])
        job.on(CommitRetried, lambda: setattr(proxy, "instead", None), at=3)
        assert job.run() is None
        assert harness.ids() == [0, 1, 2]
        assert job.restarts == 0
        assert job.leaves_nothing()

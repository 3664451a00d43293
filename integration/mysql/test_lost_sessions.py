"""A writer that has lost its session ends what it has left on the server, and nothing else."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from integration.mysql.sink_harness import MySqlHarness, Server
from twophase.errors import DeclinedError

pytestmark = pytest.mark.part("mysql")


def test_a_session_that_has_the_number_of_a_lost_one_is_left_alone(
    sql_server_in_proof: Server,
) -> None:
    """The server was restarted, and numbers its sessions from the beginning."""
    sql_server_in_proof.kill()  # other tests have had sessions, perhaps thousands
    sql_server_in_proof.restart()
    harness = MySqlHarness(sql_server_in_proof)
    sink = harness.opened()
    for _ in range(20):
        harness.sql("DO 0")
    writer = harness.begun(sink, [0])
    assert writer._session is not None
    lost = writer._session
    sql_server_in_proof.kill()
    sql_server_in_proof.restart()
    while (other := harness.server.connect(harness.database)).thread_id() < lost.id:
        other.close()
    with closing(other):
        assert other.thread_id() == lost.id
        lost._used_s = time.monotonic()  # it is not asked for a sign of life
        writer.write(harness.batch(harness.rows([1])))
        with pytest.raises(DeclinedError, match="2013"):
            writer.flush()
        other.ping(reconnect=False)

"""What it costs a task attempt to look at the table and to read rows back, in CPU time of the
writer and the server.

python benchmarks/mysql_checks.py --server mysql
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from unittest import mock

import psutil
import pyarrow as pa

from benchmarks.mysql_writers import DDL, SCHEMA, batches
from twophase.contract.sink import SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.mysql.client.session_settings import open_writer_session
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.sink import MySqlSink
from twophase.sinks.mysql.table import read_table_locked
from twophase.sinks.mysql.writer import MySqlWriter
from twophase.testing.services import MariaDbService, MySqlService

ATTEMPTS = {10: 60, 1_000: 40, 10_000: 15, 50_000: 5}
"""How many attempts of so many rows a round takes."""
SESSIONS, READS, ROUNDS = 60, 60, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    kind = {"mysql": MySqlService, "mariadb": MariaDbService}[parser.parse_args().server]
    with kind(local_infile=True) as server:
        os.environ["BENCH_PASSWORD"] = server.password
        server.create_database("bench")
        with server.connect("bench") as connection, connection.cursor() as cursor:
            cursor.execute(DDL)
        declared = MySqlSink(url=server.url("bench"), table="orders", password_env="BENCH_PASSWORD")
        sink = declared.open(SinkContext("bench", "orders", SCHEMA, 1))
        sink.fence(Attempt(1, 1))
        costs = Costs(sink, psutil.Process(server.pid))
        for rows in ATTEMPTS:
            rounds = [costs.round(rows) for _ in range(ROUNDS)]
            attempt, table, read_back = (
                statistics.median(each) for each in zip(*rounds, strict=True)
            )
            print(
                f"{kind.__name__}, {rows} rows: an attempt without checks {attempt:.1f} ms of CPU, "
                f"the table {table:.2f}, rows read back {read_back:.2f}: "
                f"{100 * (table + read_back) / attempt:.1f} %",
                flush=True,
            )
        sink.close()


class Costs:
    """CPU milliseconds of this process and the server."""

    def __init__(self, sink: OpenMySqlSink, server: psutil.Process) -> None:
        self._sink = sink
        self._server = server
        self._next = self._task = 0
        self._lineage = new_lineage_id()

    def round(self, rows: int) -> tuple[float, float, float]:
        """Of an attempt without checks, of the look at the table, of the rows read back."""
        nothing = mock.Mock()
        waiting = [self._rows(rows) for _ in range(ATTEMPTS[rows])]
        with mock.patch.object(ReadBack, "check", nothing):
            with mock.patch.object(MySqlWriter, "_check_table", nothing):
                attempt = self._each(
                    ATTEMPTS[rows], lambda: self._begun(waiting.pop()).pre_commit()
                )
        self._sink.abort(self._sink.in_doubt())
        made = self._rows(rows)
        writer = self._begun(made)
        session, plan = writer._session, self._sink.writers().plan
        assert session is not None
        read_back = self._each(READS, lambda: plan.loader.read_back.check(session, made))
        writer.abort()
        table = self._each(SESSIONS, lambda: self._session(look=True))
        table -= self._each(SESSIONS, lambda: self._session(look=False))
        return attempt, table, read_back

    def _rows(self, rows: int) -> Sequence[pa.RecordBatch]:
        """Return rows that no other attempt has."""
        self._next += 1
        return batches(self._next * max(ATTEMPTS), rows, 10_000)

    def _begun(self, made: Sequence[pa.RecordBatch]) -> MySqlWriter:
        self._task += 1
        transaction = TransactionId(
            "bench", self._lineage, self._task, Attempt(1, 1), "orders", "0" * 64
        )
        writer = self._sink.writers()(transaction, Subtask(0, self._task))
        for batch in made:
            writer.write(batch)
        writer._flush()
        return writer

    def _session(self, *, look: bool) -> None:
        writers = self._sink.writers()
        session = open_writer_session(writers.endpoint, local_infile=True)
        if look:
            read_table_locked(session, writers.plan.table)
        session.end()

    def _each(self, times: int, run: Callable[[], object]) -> float:
        before = self._cpu_s()
        for _ in range(times):
            run()
        return (self._cpu_s() - before) / times * 1_000

    def _cpu_s(self) -> float:
        return time.process_time() + sum(self._server.cpu_times()[:2])


if __name__ == "__main__":
    main()

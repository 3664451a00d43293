"""The speed of the MySQL sink's writers without Spark: rows/s, memory, and the time of each phase.

python benchmarks/mysql_writers.py --server mysql --rows 1000000 --writers 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import resource
import secrets
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.internals.json_values import from_json, to_json
from twophase.sinks.mysql.sink import MySqlSink
from twophase.testing.services import MariaDbService, MySqlService, SqlService

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("quantity", pa.int32()),
    ]
)
DDL = (
    "CREATE TABLE orders (id BIGINT "
    "PRIMARY KEY, customer VARCHAR(64), amount DOUBLE, ordered_at DATETIME(6),"
    " quantity INT) ENGINE = InnoDB"
)


_NEXT = 2_654_435_761
_IDS = 1 << 32


def batches(start: int, rows: int, size: int, *, scattered: bool = False) -> list[pa.RecordBatch]:
    made = []
    for first in range(start, start + rows, size):
        ids = np.arange(first, min(first + size, start + rows))
        random = np.random.default_rng(first)
        columns = [
            pa.array(ids * _NEXT % _IDS if scattered else ids),
            pa.array([f"customer-{number % 9973}" for number in ids]),
            pa.array(random.random(len(ids)) * 1000),
            pa.array(1_700_000_000_000_000 + ids * 1000).cast(pa.timestamp("us", "UTC")),
            pa.array(random.integers(1, 100, len(ids)).astype(np.int32)),
        ]
        made.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return made


def work(
    writers: bytes,
    transaction: TransactionId,
    index: int,
    rows: int,
    size: int,
    gate: Barrier,
    results: Queue[Any],
    *,
    scattered: bool,
) -> None:
    made = batches(index * rows, rows, size, scattered=scattered)
    before = resource.getrusage(resource.RUSAGE_SELF)
    writer = pickle.loads(writers)(transaction, Subtask(index, index))
    gate.wait()
    started = time.perf_counter()
    for batch in made:
        writer.write(batch)
    loaded = time.perf_counter()
    committable = writer.pre_commit()
    prepared = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    results.put(
        (
            to_json(committable),
            loaded - started,
            prepared - loaded,
            cpu,
            (after.ru_maxrss - before.ru_maxrss) / 1024,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--scattered", action="store_true", help="ids in no order")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--load-rows", type=int, default=50_000)
    parser.add_argument("--load-bytes", type=int, default=8_000_000)
    parser.add_argument("--load", default="auto")
    parser.add_argument("--socket", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    kind = {"mysql": MySqlService, "mariadb": MariaDbService}[arguments.server]
    with kind(local_infile=True) as server:
        os.environ["BENCH_PASSWORD"] = server.password
        for _ in range(arguments.repeat):
            run(server, arguments)


def run(server: SqlService, arguments: argparse.Namespace) -> None:
    database = f"bench_{secrets.token_hex(4)}"
    server.create_database(database)
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(DDL)
        cursor.execute("SELECT CONCAT(@@datadir, @@socket)")
        [[socket]] = cursor.fetchall()
    options = {"unix_socket": socket} if arguments.socket else {}
    declared = MySqlSink(
        url=server.url(database), table="orders", password_env="BENCH_PASSWORD",
        load=arguments.load, load_rows=arguments.load_rows, load_bytes=arguments.load_bytes,
        **options,
    )  # fmt: skip
    sink = declared.open(SinkContext("bench", "orders", SCHEMA, arguments.writers))
    sink.fence(Attempt(1, 1))
    transaction = TransactionId("bench", new_lineage_id(), 0, Attempt(1, 1), "orders", "0" * 64)
    context = multiprocessing.get_context("fork")
    gate, results = context.Barrier(arguments.writers + 1), context.Queue()
    share, writers = arguments.rows // arguments.writers, pickle.dumps(sink.writers())
    workers = [
        context.Process(
            target=work,
            args=(writers, transaction, index, share, arguments.batch, gate, results),
            kwargs={"scattered": arguments.scattered},
        )
        for index in range(arguments.writers)
    ]
    for worker in workers:
        worker.start()
    process = psutil.Process(server.pid)
    gate.wait()
    started, busy = time.perf_counter(), sum(process.cpu_times()[:2])
    done = [results.get() for _ in workers]
    prepared = time.perf_counter()
    outcomes = sink.commit(
        [CommitRequest(from_json(Committable, one[0], "A piece")) for one in done]
    )
    committed, busy = time.perf_counter(), sum(process.cpu_times()[:2]) - busy
    for worker in workers:
        worker.join()
    sink.close()
    print(
        f"{arguments.server} load={arguments.load} rows/load={arguments.load_rows} "
        f"batch={arguments.batch}: {arguments.rows / (committed - started) / 1000:.0f} k rows/s; "
        f"phase 1 {prepared - started:.2f} s (prepare {max(one[2] for one in done) * 1000:.0f} "
        f"ms), commit {(committed - prepared) * 1000:.0f} ms; CPU: writers "
        f"{sum(one[3] for one in done):.2f} s, server {busy:.2f} s; memory "
        f"+{max(one[4] for one in done):.0f} MB; {outcomes}"
    )


if __name__ == "__main__":
    main()

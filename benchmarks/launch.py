"""Runs `benchmarks.driver` in a separate process, as a user's job would run, and watches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.driver import TURN_OVER, Batch
from benchmarks.machine import Meter
from twophase.testing.services import KafkaService, MariaDbService, MySqlService, SqlService

_ROOT = Path(__file__).parent.parent
_PASSWORD_VARIABLE = "BENCHMARK_MYSQL_PASSWORD"
_TIMEOUT_S = 1800
# The meter's interval. With many drivers a sample takes longer, and delays them.
_INTERVAL_S, _IN_TURNS_INTERVAL_S = 0.2, 2.0
# A typical setup for such a load; both pipelines write to the same server.
_SERVER_OPTIONS = (
    "--innodb-buffer-pool-size=2G",
    "--innodb-log-file-size=512M",
    "--max-allowed-packet=256M",
)


@dataclass(frozen=True)
class Services:
    """The servers of a benchmark, started."""

    kafka: KafkaService
    mysql: SqlService


def new_kafka() -> KafkaService:
    """Start our own broker: figures from another machine would mean nothing here."""
    return KafkaService(own=True, heap_mb=768)


def new_mysql() -> MySqlService:
    """Start our own server: redo log flushed at every commit, no binary log."""
    return MySqlService(own=True, local_infile=True, server_options=_SERVER_OPTIONS)


def new_mariadb() -> MariaDbService:
    """Start our own server, with the same settings."""
    return MariaDbService(own=True, local_infile=True, server_options=_SERVER_OPTIONS)


@dataclass(frozen=True)
class Run:
    """One pipeline, run to the end of its topic.

    Attributes:
        batches: in order, without those that have no rows.
        checkpoints: durations of each checkpoint of twophase.
        meter: the use of processors and memory.
    """

    batches: list[Batch]
    checkpoints: list[dict[str, float]]
    meter: Meter

    def steady(self, warm_up: int, batch_records: int) -> list[Batch]:
        """The full batches after the first `warm_up` full ones: our first ones are smaller."""
        return [batch for batch in self.batches if batch.rows == batch_records][warm_up:]

    def cpu_per_million(self, batches: list[Batch]) -> dict[str, float]:
        """Processor seconds for a million rows, by part, while `batches` ran."""
        begin_s = began_s(batches[0])
        end_s = began_s(batches[-1]) + batches[-1].duration_s
        rows = sum(batch.rows for batch in batches)
        return {part: used * 1e6 / rows for part, used in self.meter.used(begin_s, end_s).items()}


def began_s(batch: Batch) -> float:
    """When a batch was triggered, as Unix time."""
    return datetime.fromisoformat(batch.began).timestamp()


def run(
    services: Services,
    pipeline: str,
    topic: str,
    database: str,
    batch_records: int,
    **settings: Any,
) -> Run:
    """Run one pipeline to MySQL or MariaDB to its end."""
    mysql = services.mysql
    settings["mysql"] = account(mysql, database)
    return run_pipeline(
        services.kafka,
        pipeline,
        topic,
        batch_records,
        {"server": mysql.pid},
        _secret(mysql),
        **settings,
    )


def run_pipeline(
    kafka: KafkaService,
    pipeline: str,
    topic: str,
    batch_records: int,
    servers: Mapping[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    **settings: Any,
) -> Run:
    """Run one pipeline to its end.

    Args:
        kafka: where the records are.
        pipeline: its name in `benchmarks.driver`.
        topic: of the records.
        batch_records: records in a micro-batch.
        servers: process ids of servers beside Kafka, by name.
        environment: of the driver, added to ours.
        python: that runs the driver.
        settings: of the pipeline, as `benchmarks.driver` takes them.
    """
    settings = {"pipeline": pipeline, **settings}
    [done] = _watch(
        kafka, topic, batch_records, [settings], servers or {}, environment or {}, python
    )
    return done


def run_in_turns(
    services: Services,
    topic: str,
    batch_records: int,
    turn: int,
    pipelines: Sequence[Mapping[str, Any]],
) -> list[Run]:
    """Run pipelines to their ends, each in a separate process, one at a time: `turn`
    micro-batches each, in turn.

    A slow minute of the machine then affects all of them.

    Args:
        services: the source of the records, and their possible targets.
        topic: of the records.
        batch_records: records in a micro-batch.
        turn: micro-batches in a turn.
        pipelines: their settings, as `benchmarks.driver` takes them.
    """
    mysql = services.mysql
    taking_turns = [{**settings, "turn": turn} for settings in pipelines]
    return _watch(
        services.kafka, topic, batch_records, taking_turns, {"server": mysql.pid}, _secret(mysql)
    )


def account(mysql: SqlService, database: str) -> dict[str, Any]:
    """Return the settings with which a driver reaches a database. The password is
    in its environment.
    """
    where = {"host": mysql.host, "port": mysql.port, "user": mysql.user, "database": database}
    return {**where, "password_env": _PASSWORD_VARIABLE}


def _secret(mysql: SqlService) -> dict[str, str]:
    return {_PASSWORD_VARIABLE: mysql.password}


def _watch(
    kafka: KafkaService,
    topic: str,
    batch_records: int,
    pipelines: Sequence[Mapping[str, Any]],
    servers: Mapping[str, int],
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> list[Run]:
    described = {
        "master": "local[2]",
        "kafka": kafka.bootstrap_servers,
        "topic": topic,
        "batch_records": batch_records,
    }
    with ExitStack() as stack:
        drivers = []
        for settings in pipelines:
            name = tempfile.TemporaryDirectory(prefix="twophase-bench-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(name))
            whole = {**described, "location": str(folder / "job"), **settings}
            drivers.append(
                stack.enter_context(_started(whole, folder / "log", environment, python))
            )
        roots = {
            f"driver {number}" if number > 1 else "driver": driver.process.pid
            for number, driver in enumerate(drivers, 1)
        }
        roots |= {"Kafka": kafka.pid, **servers}
        with Meter(roots, _INTERVAL_S if len(drivers) == 1 else _IN_TURNS_INTERVAL_S) as meter:
            _take_turns(drivers)
        return [driver.result(meter) for driver in drivers]


@dataclass
class _Driver:
    """A driver process.

    Attributes:
        pipeline: the pipeline that it runs.
        process: its process, which communicates by lines.
        log: the file for its standard error.
        last_line: the last line of its standard output so far.
    """

    pipeline: str
    process: subprocess.Popen[str]
    log: Path
    last_line: str = ""

    def take_turn(self) -> bool:
        """Let it run until its turn is over; return False if it has ended instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has died: there is nothing to read then
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.rstrip() == TURN_OVER:
                return True
            self.last_line = line
        return False

    def result(self, meter: Meter) -> Run:
        """Return its result, printed at its end."""
        code = self.process.wait(_TIMEOUT_S)
        if code != 0:
            raise RuntimeError(
                f"{self.pipeline} ended with {code}:\n"
                f"{_brief(self.log.read_text(errors='replace'))}"
            )
        result = json.loads(self.last_line)
        return Run([Batch(**batch) for batch in result["batches"]], result["checkpoints"], meter)


@contextmanager
def _started(
    settings: Mapping[str, Any], log: Path, environment: Mapping[str, str], python: str
) -> Iterator[_Driver]:
    own = {
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": str(_ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    command = [python, "-m", "benchmarks.driver", json.dumps(settings)]
    pipe = subprocess.PIPE
    with log.open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=err,
            text=True,
            env={**os.environ, **own, **environment},
            cwd=_ROOT,
        )
    overdue = threading.Timer(_TIMEOUT_S, process.kill)
    overdue.start()
    with process:
        try:
            yield _Driver(settings["pipeline"], process, log)
        except BaseException:
            process.kill()
            raise
        finally:
            overdue.cancel()


def _take_turns(drivers: Sequence[_Driver]) -> None:
    waiting = deque(drivers)
    while waiting:
        driver = waiting.popleft()
        if driver.take_turn():
            waiting.append(driver)


def _brief(log: str) -> str:
    """Return the end of a log without the stack frames of Java and Python."""
    return "\n".join(line for line in log.splitlines() if not line.startswith(("\t", "  ")))[-4000:]

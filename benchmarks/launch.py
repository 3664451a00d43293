"""Runs `benchmarks.driver` in a process of its own, as a user's job would run, and watches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.driver import Batch
from benchmarks.machine import Meter
from twophase.testing.services import KafkaService, MySqlService

_ROOT = Path(__file__).parent.parent
_PASSWORD_VARIABLE = "BENCHMARK_MYSQL_PASSWORD"
_TIMEOUT_S = 1800
# A server as one would set it up for such a load; both pipelines write to the same one.
_MYSQL_OPTIONS = ("--innodb-buffer-pool-size=2G", "--innodb-log-file-size=512M", "--max-allowed-packet=256M")


@dataclass(frozen=True)
class Services:
    """The servers of a benchmark, started."""

    kafka: KafkaService
    mysql: MySqlService


def new_kafka() -> KafkaService:
    """A broker of our own: the figures of another machine say nothing here."""
    return KafkaService(own=True, heap_mb=768)


def new_mysql() -> MySqlService:
    """A server of our own: redo log flushed at every commit, no binary log."""
    return MySqlService(own=True, local_infile=True, server_options=_MYSQL_OPTIONS)


@dataclass(frozen=True)
class Run:
    """One pipeline, run to the end of its topic.

    Attributes:
        batches: in order, those without rows left out.
        checkpoints: durations of each checkpoint of twophase.
        meter: who used processors and memory.
    """

    batches: list[Batch]
    checkpoints: list[dict[str, float]]
    meter: Meter

    def steady(self, warm_up: int, batch_records: int) -> list[Batch]:
        """The full batches after the first `warm_up`."""
        return [batch for batch in self.batches[warm_up:] if batch.rows == batch_records]

    def cpu_per_million(self, batches: list[Batch]) -> dict[str, float]:
        """Processor seconds for a million rows, by part, while `batches` ran."""
        begin_s = began_s(batches[0])
        end_s = began_s(batches[-1]) + batches[-1].duration_s
        rows = sum(batch.rows for batch in batches)
        return {part: used * 1e6 / rows for part, used in self.meter.used(begin_s, end_s).items()}


def began_s(batch: Batch) -> float:
    """When a batch was triggered, as Unix time."""
    return datetime.fromisoformat(batch.began).timestamp()


def run(services: Services, pipeline: str, topic: str, database: str, batch_records: int, **settings: Any) -> Run:
    """Run one pipeline to MySQL to its end."""
    mysql = services.mysql
    account = {"host": mysql.host, "port": mysql.port, "user": mysql.user, "database": database}
    settings["mysql"] = account | {"password_env": _PASSWORD_VARIABLE}
    secret = {_PASSWORD_VARIABLE: mysql.password}
    return run_pipeline(services.kafka, pipeline, topic, batch_records, {"MySQL": mysql.pid}, secret, **settings)


def run_pipeline(
    kafka: KafkaService,
    pipeline: str,
    topic: str,
    batch_records: int,
    servers: Mapping[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
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
        settings: of the pipeline, as `benchmarks.driver` takes them.
    """
    with tempfile.TemporaryDirectory(prefix="twophase-bench-", ignore_cleanup_errors=True) as folder:
        described = {
            "pipeline": pipeline,
            "master": "local[2]",
            "kafka": kafka.bootstrap_servers,
            "topic": topic,
            "batch_records": batch_records,
            "location": f"{folder}/job",
            **settings,
        }
        return _watch(described, Path(folder), {"Kafka": kafka.pid, **(servers or {})}, environment or {})


def _watch(
    settings: Mapping[str, Any], folder: Path, servers: Mapping[str, int], environment: Mapping[str, str]
) -> Run:
    output, log = folder / "output", folder / "log"
    own = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "benchmarks.driver", json.dumps(settings)]
    with output.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **own, **environment}, cwd=_ROOT)
        try:
            with Meter({"driver": process.pid, **servers}) as meter:
                code = process.wait(_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    if code != 0:
        raise RuntimeError(f"{settings['pipeline']} ended with {code}:\n{_brief(log.read_text(errors='replace'))}")
    result = json.loads(output.read_text().splitlines()[-1])
    return Run([Batch(**batch) for batch in result["batches"]], result["checkpoints"], meter)


def _brief(log: str) -> str:
    """The end of a log without the frames of Java and Python."""
    return "\n".join(line for line in log.splitlines() if not line.startswith(("\t", "  ")))[-4000:]

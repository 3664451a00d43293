"""Delta jobs under test: their topic, their tables, and an independent look at what is in the tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq

from integration import checker, workload
from integration.delta_jars import delta_settings
from integration.nemesis import ROOT, DriverProcess, Ended
from twophase import failpoints
from twophase.testing.services import KafkaService
from twophase.testing.spark_start import spark_environment

BATCH = 200
# Longer than any test waits: what a failpoint holds, only a kill ends.
_HELD = "delay:3600000@1"
_TIMEOUT_S = 540


class DeltaDriver(DriverProcess):
    """A process of `integration.delta_driver`, killed like any other driver."""

    def __init__(self, settings: dict[str, Any], scratch: Path, arm: str = "") -> None:
        run = uuid.uuid4().hex[:8]
        self._points = scratch / f"{run}.points"
        self.log = scratch / f"{run}.log"
        armed = {failpoints.LOG_VARIABLE: str(self._points), failpoints.VARIABLE: arm, "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.delta_driver", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | armed | spark_environment(delta_settings()),
                cwd=ROOT,
                start_new_session=True,
            )


class DeltaArena:
    """A topic of orders, and jobs that each write all of it into a table of their own.

    Args:
        kafka: where the orders come from.
        scratch: a folder for the jobs' folders, the tables and the logs.
        jobs: their names.
        controls: names of jobs without the protocol.
    """

    def __init__(self, kafka: KafkaService, scratch: Path, jobs: Sequence[str], controls: Sequence[str] = ()) -> None:
        self.jobs = jobs
        self.produced = 0
        self._kafka = kafka
        self._topic = f"orders-{uuid.uuid4().hex[:8]}"
        self._scratch = scratch
        self._lake = scratch / "lake"
        workload.create_topic(kafka.bootstrap_servers, self._topic)
        self._settings = {
            "servers": kafka.bootstrap_servers,
            "topic": self._topic,
            "location": str(scratch / "jobs"),
            "lake": str(self._lake),
            "jobs": list(jobs),
            "controls": list(controls),
            "records_per_batch": BATCH,
        }

    def produce(self, count: int) -> None:
        """Write the next `count` orders."""
        workload.produce(self._kafka.bootstrap_servers, self._topic, self.produced, count)
        self.produced += count

    def finish(self) -> None:
        """A driver without failpoints ends cleanly, every job having written everything."""
        ended = DeltaDriver(self._settings, self._scratch).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output

    def kill_at(self, points: Sequence[str]) -> Ended:
        """Wait until a job is held at each of the points, then kill them all at once."""
        driver = DeltaDriver(self._settings, self._scratch, ",".join(f"{point}={_HELD}" for point in points))
        try:
            driver.wait_for(
                lambda: {*driver.points()} >= {*points}, f"a job at each of {', '.join(points)}", _TIMEOUT_S
            )
        finally:
            ended = driver.kill()
        return ended

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one table."""
        stored = np.concatenate([np.empty(0, checker.RECORD), *_records(self._lake / job)])
        return checker.compare(checker.read_topic(self._kafka.bootstrap_servers, self._topic), stored)

    def unnamed_files(self, job: str) -> set[str]:
        """Data files that no commit names."""
        there = {str(path.relative_to(self._lake / job)) for path in (self._lake / job).rglob("*.parquet")}
        return {name for name in there if not name.startswith("_")} - {*_live(self._lake / job)}

    def records(self, job: str) -> list[str]:
        """Records of pieces beside a table."""
        folder = self._lake / job / "_twophase"
        return [path.name for path in folder.rglob("*") if path.suffix in (".intent", ".manifest")]


def _live(table: Path) -> list[str]:
    """The data files of a table's newest version, by its log alone: what `add` names and no `remove`."""
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            if "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
    return list(files)


def _records(table: Path) -> Iterator[checker.Records]:
    for name in _live(table):
        rows = pq.read_table(table / name, partitioning=None).to_pylist()
        yield np.array(
            [
                (
                    row["kafka_partition"],
                    row["kafka_offset"],
                    hash(f"{row['id']}|{row['customer']}|{row['amount']:.2f}"),
                )
                for row in rows
            ],
            checker.RECORD,
        )

"""A job with keyed state on a cluster, one machine of which has another disk where
the job's folder is.

The tests of this module run in order on one cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.held_jobs import wait_until
from harness.nemesis import DriverProcess
from integration.cluster.cluster import Cluster
from twophase.errors import PreflightError

pytestmark = [
    pytest.mark.part("cluster"),
    pytest.mark.proof,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root may mount another file system for a process"
    ),
]

ALL_INPUT = {"availableNow": True}
FOR_EVER = {"processingTime": "0 seconds"}
_MANY = 100
"""Micro-batches, by the end of which a machine has come back."""


class Driver(DriverProcess):
    """A process of `integration.cluster.shared_folder_driver`."""

    module = "integration.cluster.shared_folder_driver"


class Job:
    """The job's folders.

    Args:
        root: for all of them.
        cluster: that it runs on.
    """

    def __init__(self, root: Path, cluster: Cluster) -> None:
        self.location, self.table, self._input, self._root = (
            root / "job",
            root / "table",
            root / "input",
            root,
        )
        self._cluster = cluster
        self._input.mkdir(parents=True)
        self._count = 0

    def feed(self) -> None:
        """Ten rows more."""
        rows = "".join(f'{{"id": {10 * self._count + step}}}\n' for step in range(10))
        new = self._root / "new.json"
        new.write_text(rows)
        new.rename(self._input / f"{self._count}.json")
        self._count += 1

    def start(self, trigger: dict[str, Any], machines: float = 1.0) -> Driver:
        """A driver that begins when it has so much of the cluster."""
        folders = {
            "location": str(self.location),
            "table": str(self.table),
            "input": str(self._input),
        }
        settings = {"master": self._cluster.master, "trigger": trigger, **folders}
        conf = self._cluster.conf | {"spark.scheduler.minRegisteredResourcesRatio": str(machines)}
        return Driver(settings, self._root / "runs", conf=conf)

    def files(self) -> int:
        """How many files readers see."""
        return len(list(self.table.glob("*.parquet")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield cluster
    cluster.stop()


@pytest.fixture
def job(tmp_path: Path, cluster: Cluster) -> Job:
    job = Job(tmp_path, cluster)
    job.location.mkdir(mode=0o700)
    job.feed()
    return job


def check_refusal(job: Job, output: str) -> None:
    assert f"{PreflightError.__name__}: Job 'orders': its plan keeps state" in output
    assert f"below {job.location}/spark, but not every executor" in output
    assert "(127.0.0.3: FileNotFoundError: No such file or directory)" in output


def test_a_job_whose_executors_share_its_folder_runs(job: Job) -> None:
    ended = job.start(ALL_INPUT).wait()
    assert (ended.code, job.files() > 0) == (0, True), ended.output
    assert list((job.location / "spark").glob(".*")) == []


def test_an_executor_that_comes_later_is_asked_before_the_next_decision(
    cluster: Cluster, job: Job
) -> None:
    """The second machine is not there when the job starts."""
    _, second = cluster.workers
    second.kill()
    driver = job.start(FOR_EVER, machines=0.5)

    def goes_on(files_before: int) -> bool:
        return not driver.running or job.files() > files_before

    try:
        driver.wait_for(lambda: job.files() > 0, "rows in the table")
        second.restart(without=job.location)
        for _ in range(_MANY):
            before = job.files()
            job.feed()
            wait_until(partial(goes_on, before), "the next micro-batch")
            if not driver.running:
                break
        ended = driver.wait()
    finally:
        driver.kill()
    assert ended.code == PreflightError.exit_code, ended.output
    check_refusal(job, ended.output)


def test_a_job_one_of_whose_executors_has_another_disk_is_refused(
    cluster: Cluster, job: Job
) -> None:
    _, second = cluster.workers
    second.kill()
    second.restart(without=job.location)
    ended = job.start(ALL_INPUT).wait()
    assert ended.code == PreflightError.exit_code, ended.output
    check_refusal(job, ended.output)
    assert job.files() == 0
    assert list((job.location / "spark").iterdir()) == []
    job.location = job.location.with_name("shared")
    job.location.mkdir(mode=0o700)
    ended = job.start(ALL_INPUT).wait()
    assert (ended.code, job.files() > 0) == (0, True), ended.output

"""The same job on a standalone Spark cluster: a master and a worker as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from integration.arena import Arena
from integration.nemesis import ROOT
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.services.deadline import Deadline
from twophase.testing.services.ports import free_ports

BATCH = 1000
SPARK_HOME = Path(pyspark.__file__).parent


class Cluster:
    """One master and one worker with two cores."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        [self._port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes = [
            self._start(
                "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(self._port)
            ),
        ]
        self._await("master", "I have been elected leader")
        self._processes.append(
            self._start(
                "worker",
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "-c",
                "2",
                "-m",
                "2g",
                self.master,
            )
        )
        self._await("worker", "Successfully registered with master")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(30)

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_WORKER_DIR": str(self._scratch / "work"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self._scratch / f"{name}.log").open("wb") as log:
            command = (str(SPARK_HOME / "bin" / "spark-class"), *command, "--webui-port", "0")
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def _await(self, name: str, words: str) -> None:
        deadline = Deadline(60)
        while words not in (found := (self._scratch / f"{name}.log").read_text(errors="replace")):
            assert not deadline.over, f"the {name} of the cluster did not start:\n{found}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def test_a_job_runs_and_recovers_on_a_cluster(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, cluster: Cluster
) -> None:
    arena = Arena(kafka, {"facts": mysql}, tmp_path)
    arena.settings["master"] = cluster.master
    arena.produce(3 * BATCH)
    assert arena.run("C06=kill@3").killed
    arena.produce(BATCH)
    arena.finish()
    arena.verify()

"""A standalone Spark cluster of local processes: a master, and workers that stand for machines.

Each worker has an address of its own on the loopback network, so that Spark takes them for
different hosts: it never runs the second attempt of a task where the first one is.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil
import pyspark

from twophase.testing.services.deadline import Deadline
from twophase.testing.services.ports import LOOPBACK, free_ports
from twophase.testing.services.process import Launch, ServerProcess
from twophase.testing.services.spark_start import spark_environment
from twophase.testing.sessions import kill, session_of

SPARK_HOME = Path(pyspark.__file__).parent
_START_TIMEOUT_S = 120
_POLL_S = 0.05
_WITHOUT = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Cluster:
    """A master and some workers of one slot each.

    Args:
        scratch: where logs and work go.
        workers: how many.

    Attributes:
        master: the master's URL.
        conf: for a driver that begins when it has all of the cluster.
        workers: the workers.
    """

    def __init__(self, scratch: Path, workers: int = 2) -> None:
        [port] = free_ports(1)
        self.master = f"spark://{LOOPBACK}:{port}"
        self._master = _Daemon(scratch / "master", LOOPBACK, "Master", "--port", str(port))
        self._master.wait_for("I have been elected leader")
        self.conf = {
            "spark.cores.max": str(workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.executor.extraJavaOptions": _java_options(),
        }
        self.workers = [
            Worker(self.master, f"127.0.0.{number + 2}", scratch) for number in range(workers)
        ]
        for worker in self.workers:
            worker.wait_until_registered()

    def machine_of(self, process: psutil.Process) -> Worker:
        """The worker on which a process runs."""
        for worker in self.workers:
            if process in worker.family():
                return worker
        raise AssertionError(f"{process} runs on no worker of the cluster")

    def bring_back(self) -> None:
        """Start the workers again that are gone."""
        for worker in self.workers:
            if not worker.family():
                worker.restart()

    def stop(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.kill()
        self._master.kill()


class Worker:
    """A machine of the cluster: Spark's worker process, its executors and their Python workers.

    Args:
        master: the master's URL.
        host: the address.
        scratch: where logs and work go.
    """

    def __init__(self, master: str, host: str, scratch: Path) -> None:
        self._master = master
        self._host = host
        self._scratch = scratch
        self._daemon = self._started()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors."""
        return [process for process in self.family() if _EXECUTOR in _command(process)]

    def family(self) -> list[psutil.Process]:
        """All processes of the machine; they stay in its session when their parent is gone."""
        return self._daemon.family()

    def kill(self) -> None:
        """SIGKILL everything on the machine."""
        self._daemon.kill()

    def restart(self, without: Path | None = None) -> None:
        """Bring the machine back after `kill`.

        Args:
            without: a folder that the machine does not share with the others: there it has an
                empty disk of its own.
        """
        self._daemon = self._started(without)
        self.wait_until_registered()

    def wait_until_registered(self) -> None:
        """Wait until the master knows the worker."""
        self._daemon.wait_for("Successfully registered with master")

    def _started(self, without: Path | None = None) -> _Daemon:
        folder = self._scratch / f"worker-{self._host}-{time.monotonic_ns()}"
        return _Daemon(
            folder,
            self._host,
            "Worker",
            "--cores",
            "1",
            "--memory",
            "1g",
            self._master,
            without=without,
        )


class _Daemon:
    """A master or worker of Spark, in a session of its own."""

    def __init__(
        self, folder: Path, host: str, kind: str, *arguments: str, without: Path | None = None
    ) -> None:
        folder.mkdir()
        self._log = folder / "log"
        self._kind = kind
        environment = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_WORKER_DIR": str(folder),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_JAVA_OPTS": _java_options(),
        }
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
        ]
        command += ["--host", host, "--webui-port", "0", *arguments]
        if without is not None:
            command = ["unshare", "--mount", "sh", "-c", _WITHOUT, str(without), *command]
        self._process = ServerProcess(
            Launch(command, environment), folder=folder, log=self._log, detached=False
        )

    def wait_for(self, words: str) -> None:
        """Wait until it has logged that it is ready."""
        deadline = Deadline(_START_TIMEOUT_S)
        while words not in (found := self._log.read_text(errors="replace")):
            assert self._process.exit_code is None, (
                f"the {self._kind} of the cluster ended:\n{found}"
            )
            assert not deadline.over, (
                f"timed out waiting for {words!r} of the {self._kind}:\n{found}"
            )
            time.sleep(_POLL_S)

    def family(self) -> list[psutil.Process]:
        """All processes of its session."""
        return session_of(self._process.pid)

    def kill(self) -> None:
        """SIGKILL it and all of its session."""
        kill(self.family())
        self._process.kill()


def executor_of(python_worker: psutil.Process) -> list[psutil.Process]:
    """The executor that a Python worker belongs to: its JVM and all of its Python processes."""
    for parent in python_worker.parents():
        if _EXECUTOR in _command(parent):
            return [parent, *parent.children(recursive=True)]
    raise AssertionError(f"{python_worker} belongs to no executor")


def _java_options() -> str:
    """What makes the JVMs of drivers start fast, for the others of a cluster."""
    return spark_environment()["SPARK_SUBMIT_OPTS"]


def _command(process: psutil.Process) -> list[str]:
    """The command line; empty once the process is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []

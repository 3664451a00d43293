"""Starts Spark's JVM, as `pyspark.java_gateway.launch_gateway` does, but out of the way of our signals, and of its own compiler.

A SIGTERM to our process group, or to every process of a systemd unit, is for this process to act on: it stops the job, and then
Spark. A JVM that hears of it too tears down Spark under the job. It ignores SIGINT and SIGTERM therefore, in a session of its
own, and ends when we do: its standard input is a pipe from us.

Half of the JVM's processor time in a start is HotSpot's optimising compiler (C2). `slow_down_optimiser` has it give way to the
job's own threads wherever both want a processor.
"""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_NOTE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_POLL_S = 0.02
_OPTIMISER, _OPTIMISER_NICE = "C2 CompilerThre", 10  # as Linux cuts the thread's name
# HotSpot has one C1 thread then, from the start. With more processors a C2 thread may start others, which inherit its priority.
_FEW_PROCESSORS = 4
# What is ignored stays ignored in what a shell runs, and HotSpot leaves these two alone if they are.
_DEAF = 'trap "" INT TERM; exec "$@"'


def start_jvm(
    conf: SparkConf, environment: Mapping[str, str], output: IO[bytes], meanwhile: Callable[[], object] = lambda: None
) -> Any:
    """Start Spark's JVM.

    Args:
        conf: of Spark.
        environment: variables for it, added to ours.
        output: takes what it prints on its standard error.
        meanwhile: called while it starts.

    Returns:
        Its gateway, as `SparkContext` takes it.

    Raises:
        RuntimeError: it ended at once; what it printed says why.
        Exception: what `meanwhile` raises; the JVM is gone then.
    """
    with tempfile.TemporaryDirectory(prefix="twophase-jvm-") as folder:
        note = Path(folder) / "connection"
        own = {**environment, "SPARK_CONNECT_MODE": "0", _NOTE: str(note)}
        process = subprocess.Popen(
            ["/bin/sh", "-c", _DEAF, "sh", *_command(conf)],
            stdin=subprocess.PIPE,
            stderr=output,
            env={**os.environ, **own},
            start_new_session=True,
        )
        try:
            meanwhile()
            port, secret = _wait_for(note, process)
        except BaseException:
            _kill(process)
            raise
    with _variables({_PORT: str(port), _SECRET: secret}):
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process
    return gateway


def slow_down_optimiser(pid: int) -> None:
    """Lower the priority of a JVM's C2 threads, on a machine of few processors; with more, they have one to themselves.

    Args:
        pid: of the JVM.
    """
    if (os.cpu_count() or 1) > _FEW_PROCESSORS:
        return
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            if (thread / "comm").read_text().startswith(_OPTIMISER):
                number = int(thread.name)
                os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, number) + _OPTIMISER_NICE)


def _command(conf: SparkConf) -> list[str]:
    home = _find_spark_home()
    settings = [word for key, value in conf.getAll() for word in ("--conf", f"{key}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(home, "bin", "spark-submit")), *settings, *arguments]


def _wait_for(note: Path, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Port and secret, each as Java's DataOutputStream writes them, when the JVM has noted them."""
    while not note.is_file():
        if process.poll() is not None:
            raise RuntimeError(f"its process ended with {process.returncode}")
        time.sleep(_POLL_S)
    data = note.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a JVM that has done nothing yet, and what is starting it: scripts, and a JVM that makes its command."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


@contextmanager
def _variables(added: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

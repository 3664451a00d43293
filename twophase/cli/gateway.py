"""Starts Spark's JVM like PySpark's `launch_gateway`, but apart from signals and its compiler.

When SIGTERM is sent to our process group, or to every process of a systemd unit, this process must
handle it: it stops the job, and then Spark. A JVM that handled it too would tear down Spark under
the job. So the JVM ignores SIGINT and SIGTERM, runs in its own session, and ends when we do: its
standard input is a pipe from us.

Half of the JVM's processor time in a start goes to HotSpot's optimising compiler (C2).
`slow_down_optimiser` lets the job's own threads go first when both want a processor.
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
# Up to here HotSpot has one C1 thread from the start. With more, a C2 thread may start others,
# which inherit its nice.
_FEW_PROCESSORS = 4
# Signals that a shell ignores stay ignored in what it runs, and HotSpot does not handle these two
# if they are ignored.
_DEAF = 'trap "" INT TERM; exec "$@"'


def start_jvm(
    conf: SparkConf,
    environment: Mapping[str, str],
    output: IO[bytes],
    meanwhile: Callable[[], object],
) -> Any:
    """Start Spark's JVM.

    Args:
        conf: Spark's configuration.
        environment: variables for the JVM, added to ours.
        output: receives what the JVM prints.
        meanwhile: called while the JVM starts.

    Returns:
        The JVM's gateway, as `SparkContext` takes it.

    Raises:
        RuntimeError: the JVM ended at once; its output says why.
        Exception: what `meanwhile` raises; the JVM is killed then.
    """
    with tempfile.TemporaryDirectory(prefix="twophase-jvm-") as folder:
        note = Path(folder) / "connection"
        own = {**environment, "SPARK_CONNECT_MODE": "0", _NOTE: str(note)}
        process = _start_process(conf, own, output)
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


def _start_process(
    conf: SparkConf, environment: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _DEAF, "sh", *_command(conf)],
        stdin=subprocess.PIPE,
        stdout=output,  # Ivy's first line; a live panel would be torn by it
        stderr=output,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def slow_down_optimiser(pid: int) -> None:
    """Lower the priority of a JVM's C2 threads on a machine with few processors.

    Args:
        pid: the JVM's process id.
    """
    if (os.cpu_count() or 1) > _FEW_PROCESSORS:
        return
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            if (thread / "comm").read_text().startswith(_OPTIMISER):
                number = int(thread.name)
                os.setpriority(
                    os.PRIO_PROCESS,
                    number,
                    os.getpriority(os.PRIO_PROCESS, number) + _OPTIMISER_NICE,
                )


def _command(conf: SparkConf) -> list[str]:
    home = _find_spark_home()
    settings = [word for key, value in conf.getAll() for word in ("--conf", f"{key}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(home, "bin", "spark-submit")), *settings, *arguments]


def _wait_for(note: Path, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait until the JVM has noted its port and secret, as a DataOutputStream; return both."""
    while not note.is_file():
        if process.poll() is not None:
            raise RuntimeError(f"its process ended with {process.returncode}")
        time.sleep(_POLL_S)
    data = note.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a JVM that has done nothing yet, with its scripts and the launcher JVM."""
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

"""Starting Spark in half the processor time, for tests and demos that start a driver again and again.

classes     the JVM takes Spark's classes ready-made from an archive that is recorded once (application CDS)
compiler    a driver that lives for seconds is not worth optimised machine code or a parallel collector
bytecode    Spark puts pyspark.zip first on the path of its Python workers; it holds no bytecode, so that each of them
            compiles pyspark anew. The installed pyspark is the same and is compiled already

    os.environ.update(spark_environment())     # before the first SparkSession
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from twophase.testing.services.cache import cached
from twophase.testing.services.java import java, pyspark_jars
from twophase.testing.services.progress import show_progress

_ARCHIVE = "classes.jsa"
_PYTHON = "python"
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_RECORD_TIMEOUT_S = 300

_WORKER_PYTHON = """\
#!/bin/sh
left=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) left=$left${{left:+:}}$entry ;;
  esac
done
PYTHONPATH=$left exec {python} "$@"
"""


def spark_environment(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables for a process that is going to start Spark.

    The first call on a machine records the archive, which takes about half a minute. A JVM that cannot record or read one
    starts without.

    Args:
        conf: more of Spark's configuration.
    """
    home = cached(_name(), _record)
    archive = home / _ARCHIVE
    # -Xlog: a mismatch costs time only, and must not look like an error in the log.
    ready = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.is_file() else []
    return _environment(home, [*_SHORT_LIVED, *ready], conf or {})


def _name() -> str:
    """Of the folder in the cache: an archive fits one JVM and the very jars it was recorded with, the workers' program one Python.

    The JVM compares the time of each jar, and without a word loads nothing from an archive of others: a new installation
    in the same folder needs a new archive.
    """
    runtime = Path(java()).resolve()
    files = [runtime, *sorted(pyspark_jars().iterdir())]
    identity = [sys.executable, *(f"{file}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files)]
    return f"spark-{version('pyspark')}-{hashlib.sha256(chr(0).join(identity).encode()).hexdigest()[:12]}"


def _environment(home: Path, options: Sequence[str], conf: Mapping[str, str]) -> dict[str, str]:
    # Not spark.driver.extraJavaOptions: those stay free for the one who configures Spark.
    found = {"PYSPARK_PYTHON": str(home / _PYTHON), "SPARK_SUBMIT_OPTS": shlex.join(options)}
    if conf:
        arguments = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        found["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    return found


def _record(home: Path) -> None:
    program = home / _PYTHON
    program.write_text(_WORKER_PYTHON.format(python=shlex.quote(sys.executable)))
    program.chmod(0o755)
    # A machine that is too busy for it starts without.
    with show_progress("Recording Spark's classes for faster starts"), suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "twophase.testing.spark_recording"],
            env=os.environ | _environment(home, [*_SHORT_LIVED, f"-XX:ArchiveClassesAtExit={home / _ARCHIVE}"], {}),
            capture_output=True,
            timeout=_RECORD_TIMEOUT_S,
            check=False,
        )
    _drop_outdated(home.parent)


def _drop_outdated(cache: Path) -> None:
    """Remove what was recorded for this Python before, and for those that are gone: each archive takes 160 MB."""
    for program in cache.glob(f"spark-*/{_PYTHON}"):
        *_, interpreter, _ = shlex.split(program.read_text().splitlines()[-1])
        if interpreter == sys.executable or not Path(interpreter).exists():
            shutil.rmtree(program.parent)

"""A driver in a virtual environment that is not activated: the PATH has another
python3, without twophase. A session that has called `twophase.register`, and a job in one that has
not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

REGISTER = """
def imports(batches):
    import pyarrow, twophase.internals.workers
    yield from batches
twophase.register(spark)
print(spark.range(3).mapInArrow(imports, "id long").count())
"""
WRITE_STREAM = """
for name in ("1", "2", "3"):
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{name}.csv").write_text(name)
rows = spark.readStream.schema("id long").csv(str(folder / "in"))
writer = twophase.write_stream(rows, name="orders").sink("out", "file", path=str(folder / "out"))
writer = writer.options(checkpointLocation=str(folder / "job"), **{"restart.strategy": "none"})
writer.trigger(availableNow=True).start().await_termination()
print(spark.read.parquet(str(folder / "out")).count())
"""
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import twophase
folder = Path(sys.argv[1])
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    exec(sys.argv[2])
except twophase.TwoPhaseError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
EACH = pytest.mark.parametrize("by", [REGISTER, WRITE_STREAM], ids=["register", "write_stream"])


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A python3 of the same version that finds none of our packages."""
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    program.chmod(0o755)
    return program


def run(other: Path, by: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = os.pathsep.join([str(other.parent), inherited["PATH"]])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(other.parents[1]), by],
        env={**inherited, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )


@EACH
@pytest.mark.proof
def test_the_workers_run_the_drivers_python(other_python: Path, by: str) -> None:
    done = run(other_python, by)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@EACH
def test_a_python_without_twophase_is_named_at_once(other_python: Path, by: str) -> None:
    done = run(other_python, by, PYSPARK_PYTHON=str(other_python))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(
        f"PreflightError: Spark's workers run {other_python}, which cannot import twophase"
    )
    name, value = last.rpartition("Next: start the driver with ")[2].split("=")
    assert (name, value) == ("PYSPARK_PYTHON", sys.executable)
    done = run(other_python, by, **{name: value})
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr

"""A driver in a virtual environment that is not activated: the PATH has another
python3, without twophase.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import twophase
def imports(batches):
    import pyarrow, twophase.internals.workers
    yield from batches
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    twophase.register(spark)
except twophase.TwoPhaseError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print(spark.range(3).mapInArrow(imports, "id long").count())
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A python3 of the same version that finds none of our packages."""
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    program.chmod(0o755)
    return program


def run(other: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = os.pathsep.join([str(other.parent), inherited["PATH"]])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.proof
def test_the_workers_run_the_drivers_python(other_python: Path) -> None:
    done = run(other_python)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_python_without_twophase_is_named_at_once(other_python: Path) -> None:
    done = run(other_python, PYSPARK_PYTHON=str(other_python))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(
        f"PreflightError: Spark's workers run {other_python}, which cannot import twophase"
    )
    assert last.endswith(f"Next: start the driver with PYSPARK_PYTHON={sys.executable}")

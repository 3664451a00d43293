"""Runs chosen tests with each release of PySpark that is tried, in an environment of its own.

    python -m harness.versions                 every release
    python -m harness.versions 4.1.4 4.3.0     these

An environment is made on its first use, in `.versions/<release>`: everything of `constraints.txt`,
and the release in the place of its PySpark. Tests of what a release lacks are skipped there
(`harness/spark_features.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".versions"
_READY = ".ready"

RELEASES: Final = ("4.1.4", "4.2.0", "4.2.1", "4.3.0")
"""The newest release of each supported version, and the one of constraints.txt."""

CHOSEN: Final = (
    "tests/test_spark_versions.py",
    "tests/spark/folder",
    "tests/spark/plan/test_shuffle_settings.py",
    "tests/spark/plan/test_shuffles.py",
    "tests/spark/job/test_job.py",
    "tests/spark/plugin/test_plugin_spark.py",
    "tests/functions/test_keyed_state_spark.py",
)


class VersionsError(Exception):
    """A release is not known, or its environment cannot be made."""


def python_of(release: str) -> Path:
    """Return the Python of a release's environment, which is made if it is not there.

    Raises:
        VersionsError: it cannot be made; the next call begins again.
    """
    folder = FOLDER / release
    python = folder / "bin" / "python"
    if not (folder / _READY).exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "-c", "constraints.txt", "-e", ".[dev]"])
        # Delta's package asks for another one; the Delta sink is refused there by name.
        _run([*pip, "--no-deps", f"pyspark=={release}"])
        (folder / _READY).touch()
    return python


def _run(command: Sequence[str]) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise VersionsError(f"failed: {' '.join(command)}")


def passes(release: str) -> bool:
    """Run the chosen tests with a release, and return whether they pass."""
    command = [str(python_of(release)), "-m", "pytest", "-q", *CHOSEN]
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
    return not subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(chosen: Sequence[str]) -> int:
    """Run the chosen releases one after the other; return the exit code.

    Raises:
        VersionsError: one is not known.
    """
    if unknown := sorted({*chosen} - {*RELEASES}):
        raise VersionsError(f"{', '.join(unknown)}: not one of {', '.join(RELEASES)}")
    failed = []
    for release in chosen or RELEASES:
        sys.stdout.write(f"== PySpark {release} ==\n")
        sys.stdout.flush()
        if not passes(release):
            failed.append(release)
    sys.stdout.write(f"failed with PySpark: {', '.join(failed) or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except VersionsError as error:
        sys.exit(f"error: {error}")

"""Makes environments of their own for tests that need other packages than the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_READY = ".ready"
_MADE_OF = ("setup.cfg", "constraints.txt", "constraints-paimon.txt")


class UnmadeError(Exception):
    """An environment cannot be made."""


def is_made(folder: Path) -> bool:
    """Return whether the environment in a folder is whole, and of today's packages."""
    ready = folder / _READY
    made_of = [ROOT / name for name in _MADE_OF]
    return ready.exists() and all(
        file.stat().st_mtime_ns <= ready.stat().st_mtime_ns for file in made_of
    )


def python_in(folder: Path) -> Path:
    """Return the Python of the environment in a folder."""
    return folder / "bin" / "python"


def make(folder: Path, *installs: Sequence[str], python: str = sys.executable) -> None:
    """Make an environment, in place of what is there.

    Args:
        folder: where.
        installs: what `pip install` is told, one call after the other.
        python: makes it.

    Raises:
        UnmadeError: there is no such Python, or a call failed; the environment is not made.
    """
    if shutil.which(python) is None:
        raise UnmadeError(f"there is no {python} on the PATH")
    pip = [str(python_in(folder)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for command in (
        [python, "-m", "venv", "--clear", str(folder)],
        *([*pip, *arguments] for arguments in installs),
    ):
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise UnmadeError(f"failed: {' '.join(command)}")
    (folder / _READY).touch()

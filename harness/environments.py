"""Makes environments of their own for tests that need other packages than the rest."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_READY = ".ready"


class UnmadeError(Exception):
    """An environment cannot be made."""


def is_made(folder: Path) -> bool:
    """Return whether the environment in a folder is whole."""
    return (folder / _READY).exists()


def python_in(folder: Path) -> Path:
    """Return the Python of the environment in a folder."""
    return folder / "bin" / "python"


def make(folder: Path, *installs: Sequence[str]) -> None:
    """Make an environment, in place of what is there.

    Args:
        folder: where.
        installs: what `pip install` is told, one call after the other.

    Raises:
        UnmadeError: one of them failed; the environment is not made.
    """
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python_in(folder)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for arguments in installs:
        command = [*pip, *arguments]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise UnmadeError(f"failed: {' '.join(command)}")
    (folder / _READY).touch()

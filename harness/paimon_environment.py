"""The environment of the Paimon sink's tests: pypaimon wants an older pyarrow than all else has.

    python -m harness.paimon_environment            make it in .venv-paimon
    python -m harness.paimon_environment freeze     print constraints-paimon.txt

It has everything of `constraints.txt`, but for what `constraints-paimon.txt` names in another
version or besides. Elsewhere these tests are skipped, with the reason; with TWOPHASE_PAIMON set to
`required`, as `make test` has it where it runs them, they fail instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.environments import ROOT, UnmadeError, make, python_in

FOLDER = ROOT / ".venv-paimon"
TESTS = ("tests/sinks/paimon/", "integration/paimon/")
VARIABLE = "TWOPHASE_PAIMON"
WHY_NOT = "pypaimon is not installed: make test runs it in an environment of its own"
_HARNESSES = ("harness.paimon_harness", "integration.paimon")
_ALL_OF = ROOT / "integration/paimon"
_HEAD = (
    "# The versions with which Paimon's tests run, where they are not those of constraints.txt. "
    "Made by: make constraints"
)


def is_here() -> bool:
    """Return whether these tests can run: pypaimon is installed, or has to be."""
    return find_spec("pypaimon") is not None or os.environ.get(VARIABLE) == "required"


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """A hook for the conftest.py of the folders of `TESTS`: what needs pypaimon is skipped.

    That is all of integration/paimon, and of tests/sinks/paimon what imports a harness.
    """
    if is_here() or not _needs_it(module_path):
        return None  # as pytest does it
    return _Skipped.from_parent(parent, path=module_path)


def _needs_it(module: Path) -> bool:
    return module.is_relative_to(_ALL_OF) or any(name in module.read_text() for name in _HARNESSES)


class _Skipped(pytest.Module):
    def collect(self) -> Sequence[pytest.Item]:
        pytest.skip(WHY_NOT, allow_module_level=True)


def needs_paimon() -> pytest.MarkDecorator:
    """Return the mark of cases that need pypaimon, among others that do not."""
    return pytest.mark.skipif(not is_here(), reason=WHY_NOT)


def constraints(common: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return lines of constraints, with those of `own` in place of others of that name.

    Args:
        common: lines such as `pyarrow==26.0.1`.
        own: the same.
    """
    names = {_name(line) for line in own}
    return [*(line for line in common if _name(line) not in names), *own]


def differing(common: Sequence[str], installed: Sequence[str]) -> list[str]:
    """Return the lines of what is installed that constraints lack."""
    return sorted({*installed} - {*common})


def _name(line: str) -> str:
    return line.partition("==")[0]


def _lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if line[:1] not in ("", "#")]


def make_in(folder: Path, *more: Sequence[str], python: str = sys.executable) -> None:
    """Make the environment in a folder.

    Args:
        folder: where.
        more: what `pip install` is told after it.
        python: makes it.

    Raises:
        UnmadeError: it cannot be made.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        common, own = _lines("constraints.txt"), _lines("constraints-paimon.txt")
        file.write("\n".join(constraints(common, own)) + "\n")
        file.flush()
        make(folder, ["-c", file.name, "-e", ".[dev,paimon]"], *more, python=python)


def main(arguments: Sequence[str]) -> None:
    """Make the environment, or print what it has.

    Raises:
        UnmadeError: it cannot be made.
    """
    if arguments == ["freeze"]:
        pip = [str(python_in(FOLDER)), "-m", "pip", "freeze", "--exclude-editable"]
        found = subprocess.run(pip, check=True, capture_output=True, text=True).stdout
        lines = [_HEAD, *differing(_lines("constraints.txt"), found.splitlines())]
        sys.stdout.write("\n".join(lines) + "\n")
        return
    make_in(FOLDER)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UnmadeError as error:
        sys.exit(f"error: {error}")

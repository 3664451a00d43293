"""Another pyspark is refused by name, before anything of it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from twophase.errors import PreflightError
from twophase.internals import pyspark_version
from twophase.internals.pyspark_version import check_pyspark, required

API = ["-c", "import twophase; twophase.write_stream"]


def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with a folder before all others."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def install(path: Path, version: str | None) -> Path:
    """Another pyspark, such as that of a Spark distribution; None makes a folder of that name."""
    (path / "pyspark").mkdir()
    if version is not None:
        (path / "pyspark" / "__init__.py").touch()
        (path / "pyspark" / "version.py").write_text(f'__version__: str = "{version}"\n')
    else:
        (path / "pyspark" / "__init__.py").write_text("raise ImportError('broken')\n")
    return path


@pytest.mark.parametrize("version", ["3.5.1", "4.1.0", "4.2.1", None])
@pytest.mark.parametrize("words", [["run"], ["check"], ["checkpoints"], ["--help"]])
def test_the_command_refuses_another_pyspark(
    tmp_path: Path, version: str | None, words: list[str]
) -> None:
    done = run(install(tmp_path, version), "-m", "twophase.cli", *words, "job.yaml")
    found = f"pyspark {version} in {tmp_path / 'pyspark'}" if version else "none"
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: twophase needs pyspark {required()}, and {sys.executable} has {found}. "
        "[PreflightError]\n"
        f"Next: run: {sys.executable} -m pip install pyspark=={required()}; "
        "and leave other versions out of PYTHONPATH.\n"
    )


def test_python_refuses_another_pyspark(tmp_path: Path) -> None:
    done = run(install(tmp_path, "3.5.1"), *API)
    assert done.returncode == 1
    assert f"PreflightError: twophase needs pyspark {required()}, and " in done.stderr


def test_of_a_twophase_that_is_not_installed_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    install(tmp_path, "3.5.1")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PreflightError):
        check_pyspark()
    monkeypatch.setattr(pyspark_version, "requires", none)
    check_pyspark()


@pytest.mark.parametrize("suffix", ["", ".dev1", "-vendor-2"])
def test_a_build_of_the_required_version_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    install(tmp_path, f"{required()}{suffix}")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    check_pyspark()

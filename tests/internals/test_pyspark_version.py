"""Another pyspark is refused by name, before anything of it is used."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from twophase.errors import PreflightError
from twophase.internals.pyspark_version import NEWEST, OLDEST, RANGE, SPECIFIER, check_pyspark

ROOT = Path(__file__).parents[2]

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


@pytest.mark.parametrize("version", ["3.5.1", "4.0.5", "4.4.0", "5.0.0", None])
@pytest.mark.parametrize("words", [["run"], ["check"], ["checkpoints"], ["--help"]])
def test_the_command_refuses_another_pyspark(
    tmp_path: Path, version: str | None, words: list[str]
) -> None:
    done = run(install(tmp_path, version), "-m", "twophase.cli", *words, "job.yaml")
    found = f"pyspark {version} in {tmp_path / 'pyspark'}" if version else "none"
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: twophase needs pyspark {RANGE}, and {sys.executable} has {found}. "
        "[PreflightError]\n"
        f"Next: run: {sys.executable} -m pip install '{SPECIFIER}'; "
        "and leave other versions out of PYTHONPATH.\n"
    )


def test_python_refuses_another_pyspark(tmp_path: Path) -> None:
    done = run(install(tmp_path, "3.5.1"), *API)
    assert done.returncode == 1
    assert f"PreflightError: twophase needs pyspark {RANGE}, and " in done.stderr
    [command] = re.findall(r"Next: run: (.+); and leave", done.stderr)
    pip = [*shlex.split(command), "--dry-run", "--no-index"]
    assert "already satisfied: pyspark" in subprocess.check_output(pip, text=True)
    (tmp_path / "pyspark").rename(tmp_path / "left_out")
    assert run(tmp_path, *API).returncode == 0


@pytest.mark.parametrize(("version", "found"), [("3.5.1", " has pyspark 3.5.1 in "), ("4.2.0", "")])
def test_the_version_of_an_archive_counts_as_that_of_a_folder(
    tmp_path: Path, version: str, found: str
) -> None:
    """`spark-submit` puts `python/lib/pyspark.zip` before everything else."""
    archive = shutil.make_archive(str(tmp_path / "lib"), "zip", install(tmp_path, version))
    check = "from twophase.internals.pyspark_version import check_pyspark as check; check()"
    done = run(Path(archive), "-c", check)
    assert (done.returncode, done.stderr == "") == ((1, False) if found else (0, True)), done.stderr
    assert found in done.stderr


def test_the_package_asks_for_what_the_check_takes() -> None:
    [asked] = re.findall(r"^    pyspark (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert f"pyspark{asked.replace(' ', '')}" == SPECIFIER


def version(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


@pytest.mark.parametrize("patch", [".0", ".4", ".0.dev1", ".2-vendor-2", ".11"])
@pytest.mark.parametrize("right", [OLDEST, NEWEST])
def test_every_release_and_build_of_a_version_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: tuple[int, int], patch: str
) -> None:
    install(tmp_path, f"{version(right)}{patch}")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    check_pyspark()


@pytest.mark.parametrize(
    "wrong", [(OLDEST[0], OLDEST[1] - 1), (NEWEST[0], NEWEST[1] + 1), (NEWEST[0] + 1, 0)]
)
def test_the_versions_around_them_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, int]
) -> None:
    install(tmp_path, f"{version(wrong)}.1")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PreflightError, match=f"has pyspark {version(wrong)}.1 in"):
        check_pyspark()

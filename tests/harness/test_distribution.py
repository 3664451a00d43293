"""Which tests share a process when several run side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.distribution import SPLIT

ROOT = Path(__file__).parents[2]

# Each test notes its process. Those of the split file wait for one another, which they can only
# do in two processes.
KEPT = """
import os, pytest
@pytest.mark.parametrize("number", range(4))
def test_kept(number):
    open(f"kept-{os.getpid()}", "a").close()
"""
HALVES = """
import os, threading, pytest
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("own", "other"), [("left", "right"), ("right", "left")] * 3)
def test_split(own, other):
    open(own, "a").close()
    while not os.path.exists(other):
        threading.Event().wait(0.01)
"""

# A plugin fails after a test, in the process that runs it.
FAILING_PLUGIN = """
import os, pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    result = yield
    if "PYTEST_XDIST_WORKER" in os.environ and "[2]" in item.nodeid:
        raise ValueError("no such process")
    return result
"""


CHEAP = "tests/harness/test_poller.py"
"""By the ledger, so it runs after the split file, whose tests have both processes then."""


def test_a_file_stays_in_one_process_unless_it_is_split(tmp_path: Path) -> None:
    (tmp_path / "integration/getting_started").mkdir(parents=True)
    (tmp_path / "integration/getting_started/test_demo.py").write_text(HALVES)
    (tmp_path / CHEAP).parent.mkdir(parents=True)
    (tmp_path / CHEAP).write_text(KEPT)
    (tmp_path / "pytest.ini").touch()
    run = run_distributed(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(list(tmp_path.glob("kept-*"))) == 1


def test_an_internal_error_of_a_process_is_what_a_failing_run_ends_with(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(FAILING_PLUGIN)
    (tmp_path / "test_kept.py").write_text(KEPT)
    (tmp_path / "test_other.py").write_text(KEPT)
    (tmp_path / "pytest.ini").touch()
    run = run_distributed(tmp_path)
    assert run.returncode == 3
    end = "\n".join((run.stdout + run.stderr).splitlines()[-20:])
    assert "ValueError: no such process" in end


@pytest.mark.parametrize("file", sorted(SPLIT))
def test_a_file_that_is_split_shares_nothing_among_its_tests(file: str) -> None:
    source = (ROOT / file).read_text()
    assert not [
        word for word in ("mark.relay", 'scope="module"', 'scope="class"') if word in source
    ]


def run_distributed(folder: Path) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "harness.distribution", "-p", "harness.cost_ledger", "-p", "harness.selection"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *plugins,
            "-n",
            "2",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

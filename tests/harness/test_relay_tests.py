"""Tests that hand a job on: one that fails is one failure, and `-k` brings along
what a link needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = """
import pytest

@pytest.fixture(scope="module", params=["a", "b"])
def kind(request):
    return request.param

@pytest.fixture(scope="module")
def job(kind):
    return []

@pytest.mark.relay("kind")
@pytest.mark.parametrize("link", [1, 2, 3])
def test_link(kind, job, link):
    job.append(link)
    assert job == [*range(1, link + 1)], "the job was not handed on"
    assert (kind, link) != {bad}

def test_alone():
    pass
"""


def outcomes(folder: Path, bad: object, *options: str) -> dict[str, str]:
    """What became of each test that was run."""
    (folder / "test_chain.py").write_text(MODULE.replace("{bad}", repr(bad)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "harness.relay_tests",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(
        [*command, "test_chain.py"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(
        r"^test_chain\.py::(\S+) (PASSED|FAILED|SKIPPED)", done.stdout, flags=re.MULTILINE
    )
    assert found, done.stdout + done.stderr
    return dict(found)


def test_a_link_that_fails_is_one_failure_and_other_relays_go_on(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ("a", 2))
    assert found == {
        "test_link[a-1]": "PASSED",
        "test_link[a-2]": "FAILED",
        "test_link[a-3]": "SKIPPED",
        "test_link[b-1]": "PASSED",
        "test_link[b-2]": "PASSED",
        "test_link[b-3]": "PASSED",
        "test_alone": "PASSED",
    }


def test_a_chosen_link_brings_along_those_before_it(tmp_path: Path) -> None:
    assert outcomes(tmp_path, None, "-k", "b-2") == {
        "test_link[b-1]": "PASSED",
        "test_link[b-2]": "PASSED",
    }
    assert outcomes(tmp_path, None, "-k", "alone") == {"test_alone": "PASSED"}

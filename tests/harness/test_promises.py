"""Each promise of docs/reliability.md has a test in `make test` and one in `make proof`, or in
`make versions` if its row says so, and both are where the page says.

Its first table says what backs a promise, its second what of that runs when: a row each, by the
same name. What a run takes is asked of pytest, with the options of that run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness import paimon_environment
from harness.environments import is_made, python_in
from harness.versions import TRIALS

ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`([\w/]+\.py(?:::[^`]+)?)`")
_FILE_OR_FOLDER = re.compile(r"`(\w+(?:/\w+)+|[\w/]+\.py)[:`]")


def table(section: str) -> list[list[str]]:
    """The rows of the one table in a section of the page."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return cells[2:]


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Promise, tests in `make test`, tests in `make proof`: files, or tests as pytest names them,
    perhaps without their case.
    """
    return [
        (promise, _TEST.findall(test), _TEST.findall(proof))
        for promise, test, proof in table("What runs when")
    ]


def promises() -> list[tuple[str, list[str]]]:
    """Promise, files that back it, perhaps without their folder; folders only of a promise
    that names no file.
    """
    found: list[tuple[str, list[str]]] = []
    for promise, _, backed_by in table("Promises"):
        names = _FILE_OR_FOLDER.findall(backed_by)
        found.append((promise, [name for name in names if name.endswith(".py")] or names))
    return found


def collect(tests: list[str], *options: str) -> set[str]:
    """What pytest would run of some files, each in its environment."""
    files = sorted({test.partition("::")[0] for test in tests})
    found = _collected(sys.executable, [file for file in files if not _of_paimon(file)], *options)
    if is_made(paimon_environment.FOLDER):
        python = str(python_in(paimon_environment.FOLDER))
        found |= _collected(python, list(filter(_of_paimon, files)), *options)
    return found


def _of_paimon(test: str) -> bool:
    return test.startswith(paimon_environment.TESTS)


def _collected(python: str, files: list[str], *options: str) -> set[str]:
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *options,
            *files,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.fixture(scope="module")
def in_test() -> set[str]:
    return collect([name for _, test, _ in rows() for name in test])


@pytest.fixture(scope="module")
def in_proof() -> set[str]:
    return collect([name for _, _, proof in rows() for name in proof], "--proof")


def in_versions() -> set[str]:
    return {tests for trial in TRIALS for tests in trial.tests}


def test_each_promise_has_one_row_of_what_runs_and_each_row_a_promise() -> None:
    backed, run = (
        Counter(row[0] for row in table(section)) for section in ("Promises", "What runs when")
    )
    assert backed == run
    assert {*run.values()} == {1}


@pytest.mark.parametrize("row", range(len(rows())), ids=[row[0] for row in rows()])
def test_a_promise_is_backed_by_both(in_test: set[str], in_proof: set[str], row: int) -> None:
    promise, test, proof = rows()[row]
    assert test, promise
    assert proof, promise
    if any(map(_of_paimon, [*test, *proof])) and not is_made(paimon_environment.FOLDER):
        pytest.skip(paimon_environment.WHY_NOT)
    assert not [name for name in test if not _takes(in_test, name)], "make test leaves it out"
    [cell] = [cells[2] for cells in table("What runs when") if cells[0] == promise]
    taken = in_versions() if "`make versions`" in cell else in_proof
    assert not [name for name in proof if not _takes(taken, name)], "make proof leaves it out"


@pytest.mark.parametrize(
    ("promise", "files"), promises(), ids=[promise for promise, _ in promises()]
)
def test_what_runs_is_what_backs_the_promise(promise: str, files: list[str]) -> None:
    """Its row takes a file that the first table names for it."""
    [run] = [[*test, *proof] for name, test, proof in rows() if name == promise]
    assert [file for file in files for other in run if _is(file, other)], (
        f"its row takes none of {files}"
    )


def test_whatever_make_proof_takes_can_be_asked_for_by_its_part() -> None:
    files = [
        str(path.relative_to(ROOT))
        for folder in ("tests", "integration", "verification")
        for path in (ROOT / folder).rglob("test_*.py")
    ]
    proofs = [file for file in files if _has_proof(file)]
    assert proofs
    assert not [file for file in proofs if "mark.part(" not in (ROOT / file).read_text()]


def test_of_what_a_run_takes_a_name_means_a_file_a_test_or_a_case() -> None:
    taken = {"tests/test_a.py::test_b[c]", "tests/test_a.py::test_d"}
    named = ["tests/test_a.py", *taken, "tests/test_a.py::test_b"]
    assert all(_takes(taken, name) for name in named)
    assert not [
        name
        for name in ("tests/test.py", "test_a.py", "tests/test_a.py::test_b[d]")
        if _takes(taken, name)
    ]


def _takes(taken: set[str], name: str) -> bool:
    """Whether a run takes a file, a test, or one of its cases."""
    return any(test == name or test.startswith((f"{name}::", f"{name}[")) for test in taken)


def _is(named: str, test: str) -> bool:
    """Whether a name in the first table, perhaps without its folder, or of a folder, means
    the file of a test.
    """
    file = test.partition("::")[0]
    return file == named or file.endswith(f"/{named}") or file.startswith(f"{named}/")


def _has_proof(file: str) -> bool:
    return (
        re.search(
            r"mark\.(proof|thin)|representatives\(|first_of\(|_in_proof\b",
            (ROOT / file).read_text(),
        )
        is not None
    )

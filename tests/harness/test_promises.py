"""Each promise of docs/reliability.md has a test in `make test` and one in `make proof`, and both are where the page says.

Its first table says what backs a promise, its second what of that runs when.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"`([\w/]+\.py)`")
_FILE_OR_FOLDER = re.compile(r"`(\w+(?:/\w+)+|[\w/]+\.py)`")


def table(section: str) -> list[list[str]]:
    """The rows of the one table in a section of the page."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return cells[2:]


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Promise, files in `make test`, files in `make proof`."""
    return [(promise, _FILE.findall(test), _FILE.findall(proof)) for promise, test, proof in table("What runs when")]


def promises() -> list[tuple[str, list[str]]]:
    """Promise, files that back it; folders only of a promise that names no file. `the same test` is that of the row before."""
    found: list[tuple[str, list[str]]] = []
    for promise, backed_by in table("Promises"):
        names = _FILE_OR_FOLDER.findall(backed_by)
        files = [name for name in names if name.endswith(".py")] or names
        found.append((promise, files or found[-1][1]))
    return found


@pytest.mark.parametrize(("promise", "test", "proof"), rows(), ids=[row[0] for row in rows()])
def test_a_promise_is_backed_by_both(promise: str, test: list[str], proof: list[str]) -> None:
    assert test, promise
    assert proof, promise
    assert not [file for file in test if _is_whole_proof(file)], "a file that make test leaves out"
    assert not [file for file in proof if not _has_proof(file)], "a file that make proof leaves out"


@pytest.mark.parametrize(("promise", "files"), promises(), ids=[promise for promise, _ in promises()])
def test_each_promise_is_in_the_table_of_what_runs(promise: str, files: list[str]) -> None:
    """A row of that table takes a file that backs the promise."""
    run = {file for _, test, proof in rows() for file in [*test, *proof]}
    assert [file for file in files for other in run if _is(file, other)], f"no row takes one of {files}"


def test_whatever_make_proof_takes_can_be_asked_for_by_its_part() -> None:
    files = [
        str(path.relative_to(ROOT))
        for folder in ("tests", "integration")
        for path in (ROOT / folder).rglob("test_*.py")
    ]
    proofs = [file for file in files if _has_proof(file)]
    assert proofs
    assert not [file for file in proofs if "mark.part(" not in (ROOT / file).read_text()]


def _is(named: str, file: str) -> bool:
    """Whether a name in the first table, perhaps without its folder, or of a folder, means a file."""
    return file == named or file.endswith(f"/{named}") or file.startswith(f"{named}/")


def _has_proof(file: str) -> bool:
    return re.search(r"mark\.proof|representatives\(|first_of\(|_in_proof\b", (ROOT / file).read_text()) is not None


def _is_whole_proof(file: str) -> bool:
    return re.search(r"^pytestmark = .*mark\.proof", (ROOT / file).read_text(), re.MULTILINE) is not None

"""Each promise of docs/reliability.md has a test in `make test` and one in `make proof`, and both are where the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^## What runs when$(.*?)^## ", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w/]+\.py)`")


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Promise, files in `make test`, files in `make proof`."""
    [section] = _SECTION.findall((ROOT / "docs" / "reliability.md").read_text())
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return [(promise, _FILE.findall(test), _FILE.findall(proof)) for promise, test, proof in cells[2:]]


@pytest.mark.parametrize(("promise", "test", "proof"), rows(), ids=[row[0] for row in rows()])
def test_a_promise_is_backed_by_both(promise: str, test: list[str], proof: list[str]) -> None:
    assert test, promise
    assert proof, promise
    assert not [file for file in test if _is_whole_proof(file)], "a file that make test leaves out"
    assert not [file for file in proof if not _has_proof(file)], "a file that make proof leaves out"


def test_whatever_make_proof_takes_can_be_asked_for_by_its_part() -> None:
    files = [
        str(path.relative_to(ROOT))
        for folder in ("tests", "integration")
        for path in (ROOT / folder).rglob("test_*.py")
    ]
    proofs = [file for file in files if _has_proof(file)]
    assert proofs
    assert not [file for file in proofs if "mark.part(" not in (ROOT / file).read_text()]


def _has_proof(file: str) -> bool:
    return re.search(r"mark\.proof|representatives\(|first_of\(|_in_proof\b", (ROOT / file).read_text()) is not None


def _is_whole_proof(file: str) -> bool:
    return re.search(r"^pytestmark = .*mark\.proof", (ROOT / file).read_text(), re.MULTILINE) is not None

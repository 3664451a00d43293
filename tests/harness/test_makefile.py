"""`make` alone shows the few targets that a change needs, and below them all others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOR_A_CHANGE = {"demo", "quick", "unit", "test", "check", "format"}


def shown() -> dict[str, dict[str, str]]:
    """For each heading its targets, with what is said about them."""
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, dict[str, str]] = {}
    for line in re.sub(r"\x1b\[\d*m", "", done.stdout).splitlines():
        if target := re.fullmatch(r"  ([a-z-]+) +(\S.+)", line):
            found[[*found][-1]][target[1]] = target[2]
        elif line:
            found[line] = {}
    return found


def targets() -> set[str]:
    phony = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return {*" ".join(phony).split()}


def test_make_alone_shows_every_target_once_and_those_for_a_change_first() -> None:
    first, second = shown().values()
    assert {*first} == FOR_A_CHANGE
    assert not {*first} & {*second}
    assert {*first, *second} == targets() - {"help"}
    assert "##" not in "".join([*first.values(), *second.values()])

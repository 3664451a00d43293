"""What `make test`, `make proof` and its parts take."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.cost_ledger import UNKNOWN_S, Ledger
from harness.selection import (
    EVERY_TURN_S,
    first_of,
    of_other_turns,
    representatives,
    shares,
)

ROOT = Path(__file__).parents[2]
FILES = {
    "test_plain.py": "def test_one(): pass",
    "test_long.py": """
import pytest
pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]
def test_two(): pass
""",
    "test_both.py": """
import pytest
pytestmark = pytest.mark.part("mysql")
def test_three(): pass
@pytest.mark.proof
def test_four(): pass
""",
}


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ([], {"one", "three"}),
        (["--proof"], {"two", "three", "four"}),
        (["--proof", "--part", "delta"], {"two"}),
        (["--proof", "--part", "mysql"], {"three", "four"}),
        (["--proof", "--rest"], {"two", "four"}),
    ],
)
def test_a_run_takes(tmp_path: Path, options: list[str], taken: set[str]) -> None:
    assert collected(tmp_path, *options) == taken


@pytest.mark.parametrize("options", [[], ["--rest"]])
def test_the_shares_together_are_the_whole_proof(tmp_path: Path, options: list[str]) -> None:
    found = [
        collected(tmp_path, "--proof", *options, "--share", f"{number}/3") for number in (1, 2, 3)
    ]
    whole = collected(tmp_path, "--proof", *options)
    assert set().union(*found) == whole
    assert sum(map(len, found)) == len(whole)


def test_of_thinned_cases_some_of_each_test_stay(tmp_path: Path) -> None:
    thinned = """
import pytest
pytestmark = pytest.mark.thin(3)
def test_five(): pass
@pytest.mark.parametrize("case", range(2))
def test_six(case): pass
@pytest.mark.parametrize("case", range(12))
def test_seven(case): pass
"""
    files = {"test_thin.py": thinned}
    found = Counter(cases_of(tmp_path / "test", **files))
    assert found == {"one": 1, "three": 1, "five": 1, "six": 1, "seven": 4}
    rest = Counter(cases_of(tmp_path / "rest", "--proof", "--rest", **files))
    assert rest == {"two": 1, "four": 1, "six": 1, "seven": 8}


def test_of_many_cases_those_that_are_chosen_stay() -> None:
    assert [case.marks == [] for case in representatives(["a", "b", "c"], {"b"})] == [
        False,
        True,
        False,
    ]
    assert [(case.values, case.marks == []) for case in first_of(1, [("a", 1), ("b", 2)])] == [
        (("a", 1), True),
        (("b", 2), False),
    ]
    assert [case.values for case in first_of(1, ["a", ["b"]])] == [("a",), (["b"],)]


def test_more_cases_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(ValueError, match="chosen, and no case: \\['d'\\]"):
        representatives(["a"], {"a", "d"})
    with pytest.raises(ValueError, match="2 are to stay of 1"):
        first_of(2, ["a"])


def test_the_rest_has_relays_whole(tmp_path: Path) -> None:
    marked = FILES["test_both.py"].replace('part("mysql")', "relay")
    assert collected(tmp_path, "--proof", "--rest", **{"test_handed_on.py": marked}) == {
        "two",
        "three",
        "four",
    }


def test_a_part_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no proof is marked 'delat'; there are delta, mysql"):
        collected(tmp_path, "--proof", "--part", "delat")


@pytest.mark.parametrize("share", ["0/10", "11/10", "3", "third"])
def test_a_share_that_cannot_be_is_refused(tmp_path: Path, share: str) -> None:
    with pytest.raises(
        AssertionError, match=f"{share!r} is no share: 3/10 is the third of ten sets"
    ):
        collected(tmp_path, "--proof", "--share", share)


def test_each_share_has_as_many_commits() -> None:
    """The lines of `.ci/run`, asked by a shell for commits of any hash, also where it
    knows no other commit.
    """
    lines = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if re.match("(commit|share)=", line)
    ]
    commits = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(4000)]
    script = ["git() { echo $asked; }", "while read asked; do", *lines, "echo $share; done"]
    done = subprocess.run(
        ["bash", "-eu", "-c", "\n".join(script)],
        input="\n".join([*commits, ""]),
        capture_output=True,
        text=True,
        check=True,
    )
    taken = Counter(done.stdout.split())
    assert {*taken} == {f"{number}/60" for number in range(1, 61)}
    assert sum(taken.values()) == len(commits)
    assert min(taken.values()) > 0.7 * len(commits) / len(taken)


def test_each_dear_file_has_one_turn_and_all_others_every_turn() -> None:
    entries = {f"file {number}": number / 2 for number in range(1, 61)}
    dear = {file for file, cost in entries.items() if cost > EVERY_TURN_S}
    left = [of_other_turns(number, 5, entries) for number in range(1, 6)]
    assert set().union(*left) == dear
    assert Counter(file for files in left for file in dear - files) == Counter(dear)
    taken_s = [sum(entries[file] for file in dear - files) for files in left]
    assert max(taken_s) - min(taken_s) <= max(entries.values())


def test_a_file_that_is_not_in_the_ledger_waits_for_no_turn(tmp_path: Path) -> None:
    assert UNKNOWN_S > EVERY_TURN_S
    assert collected(tmp_path, "--turn", "1/5") == {"one", "three"}


def test_a_file_that_is_not_in_the_ledger_runs_before_the_cheap_ones(tmp_path: Path) -> None:
    entries = Ledger.read("test").entries
    cheap = next(file for file, cost in entries.items() if 0 < cost < 1 and file[:6] == "tests/")
    assert cases_of(tmp_path, **{cheap: "def test_cheap(): pass"}) == ["three", "one", "cheap"]


def test_proofs_have_no_turns(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--turn chooses among the files of make test"):
        collected(tmp_path, "--proof", "--turn", "1/5")


@pytest.mark.parametrize(
    ("commit", "given", "turn"),
    [
        *((f"{number:08x}" + 32 * "7", [], f"{number + 1}/6") for number in range(6)),
        ("fffffffb" + 32 * "0", [], "6/6"),
        ("", [], "1/6"),
        ("00000001" + 32 * "7", ["TURN=4/6"], "4/6"),
        ("00000001" + 32 * "7", ["TURN=all"], None),
        ("00000001" + 32 * "7", ["TESTS=tests/cli/test_run.py"], None),
    ],
)
def test_make_test_takes_the_turn_of_its_commit(
    tmp_path: Path, commit: str, given: list[str], turn: str | None
) -> None:
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\necho {commit}\n" if commit else "#!/bin/sh\nexit 128\n")
    git.chmod(0o755)
    done = subprocess.run(
        ["make", "--dry-run", "test", *given],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    ran = [line for line in done.stdout.splitlines() if " pytest " in line]
    environments = 1 if any("TESTS=" in text for text in given) else 2  # Paimon's tests have one
    turns = [re.findall(r"--turn (\S+)", line) for line in ran]
    assert turns == [[turn] if turn else []] * environments


def test_shares_cost_about_the_same() -> None:
    costs = {f"file {number}": float(number) for number in range(1, 41)}
    sums = [sum(costs[file] for file in files) for files in shares(costs, 5, costs)]
    assert max(sums) - min(sums) <= max(costs.values())
    assert sum(sums) == sum(costs.values())


def collected(folder: Path, *options: str, **more: str) -> set[str]:
    return {*cases_of(folder, *options, **more)}


def cases_of(folder: Path, *options: str, **more: str) -> list[str]:
    """The tests that a run takes, each once for each of its cases."""
    folder.mkdir(exist_ok=True)
    for name, text in (FILES | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    plugins = [
        word
        for name in ("harness.cost_ledger", "harness.relay_tests", "harness.selection")
        for word in ("-p", name)
    ]
    quiet = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *quiet, *options, str(folder)],
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), (
        done.stdout + done.stderr
    )
    found = [line.split("::test_")[1] for line in done.stdout.splitlines() if "::test_" in line]
    return [name.partition("[")[0] for name in found]

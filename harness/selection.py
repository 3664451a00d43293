"""Selects the tests of a run: `make test` all but the long proofs, the dearest files in turns;
`make proof` the files that have proofs, whole.

    @pytest.mark.part("delta")      the subject of a file's tests: `make proof PART=delta`
    @pytest.mark.proof              a test that only `make proof` runs; the rest of its file stands
                                    for it in `make test`
    @pytest.mark.thin(3)            of the cases of each test every third stays in `make test`, at
                                    least one; the others are proofs

A proof takes whole files, because the tests of some go on from one to the next. `--rest` leaves out
what `make test` takes, but for files with a relay. `--share K/N` takes one of N sets of files that
cost about the same by the ledger; together the sets are the whole proof. With `--rest` the sets
differ from those without.

`--turn K/N` takes every file that costs little by the ledger, and of the others one of N sets. The
commit chooses which one in `make test`, so that each comes as often; `TURN=all` takes all.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark.structures import ParameterSet

from harness import relay_tests
from harness.cost_ledger import UNKNOWN_S, Ledger, file_of

QUICK_S = 2.0
"""The maximum cost of a file, in CPU seconds by the ledger, with which `--quick` takes it."""
EVERY_TURN_S = 10.0
"""The maximum cost of a file, in CPU seconds by the ledger, with which each turn takes it."""


def representatives(cases: Iterable[str], chosen: Collection[str]) -> list[ParameterSet]:
    """Return parameters of a test; `make test` takes the chosen ones, `make proof` all of them."""
    cases = list(cases)
    if unknown := {*chosen} - {*cases}:
        raise ValueError(f"chosen, and no case: {sorted(unknown)}")
    return [
        pytest.param(case, marks=[] if case in chosen else [pytest.mark.proof]) for case in cases
    ]


def first_of(count: int, cases: Iterable[Any]) -> list[ParameterSet]:
    """Return parameters of a test, tuples or single ones; `make test` takes the first few,
    `make proof` all of them.
    """
    several = [case if isinstance(case, tuple) else (case,) for case in cases]
    if len(several) < count:
        raise ValueError(f"{count} are to stay of {len(several)}")
    return [
        pytest.param(*case, marks=[] if number < count else [pytest.mark.proof])
        for number, case in enumerate(several)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the module."""
    group = parser.getgroup("selection")
    group.addoption(
        "--proof",
        action="store_true",
        help="The files with long proofs, whole, instead of the other tests.",
    )
    group.addoption("--part", help="Of the proofs, those that are marked so, such as delta.")
    group.addoption(
        "--share", type=_share, metavar="K/N", help="Of the proofs, one of N sets, such as 3/10."
    )
    group.addoption(
        "--rest", action="store_true", help="Of the proofs, those that make test leaves out."
    )
    group.addoption(
        "--kills", type=int, default=30, help="How often each server is killed under load."
    )
    group.addoption(
        "--turn",
        type=_share,
        metavar="K/N",
        help=f"Of the files over {EVERY_TURN_S:g} CPU seconds by the ledger, one of N sets.",
    )
    group.addoption(
        "--quick",
        action="store_true",
        help=f"Files that cost up to {QUICK_S:g} CPU seconds by the ledger.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line(
        "markers", "part(name): what the tests of a file are about; make proof PART=name"
    )
    config.addinivalue_line("markers", "proof: taken by make proof only")
    config.addinivalue_line("markers", "thin(n): make test takes every n-th case of each test")
    if not config.getoption("--proof") and any(
        config.getoption(name) for name in ("--part", "--share", "--rest")
    ):
        raise pytest.UsageError("--part, --share and --rest choose among the proofs: add --proof")
    if config.getoption("--proof") and config.getoption("--turn"):
        raise pytest.UsageError("--turn chooses among the files of make test: leave out --proof")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which files a run leaves to other turns."""
    if not (turn := config.getoption("--turn")):
        return None
    number, sets = turn
    return (
        f"turn {number}/{sets} of the files over {EVERY_TURN_S:g} CPU s; "
        "all of them: make test TURN=all"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that the run does not take, and mark those that use Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    _thin_out(items)
    chosen = _proofs(config, items) if config.getoption("--proof") else _tests(config, items)
    kept = [item for item in items if item.nodeid in chosen]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = kept


def _thin_out(items: Iterable[pytest.Item]) -> None:
    """Mark as proofs what `thin` does not leave. Which cases it leaves depends on the test's name,
    so that tests with the same parameters do not all keep the same ones.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thin") and not item.get_closest_marker("proof"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, found in cases.items():
        marker = found[0].get_closest_marker("thin")
        step = marker.args[0] if marker else 1
        first = crc32(test.encode()) % min(step, len(found))
        for number, item in enumerate(found):
            if number % step != first:
                item.add_marker("proof")


def _tests(config: pytest.Config, items: Iterable[pytest.Item]) -> set[str]:
    found = [item for item in items if item.get_closest_marker("proof") is None]
    if config.getoption("--quick"):
        entries = Ledger.read("test").entries
        found = [
            item
            for item in found
            if entries.get(file_of(item), 0.0) <= QUICK_S and not _starts_something(item)
        ]
    if turn := config.getoption("--turn"):
        number, sets = turn
        others = of_other_turns(number, sets, Ledger.read("test").entries)
        found = [item for item in found if file_of(item) not in others]
    return {item.nodeid for item in found}


def of_other_turns(number: int, sets: int, entries: dict[str, float]) -> set[str]:
    """Return the files that one turn of several leaves to the others."""
    dear = {file for file, cost in entries.items() if cost > EVERY_TURN_S}
    return dear - shares(dear, sets, entries)[number - 1]


def _starts_something(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("spark", "server"))


def _proofs(config: pytest.Config, items: list[pytest.Item]) -> set[str]:
    files = {file_of(item) for item in items if item.get_closest_marker("proof") is not None}
    if part := config.getoption("--part"):
        parts = {mark.args[0] for item in items for mark in item.iter_markers("part")}
        if part not in parts:
            raise pytest.UsageError(
                f"no proof is marked {part!r}; there are {', '.join(sorted(parts))}"
            )
        files &= {
            file_of(item)
            for item in items
            for mark in item.iter_markers("part")
            if mark.args[0] == part
        }
    if share := config.getoption("--share"):
        number, sets = share
        files &= shares(files, sets, _costs(rest=config.getoption("--rest")))[number - 1]
    found = [item for item in items if file_of(item) in files]
    if config.getoption("--rest"):
        relays = {
            file_of(item) for item in found if item.get_closest_marker(relay_tests.MARK) is not None
        }
        found = [
            item
            for item in found
            if file_of(item) in relays or item.get_closest_marker("proof") is not None
        ]
    return {item.nodeid for item in found}


def _costs(*, rest: bool) -> dict[str, float]:
    """Return the CPU seconds of each file by the ledger; with `--rest`, without the tests that
    `make test` takes.
    """
    whole, test = Ledger.read("proof").entries, Ledger.read("test").entries
    return (
        {file: max(cost - test.get(file, 0.0), 0.0) for file, cost in whole.items()}
        if rest
        else whole
    )


def shares(files: Iterable[str], number: int, entries: dict[str, float]) -> list[set[str]]:
    """Return sets of files of about the same cost: the longest first, each to the set
    with the lowest cost.
    """
    sets: list[set[str]] = [set() for _ in range(number)]
    costs = [0.0] * number
    for file in sorted(files, key=lambda file: (-entries.get(file, UNKNOWN_S), file)):
        least = costs.index(min(costs))
        sets[least].add(file)
        costs[least] += entries.get(file, UNKNOWN_S)
    return sets


def _share(text: str) -> tuple[int, int]:
    """Parse a share: `3/10` is the third of ten sets."""
    number, _, sets = text.partition("/")
    if not (number.isdecimal() and sets.isdecimal() and 1 <= int(number) <= int(sets)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: 3/10 is the third of ten sets")
    return int(number), int(sets)

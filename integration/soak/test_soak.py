"""The soak in its short form, and what its reader would see of a job that does it wrong."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from integration.soak.__main__ import soak
from integration.soak.plan import strikes
from integration.soak.reader import Part, violations
from integration.soak.report import markdown, tables
from integration.soak.run import Goal

pytestmark = pytest.mark.part("soak")

SEED = 4
RECORDS = 120_000
KILLS = 10


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_everything_dies_while_the_job_writes(tmp_path: Path) -> None:
    outcome = soak(Goal(KILLS, RECORDS), SEED, tmp_path, Console())
    Console().print(*tables(outcome))
    assert outcome.exact, markdown(outcome)
    assert len(outcome.struck) == KILLS
    assert len({struck.strike.fault for struck in outcome.struck}) == KILLS
    assert min(verdict.produced for verdict in outcome.verdicts.values()) >= RECORDS
    assert outcome.looks > 0


def first(rows: int) -> dict[int, Part]:
    """The first rows of partition 0."""
    return {0: Part(rows, 0, rows - 1, sum(range(rows)))}


def test_the_reader_is_content_with_what_is_committed_and_with_decided_checkpoints() -> None:
    assert violations({}, first(3), {0: 3}, {0: 5}) == []
    assert violations(first(3), first(5), {0: 3}, {0: 5}) == []
    assert violations({}, {}, {}, {0: 5}) == []


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        (first(3), "4 rows were visible, now 3"),
        ({}, "4 rows were visible, now 0"),
        (first(4), "5 rows are committed, 4 are visible"),
        (first(8), "7 rows are decided, 8 are visible"),
        ({0: Part(6, 0, 4, 10 + 2)}, "not each of the first records once"),
        ({0: Part(6, 0, 6, 21 - 2)}, "not each of the first records once"),
        ({0: Part(6, 0, 5, 15 - 2 + 3)}, "not each of the first records once"),
        (first(6) | {1: Part(1, 0, 0, 0)}, "partition 1: 0 rows are decided, 1 are visible"),
    ],
    ids=[
        "rows that go", "all rows gone", "a commit not seen", "undecided rows", "a duplicate", "a hole",  # noqa: E501
        "a duplicate that stands in for a loss", "a partition of nobody",
    ],
)  # fmt: skip
def test_the_reader_sees(seen: dict[int, Part], complaint: str) -> None:
    assert complaint in "; ".join(violations(first(4), seen, {0: 5}, {0: 7}))


def test_a_seed_makes_the_same_strikes_and_every_fault_has_its_turn() -> None:
    deck = [f"fault {number}" for number in range(10)]
    once, again, other = (
        list(islice(strikes(seed, deck, rows=1000, eager=0.3), 30)) for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other
    for turn in (once[:10], once[10:20], once[20:]):
        assert sorted(strike.fault for strike in turn) == sorted(deck)
    assert 0 < sum(strike.rows == 0 for strike in once) < len(once)

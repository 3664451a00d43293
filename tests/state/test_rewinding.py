"""The record of a rewind: until its lineage begins nothing else may follow, and then what was taken
back is forgotten.
"""

from __future__ import annotations

import json

import pytest

from twophase.ids import Attempt
from twophase.internals.json_values import canonical_json
from twophase.state.journal.entries import (
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Rewinding,
)
from twophase.state.journal.history import History, SubsumedRecord, record_from_json

BEGUN = Rewinding("/savepoints/1", {"a": 1})
TEXT = '{"keep":{"a":1},"restored_from":"/savepoints/1"}'


def decision(number: int, lineage: str = "a") -> Decision:
    return Decision(lineage, number, Attempt(1, number + 1), "hash", "digest", committed=True)


@pytest.fixture
def rewinding() -> History:
    """Checkpoints 0 to 3 of lineage a are committed, and 2 and 3 are being taken back."""
    history = History().apply(FenceRecord(1)).apply(Lineage("a"))
    for number in range(4):
        history = history.apply(decision(number))
        history = history.apply(CommittedRecord("a", number))
    return history.apply(BEGUN)


def test_its_text_is_as_it_was_written_down() -> None:
    assert record_from_json("REWINDING", json.loads(TEXT), "here") == BEGUN
    assert canonical_json(BEGUN).decode() == TEXT


def test_a_fold_carries_it(rewinding: History) -> None:
    text = canonical_json(SubsumedRecord(rewinding))
    folded = record_from_json("SUBSUMED", json.loads(text), "here")
    assert folded == SubsumedRecord(rewinding)


def test_its_lineage_ends_it_and_forgets_what_was_taken_back(rewinding: History) -> None:
    begun = rewinding.apply(Lineage("b", ancestors={"a": 1}))
    assert begun.rewinding is None
    assert [one.checkpoint for one in begun.decisions] == [0, 1]


@pytest.mark.parametrize("ancestors", [{}, {"a": 1}, {"a": 0}])
def test_a_rewind_to_an_older_point_ends_it_too(
    rewinding: History, ancestors: dict[str, int]
) -> None:
    assert rewinding.apply(Lineage("b", ancestors=ancestors)).rewinding is None


@pytest.mark.parametrize("ancestors", [{"a": 2}, {"a": 1, "z": 0}])
def test_no_other_lineage_begins_and_nothing_is_decided(
    rewinding: History, ancestors: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match="before the rewind is done"):
        rewinding.apply(Lineage("b", ancestors=ancestors))
    with pytest.raises(ValueError, match="in a rewind"):
        rewinding.apply(decision(4))

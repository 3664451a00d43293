"""The record of a sink that commits ahead: it belongs to the next checkpoint, and the decision on
that checkpoint, or a lineage, ends it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from twophase.contract.committable import Committable
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.json_values import canonical_json
from twophase.state.journal.entries import (
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Note,
    Rewinding,
    SinkDecision,
)
from twophase.state.journal.history import History, SubsumedRecord, record_from_json

TEXT = (
    '{"attempt":{"counter":3,"generation":1},"checkpoint":1,"end":["{\\"p\\":2}"],'
    '"lineage":"a","offsets_hash":"h1","pieces":[{"handle":{"files":["x"]},"rows":5,"subtask":'
    '{"index":0,"task_attempt":7},"target":"t","transaction":{"attempt":{"counter":3,'
    '"generation":1},"checkpoint":1,"job":"orders","lineage":"a","offsets_hash":"h1",'
    '"sink":"facts"}}],"sink":"facts","start":[null]}'
)
NOTE = Note("ann@host", 0, "why")


def piece(sink: str = "facts", index: int = 0) -> Committable:
    transaction = TransactionId("orders", "a", 1, Attempt(1, 3), sink, "h1")
    return Committable(transaction, Subtask(index, 7), "t", 5, {"files": ["x"]})


def ahead(sink: str = "facts", **fields: object) -> SinkDecision:
    decision = SinkDecision(
        "a", 1, sink, Attempt(1, 3), "h1", (None,), ('{"p":2}',), (piece(sink),)
    )
    return replace(decision, **fields)  # type: ignore[arg-type]


def decision(number: int = 1, attempt: Attempt | None = None) -> Decision:
    return Decision("a", number, attempt or Attempt(1, 4), f"h{number}", "digest")


@pytest.fixture
def begun() -> History:
    """Checkpoint 0 of lineage a is committed."""
    history = History().apply(FenceRecord(1)).apply(Lineage("a"))
    return history.apply(decision(0)).apply(CommittedRecord("a", 0))


@pytest.fixture
def one_ahead(begun: History) -> History:
    return begun.apply(ahead())


def test_its_text_is_as_it_was_written_down() -> None:
    record = ahead()
    assert record_from_json("SINK_DECIDED", json.loads(TEXT), "here") == record
    assert canonical_json(record).decode() == TEXT


def test_a_fold_carries_it(one_ahead: History) -> None:
    record = SubsumedRecord(one_ahead)
    text = canonical_json(record)
    assert record_from_json("SUBSUMED", json.loads(text), "here") == record
    assert History().apply(record) == one_ahead


def test_the_decision_on_its_checkpoint_ends_it(one_ahead: History) -> None:
    history = one_ahead.apply(decision())
    assert history.sink_decisions == ()
    assert [one.checkpoint for one in history.decisions] == [0, 1]


def test_a_fence_leaves_it_and_a_later_driver_may_add_one(one_ahead: History) -> None:
    history = one_ahead.apply(FenceRecord(2))
    history = history.apply(ahead("lake", attempt=Attempt(2, 1)))
    assert [one.sink for one in history.sink_decisions] == ["facts", "lake"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"checkpoint": 2}, "out of order"),
        ({"checkpoint": 0}, "out of order"),
        ({"lineage": "b"}, "decision in lineage b"),
        ({"attempt": Attempt(2, 1)}, "decision of generation 2"),
        ({"sink": "facts"}, "decided twice"),
        ({"offsets_hash": "h9"}, "is not the one that sink facts has"),
    ],
)
def test_a_record_that_does_not_follow_is_refused(
    one_ahead: History, wrong: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        one_ahead.apply(ahead(**{"sink": "lake", **wrong}))  # type: ignore[arg-type]


def test_its_checkpoint_is_not_decided_with_other_offsets(one_ahead: History) -> None:
    with pytest.raises(ValueError, match="is not the one that sink facts has"):
        one_ahead.apply(replace(decision(), offsets_hash="h9"))


def test_no_lineage_begins_before_it(one_ahead: History) -> None:
    with pytest.raises(ValueError, match="before what sink facts has"):
        one_ahead.apply(Lineage("b", ancestors={"a": 0}))


def test_a_lineage_that_continues_from_it_ends_it(one_ahead: History) -> None:
    assert one_ahead.apply(Lineage("b", ancestors={"a": 1})).sink_decisions == ()


def test_a_rewind_that_begins_ends_it(one_ahead: History) -> None:
    """It is committed by then; from here on its pieces may be gone."""
    history = one_ahead.apply(Rewinding("/saved", {"a": 0}))
    assert history.ahead == []
    begun = history.apply(Lineage("b", ancestors={"a": 0}))
    assert (begun.rewinding, begun.sink_decisions) == (None, ())


def test_a_rewind_of_something_else_leaves_it(one_ahead: History) -> None:
    history = one_ahead.apply(Rewinding("/saved", {"a": 1}))
    assert [one.sink for one in history.ahead] == ["facts"]


def test_nothing_is_decided_ahead_in_a_rewind(begun: History) -> None:
    history = begun.apply(Rewinding("/saved", {"a": 0}))
    with pytest.raises(ValueError, match="in a rewind"):
        history.apply(ahead())


def test_an_adoption_ends_it(one_ahead: History) -> None:
    adopted = Adoption(NOTE, Lineage("b", ancestors={"a": 1}))
    assert one_ahead.apply(adopted).sink_decisions == ()


@pytest.mark.parametrize(("gone", "left"), [((), [0, 1]), (("1.7",), [0]), (("0.7", "1.7"), [])])
def test_an_accepted_loss_takes_its_pieces_out(
    begun: History, gone: tuple[str, ...], left: list[int]
) -> None:
    pieces = (piece(index=0), piece(index=1))
    history = begun.apply(ahead(pieces=pieces))
    loss = AcceptedLoss(NOTE, "a", 1, "facts", gone, 5, (), (), not left, ())
    [found] = history.apply(loss).sink_decisions
    assert [one.subtask.index for one in found.pieces] == left

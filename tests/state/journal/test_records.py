"""The history is a fold of the log's records, and a folded log adds up to the same history."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.errors import NewerFormatError
from twophase.ids import Attempt
from twophase.internals.json_values import canonical_json, from_json, to_json
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.checkpoints.store import retained
from twophase.state.journal.entries import (
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Note,
    Proof,
    Repair,
    Rewrite,
    StartingOffsets,
)
from twophase.state.journal.history import (
    History,
    Record,
    SubsumedRecord,
    record_from_json,
)

LINES = st.lists(st.none() | st.text(max_size=8), max_size=3).map(tuple)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)


BEFORE = Proof("facts", "a", 1, "t")
NOTE = Note("ann@host", 7, "by hand")
LACKS = (Proof("facts", "a", 3, "t"),)
LOSS = AcceptedLoss(
    NOTE,
    "a",
    3,
    "facts",
    ("0.1", "1.2"),
    10,
    (None,),
    ("e",),
    emptied=True,
    before=(BEFORE,),
    lacks=LACKS,
)


def add(history: History, record: Record, records: list[Record]) -> History:
    records.append(record)
    return history.apply(record)


@st.composite
def logs(draw: st.DrawFn, max_size: int = 25) -> list[Record]:
    """The records of a log as drivers may write them, without folding."""
    history, records = History(), list[Record]()
    for _ in range(draw(st.integers(0, max_size))):
        lineage, waiting = history.lineage, history.uncommitted()
        match draw(
            st.sampled_from(
                [
                    "fence",
                    "lineage",
                    "decide",
                    "decide",
                    "decide",
                    "commit",
                    "commit",
                    "loss",
                    "rewrite",
                ]
            )
        ):
            case "fence":
                history = add(
                    history, FenceRecord(history.generation + draw(st.integers(1, 3))), records
                )
            case "lineage":
                number = len(history.lineages)
                began = Lineage(
                    f"lineage-{number}",
                    draw(st.text(max_size=5)),
                    draw(st.integers(0, 1)),
                    draw(LINES),
                )
                history = add(history, began, records)
            case "decide" if lineage is not None and history.generation:
                newest = history.newest(lineage.id)
                decision = Decision(
                    lineage=lineage.id,
                    checkpoint=newest.checkpoint + 1 if newest else lineage.first_checkpoint,
                    attempt=Attempt(history.generation, len(records)),
                    offsets_hash=draw(HEX),
                    body_digest=draw(HEX),
                )
                history = add(history, decision, records)
            case "commit" if waiting:
                found = draw(st.sampled_from(waiting))
                history = add(history, CommittedRecord(found.lineage, found.checkpoint), records)
            case "loss" if history.decisions:
                found = draw(st.sampled_from(history.decisions))
                lost = replace(
                    LOSS,
                    lineage=found.lineage,
                    checkpoint=found.checkpoint,
                    emptied=draw(st.booleans()),
                )
                history = add(history, lost, records)
            case "rewrite" if waiting:
                found = draw(st.sampled_from(waiting))
                written = replace(
                    found, attempt=Attempt(history.generation, len(records)), body_digest=draw(HEX)
                )
                again = Rewrite(NOTE, written, found.attempt, "facts", ("0.1",), 5)
                history = add(history, again, records)
            case _:
                continue
    return records


def fold(records: list[Record], history: History | None = None) -> History:
    history = history or History()
    for record in records:
        history = history.apply(record)
    return history


def histories() -> st.SearchStrategy[History]:
    return logs().map(fold)


@given(logs(), st.data())
def test_folding_the_log_anywhere_changes_nothing(
    records: list[Record], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(records)))
    subsumed = SubsumedRecord(fold(records[:cut]))
    assert fold([subsumed, *records[cut:]]) == fold(records)


@given(logs(), st.integers(1, 3), st.data())
def test_folding_to_what_is_retained_keeps_all_that_is_needed(
    records: list[Record], num_retained: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(records)))
    before = fold(records[:cut])
    pruned = replace(before, decisions=tuple(retained(before, num_retained)))
    full, folded = fold(records), fold(records[cut:], fold([SubsumedRecord(pruned)]))
    assert (folded.generation, folded.lineages, folded.repairs) == (
        full.generation,
        full.lineages,
        full.repairs,
    )
    assert folded.uncommitted() == full.uncommitted()
    current = full.lineage
    if current is not None:
        assert folded.newest(current.id) == full.newest(current.id)


@given(logs())
def test_a_record_is_the_same_after_json(records: list[Record]) -> None:
    for record in (*records, SubsumedRecord(fold(records))):
        value = json.loads(canonical_json(record))
        assert record_from_json(record.kind, value, "here") == record


@given(histories())
def test_a_history_is_the_same_after_json(history: History) -> None:
    value = json.loads(canonical_json(to_json(history)))
    assert from_json(History, value, "here") == history


@given(logs())
def test_a_generation_only_grows_and_decisions_stay_in_their_order(records: list[Record]) -> None:
    history = History()
    for record in records:
        after = history.apply(record)
        assert after.generation >= history.generation
        numbers = [(found.lineage, found.checkpoint) for found in after.decisions]
        assert numbers[: len(history.decisions)] == [
            (found.lineage, found.checkpoint) for found in history.decisions
        ]
        history = after


@given(logs())
def test_uncommitted_checkpoints_are_the_decided_ones_without_a_committed_record(
    records: list[Record],
) -> None:
    decided = {(r.lineage, r.checkpoint) for r in records if isinstance(r, Decision)}
    committed = {(r.lineage, r.checkpoint) for r in records if isinstance(r, CommittedRecord)}
    uncommitted = fold(records).uncommitted()
    assert {(found.lineage, found.checkpoint) for found in uncommitted} == decided - committed
    assert uncommitted == [found for found in fold(records).decisions if not found.committed]


DECISION = Decision("a", 0, Attempt(1, 1), "hash", "digest")
# -- durable text ----------------------------------------------------------------------------------

PROOF = '{"checkpoint":3,"lineage":"a","sink":"facts","target":"mysql:u/shop.orders"}'
WITH_PROOFS = (
    '{"attempt":{"counter":4,"generation":2},"body_digest":"d","checkpoint":3,'
    '"committed":false,"lineage":"a",'
    f'"offsets_hash":"o","proofs":[{PROOF}]}}'
)


def test_a_decision_s_text_is_as_it_was_written_down() -> None:
    record = record_from_json("DECIDED", json.loads(WITH_PROOFS), "here")
    assert isinstance(record, Decision)
    assert record.proofs == (Proof("facts", "a", 3, "mysql:u/shop.orders"),)
    assert canonical_json(record).decode() == WITH_PROOFS


@pytest.mark.parametrize("field", ["proofs", "committed"])
def test_a_decision_without_a_field_is_refused(field: str) -> None:
    value = json.loads(WITH_PROOFS)
    del value[field]
    with pytest.raises(NewerFormatError, match=rf"missing \['{field}'\]"):
        record_from_json("DECIDED", value, "here")


LOSS_TEXT = (
    '{"action":"accept-loss","before":[{"checkpoint":1,"lineage":"a","sink":"facts",'
    '"target":"t"}],"checkpoint":3,'
    '"emptied":true,"end":["e"],"lacks":[{"checkpoint":3,"lineage":"a","sink":"facts",'
    '"target":"t"}],"lineage":"a","note":{"at_ms":7,"by":"ann@host","reason":"by '
    'hand"},"pieces":["0.1","1.2"],'
    '"rows":10,"sink":"facts","start":[null]}'
)
ADOPTION = Adoption(
    NOTE,
    Lineage("b", "", 1, ("e",), {"a": 3}, (BEFORE,)),
    ("chk/a-3-1.4",),
    (StartingOffsets("", "latest"),),
)
ADOPTION_TEXT = (
    '{"action":"adopt-from-target","gave_up":["chk/a-3-1.4"],'
    '"lineage":{"ancestors":{"a":3},"first_checkpoint":1,'
    '"id":"b","origin":"","proofs":[{"checkpoint":1,"lineage":"a","sink":"facts","target":"t"}],'
    '"rescaled":[],"restore_id":"","restored_from":"","start":["e"]},'
    '"note":{"at_ms":7,"by":"ann@host","reason":"by hand"},'
    '"starting":[{"offsets":"latest","uid":""}]}'
)


REWRITE = Rewrite(
    NOTE, Decision("a", 0, Attempt(1, 5), "hash", "other"), Attempt(1, 1), "facts", ("0.1",), 5
)
REWRITE_TEXT = (
    '{"action":"rewrite","decision":{"attempt":{"counter":5,"generation":1},'
    '"body_digest":"other","checkpoint":0,'
    '"committed":false,"lineage":"a","offsets_hash":"hash","proofs":[]},"note":{"at_ms":7,'
    '"by":"ann@host","reason":"by hand"},'
    '"pieces":["0.1"],"replaced":{"counter":1,"generation":1},"rows":5,"sink":"facts"}'
)


@pytest.mark.parametrize(
    ("repair", "text"),
    [(LOSS, LOSS_TEXT), (ADOPTION, ADOPTION_TEXT), (REWRITE, REWRITE_TEXT)],
    ids=["loss", "adoption", "rewrite"],
)
def test_a_repair_s_text_is_as_it_was_written_down(repair: Repair, text: str) -> None:
    assert record_from_json("REPAIRED", json.loads(text), "here") == repair
    assert canonical_json(repair).decode() == text


def test_a_loss_puts_every_proof_before_in_the_place_of_the_lost_one() -> None:
    both = (BEFORE, Proof("facts", "z", 7, "t"))
    lost = replace(LOSS, before=both)
    other = Proof("lake", "a", 3, "u")
    assert lost.amend_checkpoint("a", 4, (Proof("facts", "a", 3, "t"), other)) == (*both, other)
    assert lost.amend_checkpoint("a", 3, both) == both
    assert [lost.covers("z", 7), lost.covers("a", 1), lost.covers("a", 2)] == [False, False, True]


def test_a_loss_covers_what_a_target_lacks_of_each_lineage() -> None:
    lost = replace(
        LOSS,
        before=(Proof("facts", "z", 1, "t"),),
        lacks=(*LACKS, Proof("facts", "y", 2, "t"), BEFORE),
    )
    asked = [("z", 1), ("z", 2), ("y", 2), ("y", 3), ("a", 3)]
    assert [lost.covers(*one) for one in asked] == [False, False, True, False, True]


def test_a_folded_log_without_repairs_is_refused() -> None:
    value = {"history": {"generation": 1, "lineages": [], "decisions": []}}
    with pytest.raises(NewerFormatError, match=r"missing \[.*'repairs'.*\]"):
        record_from_json("SUBSUMED", value, "here")


def test_an_adoption_begins_a_lineage_and_forgets_the_decisions() -> None:
    history = BASE.apply(ADOPTION)
    assert (history.lineage, history.decisions, history.repairs) == (
        ADOPTION.lineage,
        (),
        (ADOPTION,),
    )


def test_a_rewrite_puts_its_decision_in_the_place_of_the_one_before() -> None:
    history = BASE.apply(REWRITE)
    assert (history.decisions, history.repairs) == ((REWRITE.decision,), (REWRITE,))
    assert history.apply(CommittedRecord("a", 0)).decisions == (
        replace(REWRITE.decision, committed=True),
    )


def test_a_loss_puts_the_proof_before_in_the_place_of_the_lost_one_and_only_there() -> None:
    other = Proof("lake", "a", 3, "u")
    assert LOSS.amend((Proof("facts", "a", 3, "t"), other)) == (BEFORE, other)
    assert replace(LOSS, before=()).amend((Proof("facts", "a", 3, "t"), other)) == (other,)
    assert replace(LOSS, emptied=False).amend((Proof("facts", "a", 3, "t"),)) == (
        Proof("facts", "a", 3, "t"),
    )


def test_a_loss_of_several_checkpoints_replaces_the_proof_of_each() -> None:
    kept = (
        Proof("facts", "a", 1, "t"),
        Proof("facts", "a", 4, "t"),
        Proof("facts", "b", 2, "t"),
        Proof("lake", "a", 2, "u"),
    )
    assert LOSS.amend((Proof("facts", "a", 2, "t"), *kept)) == kept, "its first is the proof before"
    assert replace(LOSS, before=()).amend((Proof("facts", "a", 0, "t"), *kept[1:])) == kept[1:]
    assert replace(LOSS, emptied=False).amend((Proof("facts", "a", 2, "t"),)) == (
        Proof("facts", "a", 2, "t"),
    )


def test_a_loss_puts_the_proof_before_in_the_place_of_two_once() -> None:
    two = (Proof("facts", "a", 2, "t"), Proof("facts", "a", 3, "t"))
    assert (
        LOSS.amend(two)
        == LOSS.amend_checkpoint("a", 3, (*two, Proof("facts", "z", 1, "t")))
        == (BEFORE,)
    )


BASE = fold([FenceRecord(1), Lineage("a"), DECISION])


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (FenceRecord(1), "fence 1 after 1"),
        (FenceRecord(0), "fence 0 after 1"),
        (Lineage("a"), "lineage a begins twice"),
        (replace(DECISION, lineage="b"), "decision in lineage b"),
        (
            replace(DECISION, checkpoint=1, attempt=Attempt(2, 1)),
            "decision of generation 2",
        ),
        (
            replace(DECISION, checkpoint=1, attempt=Attempt(0, 1)),
            "decision of generation 0",
        ),
        (DECISION, "checkpoint 0 out of order"),
        (replace(DECISION, checkpoint=2), "checkpoint 2 out of order"),
        (CommittedRecord("a", 1), "checkpoint 1 committed without a decision"),
        (CommittedRecord("b", 0), "checkpoint 0 committed without a decision"),
        (replace(ADOPTION, lineage=Lineage("a")), "lineage a begins twice"),
        (
            replace(REWRITE, replaced=Attempt(1, 2)),
            "checkpoint 0 written again without a decision",
        ),
        (
            replace(REWRITE, decision=replace(DECISION, attempt=Attempt(2, 1))),
            "rewrite of generation 2",
        ),
    ],
)
def test_a_record_that_contradicts_the_history_is_refused(record: Record, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        BASE.apply(record)


def test_of_the_committed_checkpoints_only_the_newest_is_written_again() -> None:
    newest = BASE.apply(CommittedRecord("a", 0))
    assert newest.apply(REWRITE).uncommitted() == [REWRITE.decision]
    older = newest.apply(replace(DECISION, checkpoint=1, attempt=Attempt(1, 2)))
    with pytest.raises(ValueError, match="checkpoint 0 written again without a decision"):
        older.apply(REWRITE)


def test_a_decision_of_a_lineage_that_has_ended_is_refused() -> None:
    history = BASE.apply(Lineage("b"))
    with pytest.raises(ValueError, match="decision in lineage a"):
        history.apply(replace(DECISION, checkpoint=1))


def test_committing_twice_is_committing_once() -> None:
    once = BASE.apply(CommittedRecord("a", 0))
    assert once.apply(CommittedRecord("a", 0)) == once


def test_the_folder_of_a_body_names_lineage_checkpoint_and_attempt() -> None:
    assert replace(DECISION, checkpoint=7, attempt=Attempt(2, 3)).folder == "chk/a-7-2.3"


@pytest.mark.parametrize(
    ("kind", "value", "match"),
    [
        ("FENCE", {}, "missing or unknown fields"),
        ("FENCE", None, "missing or unknown fields"),
        ("FENCE", {"generation": "1"}, "'1' instead of"),
        ("FENCE", {"generation": 1, "more": 1}, "unknown fields"),
        (
            "DECIDED",
            {**to_json(DECISION), "more": 1},
            "unknown fields",
        ),
        ("DECIDED", {"decision": to_json(DECISION)}, "unknown fields"),
        ("LINEAGE", {"lineage": "a"}, "unknown fields"),
        (
            "SUBSUMED",
            {"history": {"generation": 1, "lineages": [1], "decisions": []}},
            "unknown fields",
        ),
        (
            "REPAIRED",
            {**json.loads(LOSS_TEXT), "action": "undo"},
            "unknown action 'undo'",
        ),
        ("REPAIRED", {**json.loads(LOSS_TEXT), "more": 1}, "unknown fields"),
        ("RESCALED", {"n": 1}, "unknown kind 'RESCALED'"),
        ("RELEASED", {"released": {"lineage": "a", "checkpoint": 0}}, "unknown kind 'RELEASED'"),
    ],
)
def test_a_record_that_this_version_does_not_know_is_refused_with_the_version_as_remedy(
    kind: str, value: Any, match: str
) -> None:
    with pytest.raises(NewerFormatError, match=match) as caught:
        record_from_json(kind, value, "log/0000000001")
    assert "Next: start the newer version again." in str(caught.value)


@given(LINES, LINES)
def test_the_hash_of_offsets_tells_start_from_end(
    start: tuple[str | None, ...], end: tuple[str | None, ...]
) -> None:
    found = FrozenOffsets(start, end)
    assert found.hash == FrozenOffsets(tuple(start), tuple(end)).hash
    assert (found.hash == FrozenOffsets(end, start).hash) == (start == end)


def test_the_hash_of_offsets_tells_nothing_from_an_empty_line() -> None:
    hashes = {
        FrozenOffsets((start,), (end,)).hash for start in (None, "", "None") for end in (None, "")
    }
    assert len(hashes) == 6


@given(
    states=st.dictionaries(st.text(max_size=5), st.lists(st.integers(), max_size=3), max_size=3),
    lines=LINES,
)
def test_a_completed_checkpoint_is_the_same_after_json(
    states: dict[str, list[int]], lines: tuple[str | None, ...]
) -> None:
    done = CompletedCheckpoint(
        "orders", "a", 3, Attempt(2, 5), 99, FrozenOffsets(lines, lines), states, {}, 12
    )
    value = json.loads(canonical_json(to_json(done)))
    assert from_json(CompletedCheckpoint, value, "here") == done

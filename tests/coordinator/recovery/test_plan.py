"""Every reason for which a beginning is refused, every plan, and what holds for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.contract.committable import Committable
from twophase.contract.sink import SinkHistory
from twophase.coordinator.recovery.plan import (
    CannotTakeBack,
    DriverMissed,
    FolderBehind,
    GoOn,
    HalfRewound,
    LeftBehind,
    NamedOtherwise,
    Observed,
    ObservedSink,
    Refusal,
    RenamedLacks,
    Restore,
    RestoreBehind,
    RestoredMeanwhile,
    RewindUnfinished,
    RowsReturned,
    SinkRenamed,
    StartPlan,
    TakenBack,
    TargetLacks,
    TargetReplaced,
    plan_start,
    refusals,
)
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.journal.entries import Decision, Lineage, Proof, Rewinding, SinkDecision
from twophase.state.journal.history import History

JOB = "orders"
A, B, NEW = "lineage-a", "lineage-b", "lineage-new"
FACTS, LAKE = "facts", "lake"
HASH = "0" * 64


def proof(checkpoint: int, sink: str = FACTS, lineage: str = A) -> Proof:
    return Proof(sink, lineage, checkpoint, f"table of {sink}")


def decision(checkpoint: int, *, committed: bool = True, lineage: str = A) -> Decision:
    proofs = (proof(checkpoint, FACTS, lineage), proof(checkpoint, LAKE, lineage))
    return Decision(lineage, checkpoint, Attempt(1, 1), HASH, HASH, committed, proofs)


def body(checkpoint: int, *sinks: str) -> CompletedCheckpoint:
    pieces = {
        sink: [Committable(TransactionId(JOB, A, checkpoint, Attempt(1, 1), sink, HASH),
                           Subtask(0, 1), f"table of {sink}", 1)]
        for sink in sinks
    }  # fmt: skip
    return CompletedCheckpoint(
        JOB, A, checkpoint, Attempt(1, 1), 0, FrozenOffsets((), ()), committables=pieces
    )


def sink(name: str, *, generation: int = 1, target: str = "", **committed: int) -> ObservedSink:
    found = {lineage.replace("_", "-"): last for lineage, last in committed.items()}
    return ObservedSink(target or f"table of {name}", SinkHistory(generation, found), True)


def half_rewound(found: ObservedSink) -> ObservedSink:
    return replace(found, memory=replace(found.memory, half_rewound=True))


def observed(history: History, facts: ObservedSink, lake: ObservedSink, **more: Any) -> Observed:
    return Observed(JOB, history, {FACTS: facts, LAKE: lake}, **more)


def restore(checkpoint: int = 2, policy: SinkAhead = SinkAhead.REFUSE, **fields: Any) -> Restore:
    proofs = (proof(checkpoint), proof(checkpoint, LAKE))
    lineage = Lineage(NEW, "/saved", 1, ("end",), {A: checkpoint}, proofs)
    return Restore(body(checkpoint, FACTS, LAKE), lineage, sink_ahead=policy, **fields)


FIRST = Lineage(A)
UP_TO_3 = History(1, (FIRST,), (decision(2), decision(3)))
WAITS = History(1, (FIRST,), (decision(2), decision(3, committed=False)))
AT_3 = (sink(FACTS, lineage_a=3), sink(LAKE, lineage_a=3))
AT_2 = (sink(FACTS, lineage_a=2), sink(LAKE, lineage_a=2))
BEGUN = Rewinding("/saved", {A: 2})
OLD_NAME = {(JOB, "old"): {A: 3}}


@dataclass(frozen=True)
class Case:
    what: str
    observed: Observed
    wish: GoOn | Restore
    refusal: object


REFUSED = [
    Case(
        "an empty folder",
        observed(History(), *AT_3),
        GoOn(),
        FolderBehind(FACTS, A, 3),
    ),
    Case(
        "a rewind in another folder that has died in a sink",
        observed(UP_TO_3, half_rewound(AT_3[0]), AT_3[1]),
        GoOn(),
        HalfRewound(FACTS),
    ),
    Case(
        "a restore after a rewind in another folder that has died in a sink",
        observed(UP_TO_3, AT_3[0], half_rewound(AT_3[1])),
        restore(3),
        HalfRewound(LAKE),
    ),
    Case(
        "a folder that has not seen the newest driver",
        observed(UP_TO_3, sink(FACTS, generation=2, lineage_a=3), AT_3[1]),
        GoOn(),
        DriverMissed(FACTS, 2),
    ),
    Case(
        "a folder that ends before a target",
        observed(UP_TO_3, sink(FACTS, lineage_a=4), AT_3[1]),
        GoOn(),
        FolderBehind(FACTS, A, 4, 3),
    ),
    Case(
        "a folder without the lineage of a target",
        observed(UP_TO_3, sink(FACTS, lineage_a=3, lineage_b=0), AT_3[1]),
        GoOn(),
        FolderBehind(FACTS, B, 0),
    ),
    Case(
        "a target with more of a lineage than the job continues",
        observed(
            History(2, (FIRST, Lineage(B, ancestors={A: 2})), ()),
            sink(FACTS, lineage_a=3),
            AT_2[1],
        ),
        GoOn(),
        FolderBehind(FACTS, A, 3, 2, continued=True),
    ),
    Case(
        "the same, with the fence of whoever has gone on elsewhere",
        observed(
            History(2, (FIRST, Lineage(B, "/saved", ancestors={A: 2})), ()),
            sink(FACTS, generation=3, lineage_a=3),
            AT_2[1],
        ),
        GoOn(),
        FolderBehind(FACTS, A, 3, 2, continued=True),
    ),
    Case(
        "the same, with a fence of before the restore",
        observed(
            History(2, (FIRST, Lineage(B, "/saved", ancestors={A: 2})), ()),
            sink(FACTS, lineage_a=3),
            AT_2[1],
        ),
        GoOn(),
        RowsReturned(FACTS, A, 3, 2),
    ),
    Case(
        "the same, with a checkpoint since the restore",
        observed(
            History(2, (FIRST, Lineage(B, "/saved", ancestors={A: 2})), (decision(1, lineage=B),)),
            sink(FACTS, lineage_a=3),
            AT_2[1],
        ),
        GoOn(),
        RowsReturned(FACTS, A, 3, 2, decision(1, lineage=B)),
    ),
    Case(
        "rows of the sink under its old name, beside an empty folder",
        observed(
            History(), replace(sink(FACTS, generation=0), others=OLD_NAME), sink(LAKE, generation=0)
        ),
        GoOn(),
        NamedOtherwise(FACTS, (JOB, "old"), A, 3),
    ),
    Case(
        "rows of the job under its old name, in a lineage that the log knows",
        observed(
            History(1, (FIRST,), (decision(2),)),
            replace(AT_2[0], others={("shop", FACTS): {A: 3}}),
            AT_2[1],
        ),
        GoOn(),
        NamedOtherwise(FACTS, ("shop", FACTS), A, 3),
    ),
    Case(
        "half a rewind",
        observed(replace(UP_TO_3, rewinding=BEGUN), *AT_3),
        GoOn(),
        RewindUnfinished(BEGUN),
    ),
    Case(
        "a target that was restored from a backup",
        observed(UP_TO_3, AT_2[0], AT_3[1]),
        GoOn(),
        TargetLacks(proof(3)),
    ),
    Case(
        "another target",
        observed(UP_TO_3, sink(FACTS, target="elsewhere"), AT_3[1]),
        GoOn(),
        TargetLacks(proof(3)),
    ),
    Case(
        "a table that was recreated",
        observed(UP_TO_3, replace(AT_3[0], memory=SinkHistory(1, {A: 3}, "it is empty")), AT_3[1]),
        GoOn(),
        TargetReplaced(FACTS),
    ),
    Case(
        "a sink with another name",
        Observed(JOB, UP_TO_3, {"new": sink(FACTS), LAKE: AT_3[1]}),
        GoOn(),
        SinkRenamed(proof(3), "new"),
    ),
    *(
        Case(
            f"a sink with another name, which may be, at a target that {what}",
            Observed(JOB, UP_TO_3, {"new": replace(sink(FACTS), others=others), LAKE: AT_3[1]}),
            GoOn(may_rename=True),
            RenamedLacks(proof(3), "new"),
        )
        for what, others in {
            "was restored from a backup": {(JOB, FACTS): {A: 2}},
            "is empty": {},
            "another job has written to": {("shop", FACTS): {A: 3}},
        }.items()
    ),
    Case(
        "a restore behind its own log",
        observed(UP_TO_3, *AT_3),
        restore(),
        RestoreBehind(A, 3, decision=decision(3)),
    ),
    Case(
        "a restore behind a sink",
        observed(History(), sink(FACTS, lineage_a=3), AT_2[1]),
        restore(),
        RestoreBehind(A, 3, 2, sink=FACTS),
    ),
    Case(
        "a restore behind rows of the renamed sink",
        observed(History(), replace(sink(FACTS), others=OLD_NAME), AT_2[1]),
        restore(),
        NamedOtherwise(FACTS, (JOB, "old"), A, 3),
    ),
    Case(
        "a rewind by a sink that cannot",
        observed(UP_TO_3, replace(AT_3[0], can_rewind=False), AT_3[1]),
        restore(policy=SinkAhead.REWIND),
        CannotTakeBack(FACTS),
    ),
    Case(
        "a rewind by a sink that cannot, and is bound to get what it would take back",
        observed(WAITS, replace(AT_2[0], can_rewind=False), AT_2[1], waiting=[body(3, FACTS)]),
        restore(policy=SinkAhead.REWIND),
        CannotTakeBack(FACTS),
    ),
    Case(
        "a restore that keeps more than half a rewind has left",
        observed(replace(UP_TO_3, rewinding=Rewinding("/older", {A: 1})), *AT_3),
        restore(policy=SinkAhead.REWIND),
        RewindUnfinished(Rewinding("/older", {A: 1})),
    ),
    Case(
        "a restore that does not rewind, in half a rewind",
        observed(replace(UP_TO_3, rewinding=BEGUN), *AT_3),
        restore(),
        RewindUnfinished(BEGUN),
    ),
    Case(
        "a restore beside an older copy of the target on another server",
        observed(History(), sink(FACTS, target="elsewhere", lineage_a=1), AT_2[1]),
        restore(),
        TargetLacks(proof(2)),
    ),
    Case(
        "a restore that another driver has done meanwhile",
        observed(History(2, (FIRST, Lineage(B, ancestors={A: 2}, origin="saved")), ()), *AT_2),
        replace(restore(), lineage=replace(restore().lineage, origin="saved")),
        RestoredMeanwhile(B),
    ),
    Case(
        "a restore of what a rewind has taken back",
        observed(History(2, (FIRST, Lineage(B, ancestors={A: 1})), ()), *AT_2),
        restore(policy=SinkAhead.REWIND),
        LeftBehind(A, 2, 1),
    ),
    Case(
        "a fork in a folder that has a job already",
        observed(UP_TO_3, *AT_3),
        replace(restore(policy=SinkAhead.FORK), lineage=Lineage(NEW, "/saved")),
        RestoreBehind(A, 2, decision=decision(2)),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_a_beginning_that_would_lose_or_repeat_rows_is_refused(case: Case) -> None:
    found = plan_start(case.observed, case.wish)
    assert found == case.refusal
    assert not isinstance(found, StartPlan)
    assert found.ways


def test_a_rewind_that_takes_back_more_finishes_one_that_has_begun() -> None:
    history = replace(UP_TO_3, rewinding=Rewinding("/newer", {A: 3}))
    found = plan_start(observed(history, *AT_3), restore(policy=SinkAhead.REWIND))
    assert isinstance(found, StartPlan)
    assert found.rewinding == BEGUN


def test_a_rewind_that_has_died_in_a_sink_is_finished_in_another_folder() -> None:
    seen = half_rewound(AT_3[0]), AT_3[1]
    assert isinstance(
        plan_start(observed(UP_TO_3, *seen), restore(policy=SinkAhead.REWIND)), StartPlan
    )


def test_every_kind_of_refusal_has_a_case() -> None:
    kinds = {kind.__name__ for kind in get_args(Refusal)}
    assert {type(case.refusal).__name__ for case in REFUSED} == kinds


def test_a_job_goes_on_and_commits_decided_checkpoints_first() -> None:
    found = plan_start(observed(WAITS, *AT_2), GoOn())
    assert found == StartPlan((decision(3, committed=False),))


def test_an_empty_folder_begins_beside_targets_that_have_seen_drivers_and_no_row() -> None:
    seen = sink(FACTS, generation=2), sink(LAKE, generation=1)
    assert plan_start(observed(History(), *seen), GoOn()) == StartPlan(())
    begins_at_the_end = observed(History(), *seen, skips_existing=True)
    assert plan_start(begins_at_the_end, GoOn()) == DriverMissed(FACTS, 2)


def test_a_sink_that_commits_ahead_is_no_reason_to_refuse() -> None:
    ahead = SinkDecision(A, 4, FACTS, Attempt(1, 1), HASH, (), (), ())
    history = replace(UP_TO_3, sink_decisions=(ahead,))
    assert isinstance(
        plan_start(observed(history, sink(FACTS, lineage_a=4), AT_3[1]), GoOn()), StartPlan
    )
    found = plan_start(observed(history, AT_3[0], sink(LAKE, lineage_a=4)), GoOn())
    assert found == FolderBehind(LAKE, A, 4, 3)


def test_a_sink_may_be_renamed_when_the_log_knows_all_of_its_rows() -> None:
    renamed = replace(sink(FACTS, generation=0), others={(JOB, FACTS): {A: 3}})
    found = plan_start(
        Observed(JOB, UP_TO_3, {"new": renamed, LAKE: AT_3[1]}), GoOn(may_rename=True)
    )
    assert isinstance(found, StartPlan)
    assert found.left == ((proof(3), "new"),)


def test_rows_of_another_job_in_the_same_table_are_its_own() -> None:
    others = {("shop", FACTS): {B: 7}}
    found = plan_start(observed(UP_TO_3, replace(AT_3[0], others=others), AT_3[1]), GoOn())
    assert isinstance(found, StartPlan)


def test_a_rewind_takes_back_what_is_there_and_what_is_bound_to_come() -> None:
    found = plan_start(
        observed(WAITS, sink(FACTS, lineage_a=2, lineage_b=5), AT_2[1], waiting=[body(3, LAKE)]),
        restore(policy=SinkAhead.REWIND),
    )
    assert isinstance(found, StartPlan)
    assert found.rewinding == BEGUN
    assert found.takes_back == (TakenBack(FACTS, B, 5, -1), TakenBack(LAKE, A, 3, 2))
    assert found.begins == restore().lineage


def test_a_rewind_takes_back_what_is_there_under_another_name() -> None:
    found = plan_start(
        observed(History(), replace(AT_2[0], others=OLD_NAME), AT_2[1]),
        restore(policy=SinkAhead.REWIND),
    )
    assert isinstance(found, StartPlan)
    assert found.takes_back == (TakenBack(FACTS, A, 3, 2, (JOB, "old")),)


def test_a_rewind_with_nothing_ahead_records_no_rewind() -> None:
    history = History(1, (FIRST,), (decision(2),))
    found = plan_start(observed(history, *AT_2), restore(policy=SinkAhead.REWIND))
    assert isinstance(found, StartPlan)
    assert found.rewinding is None


def test_a_restore_leaves_the_proofs_of_an_empty_target_behind() -> None:
    found = plan_start(
        observed(History(), sink(FACTS, generation=0, target="elsewhere"), AT_2[1]), restore()
    )
    assert isinstance(found, StartPlan)
    assert found.moved == (proof(2),)
    assert found.begins is not None
    assert found.begins.proofs == (proof(2, LAKE),)


def test_a_restore_beside_a_replica_keeps_its_proofs() -> None:
    found = plan_start(
        observed(History(), sink(FACTS, target="elsewhere", lineage_a=2), AT_2[1]), restore()
    )
    assert isinstance(found, StartPlan)
    assert found.moved == ()


# -- for every observed state ----------------------------------------------------------------------

NUMBERS = st.integers(0, 4)
MEMORIES = st.builds(
    SinkHistory, st.integers(0, 2), st.dictionaries(st.sampled_from([A, B]), NUMBERS)
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    if draw(st.booleans()):
        return History()
    first, last = draw(st.tuples(NUMBERS, NUMBERS).map(sorted))
    committed = draw(st.integers(first, last + 1))
    decisions = tuple(
        decision(number, committed=number < committed) for number in range(first, last + 1)
    )
    rewinding = draw(st.sampled_from([None, BEGUN]))
    return History(draw(st.integers(1, 2)), (FIRST,), decisions, rewinding=rewinding)


STATES = st.builds(
    lambda history, facts, lake: observed(
        history,
        ObservedSink("table of facts", facts, True),
        ObservedSink("table of lake", lake, True),
        waiting=[body(one.checkpoint, FACTS, LAKE) for one in history.uncommitted()],
    ),
    histories(),
    MEMORIES,
    MEMORIES,
)
WISHES = st.sampled_from(
    [GoOn(), *(restore(number, policy) for number in (1, 2) for policy in SinkAhead)]
)


@given(STATES, WISHES)
def test_a_plan_repeats_no_row_and_misses_none(state: Observed, wish: GoOn | Restore) -> None:
    found = plan_start(state, wish)
    if not isinstance(found, StartPlan):
        assert found == next(refusals(state, wish))
        assert found.ways
        return
    taken = {(one.sink, one.lineage): one.kept for one in found.takes_back}
    for name, one in state.sinks.items():
        # what is in a target once the plan is carried out: what it has, and what is committed
        shown = dict(one.memory.committed)
        for waiting in found.commits:
            shown[waiting.lineage] = max(shown.get(waiting.lineage, -1), waiting.checkpoint)
        shown |= {lineage: kept for (sink, lineage), kept in taken.items() if sink == name}
        if isinstance(wish, Restore):
            ends = wish.keep
        else:
            newest = state.history.newest(A)
            ends = {A: newest.checkpoint if newest else -1}
        assert all(last <= ends.get(lineage, -1) for lineage, last in shown.items())
        if isinstance(wish, GoOn) and (expected := state.history.newest_committed(A)):
            assert shown[A] >= expected.checkpoint
    if isinstance(wish, GoOn):
        assert state.history.rewinding is None

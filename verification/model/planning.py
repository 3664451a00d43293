"""The plan of a start, which the product's own function makes.

`twophase.coordinator.recovery.plan.plan_start` is not written down a second time: what a driver
knows and what the sinks remember is turned into what that function observes, and what the driver
is there for into its wish, as `StartPlanner` does. The model's tuples are their own identity, so
nothing is planned twice.

A deliberate mistake in a rule of the plan is made around the call: something is not shown to the
function, or what it says is not heard. Mistakes within the function are in `plan_mistakes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from twophase import ids
from twophase.contract.committable import Committable
from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.proofs import knows
from twophase.coordinator.recovery import plan as product
from twophase.coordinator.recovery.plan import Observed, ObservedSink, Refusal, StartPlan
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.journal import entries
from twophase.state.journal import history as journal
from verification.model import targets
from verification.model.pieces import LISTED, VISIBLE, Sink
from verification.model.state import (
    Decision,
    Driver,
    History,
    Lineage,
    Memory,
    Proofs,
    Remembered,
    State,
)
from verification.model.world import Mistake, Rules, World

JOB = "job"
_HASH = "0" * 64
_MADE_WITHOUT_PROOFS = (
    Mistake.TARGETS_NOT_VALIDATED_AGAINST_LOG,
    Mistake.RESTORE_WITHOUT_ADOPTING,
    Mistake.SAVEPOINT_WITHOUT_PENDING,
    Mistake.SAVEPOINT_ABORTED_FIRST,
    Mistake.FINISHED_UNCOMMITTED,
)
"""The proofs of the targets stop the last four as well: they are made without those, so that what
is there for them is tried.
"""


class Wish(NamedTuple):
    """What a driver is started for: to go on, or to restore a checkpoint.

    Attributes:
        begins: the lineage that a restore begins; None to go on.
        adopting: decided checkpoints that a restore commits first.
        before: what the targets have to have proof of before the first of them.
        rewinds: whether the sinks take back what is after the restored checkpoint.
        savepoint: whether it is one of a savepoint.
    """

    begins: Lineage | None = None
    adopting: tuple[Decision, ...] = ()
    before: Proofs = ()
    rewinds: bool = False
    savepoint: bool = False

    @classmethod
    def of(cls, driver: Driver) -> Wish:
        """The wish of a driver."""
        if driver.begins is None:
            return GO_ON
        return cls(
            driver.begins, driver.adopting, driver.before, driver.rewinds > 0, driver.savepoint
        )


GO_ON = Wish()

InDoubt = tuple[tuple[tuple[int, int], ...], ...]
"""Of each sink the newest checkpoint of each lineage with pieces in doubt, sorted."""


def in_doubt(state: State) -> InDoubt:
    """`OpenSink.in_doubt` of all sinks."""
    return tuple(map(_in_doubt, state.sinks))


@cache
def _in_doubt(sink: Sink) -> tuple[tuple[int, int], ...]:
    listed = sorted(piece[:2] for piece in sink.pieces if piece.status in LISTED)
    return tuple(dict(listed).items())


def remembered(state: State) -> Remembered:
    """`OpenSink.history` of all sinks."""
    return tuple(map(_memory, state.sinks))


def plan(
    world: World, state: State, driver: Driver, found: Remembered | None = None
) -> StartPlan | Refusal:
    """`StartPlanner.plan`: what a driver does, or why it must not.

    Args:
        world: the configuration.
        state: a sink that lacks a proof is asked once more.
        driver: has read the log.
        found: what the sinks remember; by default what they did when the driver asked them.
    """
    found = driver.remembered if found is None else found
    return planned(world, state, driver.history, Wish.of(driver), found)


def planned(
    world: World, state: State, history: History, wish: Wish, found: Remembered
) -> StartPlan | Refusal:
    """The same of any history and any wish."""
    while True:
        doubt = () if history.lineages or wish.begins else in_doubt(state)
        answer = _answer(history, found, wish, world.rules, world.mistake, doubt)
        more = _asked_once_more(state, found, [answer])
        if more == found:
            return answer
        found = more


def check(world: World, state: State, driver: Driver) -> tuple[Refusal, ...]:
    """`StartPlanner.check`: every reason why the job cannot go on by itself, for a repair."""
    found = driver.remembered
    while True:
        doubt = () if driver.history.lineages else in_doubt(state)
        answers = _refusals(driver.history, found, world.rules, doubt)
        more = _asked_once_more(state, found, answers)
        if more == found:
            return answers
        found = more


def forget() -> None:
    """Forget what was planned: the product's function was changed."""
    _answer.cache_clear()
    _refusals.cache_clear()


def place_of(sink: str) -> int:
    """The place of the product's sink."""
    return int(sink)


# -- the call --------------------------------------------------------------------------------------


@cache
def _answer(
    history: History,
    found: Remembered,
    wish: Wish,
    rules: Rules,
    mistake: Mistake | None,
    doubt: InDoubt,
) -> StartPlan | Refusal:
    seen, wants = observed(history, found, wish, rules, doubt), wished(wish, rules)
    if mistake is Mistake.RESTORE_OVERLOOKS_COMMITTED and wish.begins is not None:
        overlooking = replace(seen.history, decisions=tuple(seen.history.uncommitted()))
        seen = replace(seen, history=overlooking)
    answer = product.plan_start(seen, wants)
    if isinstance(answer, StartPlan) or mistake is None:
        return answer
    heard = (why for why in product.refusals(seen, wants) if _hears(mistake, seen, wish, why))
    return next(heard, StartPlan())


def _hears(mistake: Mistake, seen: Observed, wish: Wish, why: Refusal) -> bool:
    """Whether a driver that makes a mistake heeds a refusal."""
    if isinstance(why, product.TargetLacks):
        is_empty = not seen.sinks[why.proof.sink].committed
        if mistake is Mistake.EMPTY_TAKEN_FOR_NEW:
            return not is_empty
        return mistake not in _MADE_WITHOUT_PROOFS
    if mistake is Mistake.STORE_NOT_VALIDATED_AGAINST_SINKS:
        return wish.begins is not None
    return mistake is not Mistake.SAVEPOINT_NOT_COMPARED or not wish.savepoint


@cache
def _refusals(
    history: History, found: Remembered, rules: Rules, doubt: InDoubt
) -> tuple[Refusal, ...]:
    seen = observed(history, found, GO_ON, rules, doubt)
    return tuple(product.refusals(seen, product.GoOn(may_rename=True)))


def _asked_once_more(
    state: State, found: Remembered, answers: Iterable[StartPlan | Refusal]
) -> Remembered:
    """What the sinks remember, with the proofs that they have by now: `Observed.with_proof`."""
    for answer in answers:
        if isinstance(answer, product.TargetLacks):
            place = place_of(answer.proof.sink)
            memory = found[place]
            if knows(_history(_memory(state.sinks[place])), answer.proof):
                newer = {
                    **dict(memory.committed),
                    int(answer.proof.lineage): answer.proof.checkpoint,
                }
                memory = memory._replace(committed=tuple(sorted(newer.items())))
                found = (*found[:place], memory, *found[place + 1 :])
    return found


# -- what it observes ------------------------------------------------------------------------------


@cache
def observed(
    history: History, found: Remembered, wish: Wish, rules: Rules, doubt: InDoubt = ()
) -> Observed:
    """What a start finds."""
    sinks = {
        _sink(place): ObservedSink(
            _target(place, memory.target),
            _history(memory),
            rules.can_rewind,
            in_doubt=_ends(doubt[place]) if doubt else {},
        )
        for place, memory in enumerate(found)
    }
    waiting = _waiting(history, len(found)) if wish.rewinds else ()
    return Observed(JOB, _journal(history, len(found), rules), sinks, waiting)


@cache
def _memory(sink: Sink) -> Memory:
    highest: dict[int, int] = {}
    proofs = [piece[:2] for piece in sink.pieces if piece.status in VISIBLE]
    for lineage, number in (*proofs, *sink.marks):
        highest[lineage] = max(highest.get(lineage, -1), number)
    committed = tuple(sorted(highest.items()))
    return Memory(sink.fence[0], committed, sink.target, sink.half_rewound)


def remembering(sinks: Mapping[str, ObservedSink], found: Remembered) -> dict[str, ObservedSink]:
    """The sinks, which remember something else by now."""
    return {
        name: replace(one, memory=_history(found[place_of(name)])) for name, one in sinks.items()
    }


def _history(memory: Memory) -> SinkHistory:
    committed = _ends(memory.committed)
    return SinkHistory(memory.generation, committed, half_rewound=memory.half_rewound)


@cache
def _journal(history: History, sinks: int, rules: Rules) -> journal.History:
    """The product's history of the same log."""
    return journal.History(
        generation=history.generation,
        lineages=tuple(_lineage(one, rules) for one in history.lineages),
        decisions=tuple(_decision(history, one, sinks, rules) for one in history.decisions),
        rewinding=rewinding(history.rewinding) if history.rewinding else None,
        sink_decisions=tuple(
            entries.SinkDecision(
                str(lineage), number, _sink(place), ids.Attempt(*attempt), _HASH, (), (), ()
            )
            for place, lineage, number, *attempt in history.ahead
        ),
    )


def rewinding(keep: tuple[tuple[int, int], ...]) -> entries.Rewinding:
    """The product's record of a rewind."""
    return entries.Rewinding("", _ends(keep))


def _lineage(lineage: Lineage, rules: Rules) -> entries.Lineage:
    ancestors = _ends(lineage.ancestors)
    proofs = _proofs(lineage.proofs, rules)
    return entries.Lineage(str(lineage.id), "", lineage.first, (), ancestors, proofs)


def _decision(history: History, decision: Decision, sinks: int, rules: Rules) -> entries.Decision:
    proofs = targets.proofs_of(history, decision, sinks)
    return entries.Decision(
        str(decision.lineage),
        decision.number,
        ids.Attempt(*decision.attempt),
        _HASH,
        _HASH,
        decision.committed,
        _proofs(proofs, rules),
    )


def _waiting(history: History, sinks: int) -> tuple[CompletedCheckpoint, ...]:
    """The bodies of what the log has still to commit."""
    whole = (_body(one, range(sinks)) for one in history.decisions if not one.committed)
    ahead = (_body(Decision(*one[1:]), one[:1]) for one in history.ahead)
    return (*whole, *ahead)


def _body(
    decision: Decision, places: Iterable[int], predecessors: tuple[entries.Proof, ...] = ()
) -> CompletedCheckpoint:
    """The body of a checkpoint, with one piece in each sink whose pieces were not given up."""
    lineage, number = str(decision.lineage), decision.number
    attempt = ids.Attempt(*decision.attempt)
    pieces = {}
    for place in places:
        transaction = ids.TransactionId(JOB, lineage, number, attempt, _sink(place), _HASH)
        piece = Committable(transaction, ids.Subtask(0, 1), _target(place), 1)
        pieces[_sink(place)] = [] if place in decision.given_up else [piece]
    offsets = FrozenOffsets((), ())
    return CompletedCheckpoint(
        JOB,
        lineage,
        number,
        attempt,
        0,
        offsets,
        committables=pieces,
        predecessors=predecessors,
    )


def _proofs(proofs: Proofs, rules: Rules) -> tuple[entries.Proof, ...]:
    return tuple(
        entries.Proof(_sink(place), str(lineage), number, _target(place))
        for place, lineage, number in (proofs if rules.asks else ())
    )


def _ends(ancestors: tuple[tuple[int, int], ...]) -> dict[str, int]:
    return {str(lineage): last for lineage, last in ancestors}


def _sink(place: int) -> str:
    return str(place)


def _target(place: int, server: int = 0) -> str:
    return f"target {place}" if not server else f"target {place} on another server"


# -- the wish --------------------------------------------------------------------------------------


@cache
def wished(wish: Wish, rules: Rules) -> product.Wish:
    """The product's wish."""
    if wish.begins is None:
        return product.GoOn()
    begins = _lineage(wish.begins, rules)
    [*_, (restored, number)] = begins.ancestors.items()
    checkpoint = _body(Decision(int(restored), number, 0, 0), (), begins.proofs)
    adopting = tuple(_body(one, (), _proofs(wish.before, rules)) for one in wish.adopting)
    policy = SinkAhead.REWIND if wish.rewinds else SinkAhead.REFUSE
    return product.Restore(checkpoint, begins, adopting, policy)

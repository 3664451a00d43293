"""No state is a dead end: some wish leads on from each, or a repair that says what is given up.

Asked of every state in which nobody drives the job, or in which a driver has just been refused.
Nothing is explored for it: the product's plan tells of each wish whether it can be carried out
there, and its refusals tell which repairs lead on (`Way`). A way on is

    going on                the start is planned, and no piece that it commits is lost
    a restore               of a checkpoint that a log or the copy of one keeps, or of the
                            savepoint, in the job's folder or a new one, with or without a rewind
    accepting a loss        of a decided piece that is lost, or of all that a target lacks, where
                            nothing keeps the job from going on but a folder that is behind
    giving up a rewind      that has begun, where nothing else is wrong but that a target lacks
                            rows, or that the folder is behind; if the folder does not know it, by
                            the savepoint, where a sink tells of it
    adopting                from the targets, where the folder is behind and nothing else is wrong;
                            and of a folder that has missed a driver, whatever else is

and after a repair there is one again. In a world where a rewind that has died cannot be finished
(`World.finishes_rewinds`), none of them takes rows back. What a repair writes in the log is the
product's record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from twophase.coordinator.commit.proofs import Proofs, knows
from twophase.coordinator.recovery import plan as product
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    GoOn,
    HalfRewound,
    Observed,
    Refusal,
    RewindUnfinished,
    RowsReturned,
    StartPlan,
    TargetLacks,
    Way,
)
from twophase.state.journal import history as journal
from twophase.state.journal.entries import (
    AbandonedRewind,
    AcceptedLoss,
    Adoption,
    Decision,
    FenceRecord,
    Lineage,
    Note,
    Proof,
    SinkDecision,
)
from verification.model import log, planning, savepoints, sinks, targets
from verification.model.planning import Wish
from verification.model.state import CHANGED, LOST, REFUSED, Driver, History, Remembered, State
from verification.model.state import Decision as Decided
from verification.model.state import Lineage as Begun
from verification.model.world import World

Ends = tuple[tuple[int, int], ...]
Piece = tuple[int, int, int]
"""Lineage, number and place: a checkpoint has all pieces in a sink or none."""

ABANDON_LEADS_ON: tuple[type[Refusal], ...] = (RewindUnfinished, TargetLacks, FolderBehind)
"""`RewindRepair._check`, where the newest folder is gone."""
_NAMED_LEADS_ON: tuple[type[Refusal], ...] = (*ABANDON_LEADS_ON, HalfRewound, DriverMissed)
"""The same of a rewind that the operator names."""

_MOST_REPAIRS = 9
_MOST_SINKS = 9
_NOTE = Note("an operator", 0, "")
_NEW = 99


class Situation(NamedTuple):
    """What decides whether there is a way on.

    Attributes:
        logs: of the job's folder, and of another one that has a driver.
        found: what the sinks remember.
        settled: the same once a rewind that each log has begun is settled.
        named: what a rewind goes back to that no folder tells of: the savepoint; empty without one.
        lost: the pieces that a sink would prove lost.
        restores: what could be restored, with the place of the log that it is beside; None for
            what is beside none of them.
    """

    logs: tuple[History, ...]
    found: Remembered
    settled: tuple[Remembered, ...]
    named: Ends
    lost: frozenset[Piece]
    restores: tuple[tuple[int | None, Wish], ...]


def there_is_a_way_on(world: World, state: State) -> bool:
    """The invariant."""
    if not state.drivers or not _is_asked(state):
        return True
    return bool(ways_on(world, situation(world, state)))


def _is_asked(state: State) -> bool:
    stopped = state.drivers[-1] in (REFUSED, LOST, CHANGED)
    return stopped or not any(isinstance(driver, Driver) for driver in state.drivers)


@cache
def ways_on(world: World, of: Situation) -> str:
    """Describe the first way on; empty if there is none."""
    for place, history in enumerate(of.logs):
        observed = planning.observed(history, of.found, planning.GO_ON, world.rules_of_ways)
        if way := _repaired(observed, history, of, of.settled[place]):
            return way
        if way := _restored(world, of, history, place):
            return way
    return _restored(world, of, History(), None)


# -- what there is ---------------------------------------------------------------------------------


def situation(world: World, state: State) -> Situation:
    """What decides it in a state."""
    logs = [log.read(one)[0] for one in (state.log, state.other) if one is not None]
    restores = tuple(_restores(state, logs))
    decisions = {one for history in logs for one in (*history.decisions, *_ahead(history))}
    decisions |= {one for _, wish in restores for one in wish.adopting}
    waiting = [one for one in decisions if not one.committed]
    lost = frozenset(
        (*one[:2], place)
        for one in waiting
        for place, sink in enumerate(state.sinks)
        for xid in one.xids(place, world.pieces_of(place, one.attempt))
        if sinks.try_commit(world, world.servers[place], sink, xid)[0] == sinks.LOSES
    )
    found, named = planning.remembered(state), _named(state)
    settled = tuple(planning.remembered(_settled(state, one.rewinding or named)) for one in logs)
    return Situation(tuple(logs), found, settled, named, lost, restores)


def _named(state: State) -> Ends:
    is_half_rewound = any(sink.half_rewound for sink in state.sinks)
    return savepoints.ancestors_of(state.saved) if state.saved and is_half_rewound else ()


def _settled(state: State, ends: Ends) -> State:
    kept = dict(ends)
    if not kept:
        return state
    return state._replace(sinks=tuple(savepoints.settled(one, kept) for one in state.sinks))


def _ahead(history: History) -> Iterator[Decided]:
    """What a sink has ahead, as if the others had nothing of it."""
    for place, *of in history.ahead:
        others = tuple(other for other in range(_MOST_SINKS) if other != place)
        yield Decided(of[0], of[1], of[2], of[3], given_up=others)


def _restores(state: State, logs: list[History]) -> Iterator[tuple[int | None, Wish]]:
    """Everything that could be restored."""
    found = [*enumerate(logs), *([(None, state.copy)] if state.copy else [])]
    for beside, history in found:
        for at, decision in enumerate(history.decisions):
            known = history.decisions[: at + 1]
            [of] = [one for one in history.lineages if one.id == decision.lineage]
            begins = Begun(
                id=_NEW,
                first=1,
                ancestors=(*of.ancestors, decision[:2]),
                proofs=targets.proofs_of(history, decision, len(state.sinks)),
            )
            adopting = tuple(one for one in known if not one.committed)
            before = (
                targets.proofs_before(history, adopting[0], len(state.sinks)) if adopting else ()
            )
            later = any(not one.committed for one in history.decisions[at + 1 :])
            later = later or any(one[2] > decision.number for one in history.ahead)
            if not later:
                yield beside, Wish(begins, adopting, before)
                yield None, Wish(begins, adopting, before)
                yield None, Wish(begins, adopting, before, rewinds=True)
            yield beside, Wish(begins, adopting, before, rewinds=True)
    if (saved := state.saved) is not None:
        ends = (*saved.lineage.ancestors, (saved.lineage.id, saved.number))
        begins = Begun(_NEW, 0, saved.number + 1, ends, saved.proofs)
        for rewinds in (False, True):
            for beside in (*range(len(logs)), None):
                wish = Wish(begins, saved.pending, saved.before, rewinds, savepoint=True)
                yield beside, wish


# -- the ways --------------------------------------------------------------------------------------


def _restored(world: World, of: Situation, history: History, place: int | None) -> str:
    for beside, wish in of.restores:
        # the loss of what a savepoint holds is accepted, with the savepoint in `restore.path`
        adopted = () if wish.savepoint else wish.adopting
        pieces = {one[:2] for one in (*adopted, *history.decisions) if not one.committed}
        if beside != place or any(one[:2] in pieces for one in of.lost):
            continue
        rules = world.rules_of_ways
        observed = planning.observed(history, of.found, wish, rules)
        if isinstance(product.plan_start(observed, planning.wished(wish, rules)), StartPlan):
            begins = wish.begins
            assert begins is not None
            how = "rewinds to" if wish.rewinds else "restores"
            return f"{how} {begins.ancestors[-1]}{'' if beside is not None else ' elsewhere'}"
    return ""


def _repaired(observed: Observed, history: History, of: Situation, settled: Remembered) -> str:
    """Repair as often as the plan asks for it, until the job goes on."""
    repairs, lost = list[str](), of.lost
    for _ in range(_MOST_REPAIRS):
        found = product.plan_start(observed, GoOn())
        gone = _gone(observed, history, lost)
        if isinstance(found, StartPlan) and not gone:
            return ", ".join([*repairs, "goes on"])
        reasons = tuple(product.refusals(observed, GoOn(may_rename=True)))
        if after := _abandoned(observed, reasons, settled, of.named):
            observed = after
            repairs.append("gives up the rewind")
        elif after := _adopted(observed, reasons, is_whole=not gone):
            observed = after
            repairs.append("adopts")
        elif after := _without_proof(observed, reasons):
            observed = after
            repairs.append("accepts a gap")
        elif gone and _may_accept(reasons):
            observed, lost = _without_piece(observed, history, gone[0]), lost - {gone[0]}
            repairs.append(f"accepts the loss of {gone[0]}")
        else:
            return ""
    return ""


def _gone(observed: Observed, history: History, lost: frozenset[Piece]) -> list[Piece]:
    """The pieces that the log has still to commit, and that are lost."""
    waiting = [(int(one.lineage), one.checkpoint) for one in observed.history.uncommitted()]
    waiting += [(one[1], one[2]) for one in history.ahead]
    return sorted(one for one in lost if one[:2] in waiting)


def _may_accept(reasons: Sequence[Refusal], *repairs: type[Refusal]) -> bool:
    """`LossRepair.plan`: a folder that is behind, or a target with returned rows, is next."""
    return all(isinstance(one, (FolderBehind, RowsReturned, *repairs)) for one in reasons)


def _without_proof(observed: Observed, reasons: Sequence[Refusal]) -> Observed | None:
    """`LossRepair`, of all that a target lacks; None if it cannot be accepted."""
    lacks = [one for one in reasons if isinstance(one, TargetLacks) and _is_same(observed, one)]
    if not lacks or Way.ACCEPT_LOSS not in lacks[0].ways or not _may_accept(reasons, TargetLacks):
        return None
    proof = lacks[0].proof
    context = SimpleNamespace(history=observed.history)
    proofs = Proofs(observed.job, cast("Any", context), cast("Any", None))
    missing, before = proofs.missing(proof, observed.sinks[proof.sink].memory)
    return _accepted(observed, proof, before, missing)


def _abandoned(
    observed: Observed, reasons: Sequence[Refusal], settled: Remembered, named: Ends
) -> Observed | None:
    """`RewindRepair`: what a sink lacks once it is settled is a loss."""
    begun, leads_on = observed.history.rewinding, ABANDON_LEADS_ON
    is_named = any(isinstance(one, HalfRewound) for one in reasons)
    if begun is None and named and is_named:
        begun, leads_on = planning.rewinding(named), _NAMED_LEADS_ON
    ways = HalfRewound.ways if is_named else RewindUnfinished.ways
    is_for_it = all(isinstance(one, leads_on) for one in reasons)
    if begun is None or not is_for_it or Way.ABANDON_REWIND not in ways:
        return None
    observed = replace(observed, sinks=planning.remembering(observed.sinks, settled))
    context = SimpleNamespace(history=observed.history)
    proofs = Proofs(observed.job, cast("Any", context), cast("Any", None))
    losses = [
        _loss(proof, *reversed(proofs.missing(proof, observed.sinks[proof.sink].memory)))
        for proof in observed.history.committed_proofs()
        if not knows(observed.sinks[proof.sink].memory, proof)
    ]
    record = AbandonedRewind(_NOTE, begun, tuple(losses), ())
    return replace(observed, history=_fenced(observed).apply(record))


def _is_same(observed: Observed, why: TargetLacks) -> bool:
    """`LossRepair._gap`: the target that the log names, or one that knows the job."""
    sink = observed.sinks[why.proof.sink]
    return bool(why.proof.target == sink.target or sink.committed)


def _without_piece(observed: Observed, history: History, piece: Piece) -> Observed:
    """`LossRepair`, of the pieces of a decided checkpoint."""
    lineage, number, place = piece
    of = Decided(lineage, number, 0, 0)
    sink = observed.sinks[str(place)]
    proof = Proof(str(place), str(lineage), number, sink.target)
    before = [
        Proof(str(place), str(one), last, sink.target)
        for at, one, last in targets.proofs_before(history, of, len(observed.sinks))
        if at == place
    ]
    for loss in observed.history.repairs:
        if isinstance(loss, AcceptedLoss):
            before = [*loss.amend_checkpoint(str(lineage), number, tuple(before))]
    return _accepted(observed, proof, before, [proof])


def _accepted(
    observed: Observed, proof: Proof, before: Iterable[Proof], lacks: Iterable[Proof]
) -> Observed:
    return replace(observed, history=_fenced(observed).apply(_loss(proof, before, lacks)))


def _loss(proof: Proof, before: Iterable[Proof], lacks: Iterable[Proof]) -> AcceptedLoss:
    return AcceptedLoss(
        _NOTE,
        proof.lineage,
        proof.checkpoint,
        proof.sink,
        pieces=(),
        rows=0,
        start=(),
        end=(),
        emptied=True,
        before=tuple(before),
        lacks=tuple(lacks),
    )


def _adopted(observed: Observed, reasons: Sequence[Refusal], *, is_whole: bool) -> Observed | None:
    """`AdoptionRepair`: what waits of this log is committed, and a lineage begins."""
    history, ends = observed.history, dict[str, int]()
    missed = [one for one in reasons if isinstance(one, DriverMissed)]
    if missed and history.lineages and Way.ADOPT in missed[0].ways:
        return replace(observed, history=_fenced(observed))
    is_for_it = all(isinstance(one, FolderBehind | DriverMissed) for one in reasons)
    if not reasons or not is_for_it or Way.ADOPT not in reasons[0].ways:
        return None
    if not is_whole or _lacks_what_is_ahead(observed):
        return None
    observed = _committed(observed, (*history.uncommitted(), *history.sink_decisions))
    known = [(one.lineage, one.checkpoint) for one in history.decisions]
    for name, last in (*known, *((one.lineage, one.checkpoint) for one in _proven(observed))):
        ends[name] = max(ends.get(name, -1), last)
    newest = {one.sink: one for one in sorted(_proven(observed), key=lambda one: int(one.lineage))}
    lineage = Lineage(str(_NEW), "", 1, ("end",), ends, tuple(newest.values()))
    return replace(observed, history=_fenced(observed).apply(Adoption(_NOTE, lineage)))


def _lacks_what_is_ahead(observed: Observed) -> bool:
    """`AdoptionPlanner`: whether a sink has no proof of what others have ahead of it."""
    ahead = observed.history.sink_decisions
    others = [sink for name, sink in observed.sinks.items() if name not in {a.sink for a in ahead}]
    return any(
        sink.committed.get(one.lineage, -1) < one.checkpoint for one in ahead for sink in others
    )


def _committed(observed: Observed, waiting: Iterable[Decision | SinkDecision]) -> Observed:
    for one in waiting:
        for name, sink in observed.sinks.items():
            proof = Proof(name, one.lineage, one.checkpoint, sink.target)
            if not knows(sink.memory, proof):
                observed = observed.with_proof(proof)
    return observed


def _proven(observed: Observed) -> Iterator[Proof]:
    for name, sink in observed.sinks.items():
        for lineage, number in sink.committed.items():
            yield Proof(name, lineage, number, sink.target)


def _fenced(observed: Observed) -> journal.History:
    known = [sink.memory.generation for sink in observed.sinks.values()]
    return observed.history.apply(FenceRecord(1 + max(observed.history.generation, *known)))

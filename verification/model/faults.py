"""What goes wrong, and what operators do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from verification.model import log, repairs, targets
from verification.model.explore import Transition
from verification.model.pieces import (
    COMMITTED,
    COMMITTING,
    HELD,
    LEAVING,
    LIMBO,
    OPEN,
    PREPARED,
    RETURNED,
    ROLLED_BACK,
    VISIBLE,
    Sink,
)
from verification.model.state import DEAD, Ahead, Driver, History, Slot, State, Subsume
from verification.model.steps import with_sink, without_driver
from verification.model.world import World

_RESTARTED = {HELD: PREPARED, LEAVING: PREPARED, LIMBO: RETURNED}


def faults(world: World, state: State) -> Iterator[Transition[State]]:
    """Everything that the budget still allows."""
    budget = state.budget
    if budget.crashes:
        fewer = state._replace(budget=budget._replace(crashes=budget.crashes - 1))
        for driver in state.drivers:
            if isinstance(driver, Driver):
                crashed = without_driver(fewer, driver, DEAD)
                yield Transition(("crashes", driver.owner), crashed, fault=True)
    if budget.power_losses:
        yield Transition(("loses power", "the store"), _without_power(state), fault=True)
    yield from _servers(world, state)
    yield from _operators(state)
    yield from targets.copies(state)
    yield from targets.target_restores(state)
    yield from repairs.returns(state)


def _without_power(state: State) -> State:
    """All drivers die with the machine, and what was not synced is gone."""
    kept = tuple(slot for slot in state.log if slot is None or slot.synced)
    return state._replace(
        log=kept,
        drivers=tuple(DEAD if isinstance(driver, Driver) else driver for driver in state.drivers),
        budget=state.budget._replace(power_losses=state.budget.power_losses - 1),
    )


def _servers(world: World, state: State) -> Iterator[Transition[State]]:
    budget = state.budget
    for place, (server, sink) in enumerate(zip(world.servers, state.sinks, strict=True)):
        if not server.has_sessions and not budget.rollbacks:
            continue
        if any(piece.status == LIMBO for piece in sink.pieces):
            # A repair, not a fault: the reason of the retries tells the operator to do it.
            for restarted in _restarted(sink):
                yield Transition(
                    ("is restarted", "sink", place), with_sink(state, place, restarted)
                )
        elif budget.server_crashes and server.has_sessions:
            fewer = state._replace(budget=budget._replace(server_crashes=budget.server_crashes - 1))
            for restarted in _restarted(sink):
                yield Transition(
                    ("crashes", "sink", place), with_sink(fewer, place, restarted), fault=True
                )
        if budget.rollbacks:
            fewer = state._replace(budget=budget._replace(rollbacks=budget.rollbacks - 1))
            for piece in sink.pieces:
                if piece.status == PREPARED:
                    gone = tuple(
                        found._replace(status=ROLLED_BACK) if found is piece else found
                        for found in sink.pieces
                    )
                    changed = with_sink(fewer, place, sink._replace(pieces=gone))
                    yield Transition(
                        ("rolls back by hand", "somebody", place, *piece[:5]), changed, fault=True
                    )


def _restarted(sink: Sink) -> Iterator[Sink]:
    """Open branches are gone, prepared ones stay; a commit in flight has happened or has not."""
    staying = [piece for piece in sink.pieces if piece.status != OPEN]
    flying = [piece for piece in staying if piece.status == COMMITTING]
    for outcomes in product((PREPARED, COMMITTED), repeat=len(flying)):
        landed = dict(zip(flying, outcomes, strict=True))
        yield sink._replace(
            pieces=tuple(
                piece._replace(
                    status=landed.get(piece) or _RESTARTED.get(piece.status, piece.status)
                )
                for piece in staying
            )
        )


def _lives(state: State) -> bool:
    return any(isinstance(driver, Driver) for driver in state.drivers)


def _restored(state: State) -> State:
    """The copy takes the place of the folder: what was decided since is in the targets only."""
    assert state.copy is not None
    fewer = state.budget._replace(folder_restores=state.budget.folder_restores - 1)
    known = {decision[:4] for decision in state.copy.decisions}
    return state._replace(
        log=(Slot(0, Subsume("SUBSUMED", state.copy)),),
        decided=tuple(
            found if found[:4] in known else found._replace(lost=True) for found in state.decided
        ),
        ahead=tuple(_ahead_again(state, state.copy)),
        budget=fewer,
    )


def _ahead_again(state: State, copy: History) -> Iterator[Ahead]:
    """What sinks are ahead with by a copy, or have committed."""
    shown = {
        (place, *piece[:4])
        for place, sink in enumerate(state.sinks)
        for piece in sink.pieces
        if piece.status in VISIBLE
    }
    yield from (one for one in state.ahead if one[:5] in copy.ahead or one[:5] in shown)
    for decided in state.decided:  # in all sinks since
        for place, generation, counter, owner in decided.instead:
            found = (place, decided.lineage, decided.number, generation, counter)
            if found in copy.ahead:
                yield (*found, owner, decided.range)


def _operators(state: State) -> Iterator[Transition[State]]:
    budget = state.budget
    if budget.copies:
        copied = state._replace(
            copy=log.read(state.log)[0], budget=budget._replace(copies=budget.copies - 1)
        )
        yield Transition(("copies the folder", "the operator"), copied, fault=True)
    if budget.folder_restores and state.copy is not None and not _lives(state):
        yield Transition(("restores the folder", "the operator"), _restored(state), fault=True)
    if budget.losses and not _lives(state):
        copy = state.copy.decisions if state.copy else ()
        known = {decision[:4] for decision in copy}
        lost = state._replace(
            log=(),
            decided=tuple(
                found if found[:4] in known else found._replace(lost=True)
                for found in state.decided
            ),
            budget=budget._replace(losses=budget.losses - 1),
        )
        yield Transition(("loses the folder", "the operator"), lost, fault=True)

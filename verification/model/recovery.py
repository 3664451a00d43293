"""A driver's start: what it looks at, how it takes over, and how it closes older attempts.

`twophase.coordinator.recovery.recovery`, `.plan` and `twophase.coordinator.commit.orphans`,
`twophase.operations.savepoint.restore`, `twophase.sinks.mysql.fence`:

    1. what the sinks remember is validated against what the log says     REMEMBER, READ
    2. FENCE(generation)                                             FENCE
    3. commit decided checkpoints, oldest first                          RECOMMIT, in `checkpoint`
    4. in each sink: scan, abort, fence, scan, abort                 SCAN to FINAL_ABORT
    5. a lineage, if there is none or a restore begins one           LINEAGE
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verification.model import log, steps, targets
from verification.model.explore import Transition
from verification.model.pieces import VISIBLE
from verification.model.state import (
    ADOPT,
    CHANGED,
    DEAD,
    LOST,
    REFUSED,
    REWRITE,
    Begin,
    Decision,
    Driver,
    Fence,
    History,
    Lineage,
    State,
)
from verification.model.steps import with_driver, without_driver
from verification.model.world import Mistake, World

Remembered = tuple[int, tuple[tuple[int, int], ...]]
_STOPPED_BY_ASKING = (
    Mistake.ABORT_AFTER_UNCLEAR_CREATE,
    Mistake.XID_WITHOUT_GENERATION,
    Mistake.RESTORE_OVERLOOKS_COMMITTED,
)
"""Mistakes that a driver which asks again would not live to make."""
After = Callable[[State, Driver], State]


# -- starting --------------------------------------------------------------------------------------


def starts(world: World, state: State) -> Iterator[Transition[State]]:
    """A driver is started: by itself when none lives, as a rival, or by an
    operator who restores.
    """
    budget = state.budget
    alive = any(isinstance(driver, Driver) for driver in state.drivers)
    if alive:
        if not budget.rivals:
            return
        state = state._replace(budget=budget._replace(rivals=budget.rivals - 1))
    owner = len(state.drivers) + 1
    if not state.drivers or state.drivers[-1] not in (REFUSED, LOST, CHANGED):
        yield Transition(
            ("starts", owner), _started(state, Driver(owner, steps.REMEMBER)), fault=alive
        )
    if budget.restores:
        state = state._replace(budget=state.budget._replace(restores=budget.restores - 1))
        for driver, source in _restoring(world, state, owner):
            yield Transition(("restores", owner, *source[:2]), _started(state, driver), fault=True)


def _started(state: State, driver: Driver) -> State:
    return state._replace(drivers=(*state.drivers, driver))


def _restoring(world: World, state: State, owner: int) -> Iterator[tuple[Driver, Decision]]:
    """`load_restore`, for each checkpoint that the folder or its copy keeps."""
    histories = [log.read(state.log)[0], *([state.copy] if state.copy else [])]
    for history in histories:
        for place, decision in enumerate(history.decisions):
            behind = any(not later.committed for later in history.decisions[place + 1 :])
            behind = behind or any(one[2] > decision.number for one in history.ahead)
            if behind and world.mistake is not Mistake.RESTORE_BEHIND_DECIDED:
                continue
            [continued] = [known for known in history.lineages if known.id == decision.lineage]
            lineage = Lineage(
                id=owner,
                base=continued.base + decision.number,
                first=1,
                ancestors=(*continued.ancestors, decision[:2]),
            )
            adopting = tuple(
                found for found in history.decisions[: place + 1] if not found.committed
            )
            if world.mistake is Mistake.RESTORE_WITHOUT_ADOPTING:
                adopting = ()
            yield Driver(owner, steps.REMEMBER, begins=lineage, adopting=adopting), decision


def starting(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Steps 1 and 2."""
    if driver.step == steps.REMEMBER:
        changed = driver._replace(remembered=remembered(state), step=steps.READ)
        yield Transition(("asks the sinks", driver.owner), with_driver(state, changed))
    elif driver.step == steps.READ:
        state = log.synced(state)
        history, last, nonce = log.read(state.log)
        changed = driver._replace(history=history, last=last, nonce=nonce)
        yield Transition(
            ("reads the log", driver.owner), _validated_against_sinks(world, state, changed)
        )
    else:
        if driver.repair == REWRITE and world.mistake is Mistake.REWRITE_WITHOUT_FENCE:
            unfenced = driver._replace(step=steps.REPAIR, generation=driver.history.generation)
            yield Transition(("does not take over", driver.owner), with_driver(state, unfenced))
            return
        generation = max(driver.history.generation, driver.remembered[0])
        if world.mistake is not Mistake.GENERATION_REUSED or generation == 0:
            generation += 1
        then = steps.REPAIR if driver.repair else steps.RECOMMIT
        yield from log.append(world, state, driver, Fence("FENCE", generation), then)


def _validated_against_sinks(world: World, state: State, driver: Driver) -> State:
    if driver.begins is not None:
        refused = is_restore_refused(world, driver)
    else:
        refused = is_refused(driver.history, driver.remembered)
        if world.mistake is Mistake.STORE_NOT_VALIDATED_AGAINST_SINKS:
            refused = False
    if driver.repair == ADOPT:
        return (
            with_driver(state, _to_fence(world, driver))
            if refused
            else without_driver(state, driver, DEAD)
        )
    if refused and driver.savepoint and not state.moved:
        return without_driver(state, driver, DEAD)  # the job goes on without it
    if refused:
        return without_driver(state, driver, REFUSED)
    if targets.has_changed(world, state, driver):
        return without_driver(state, driver, CHANGED)
    return with_driver(state, _to_fence(world, driver))


def _to_fence(world: World, driver: Driver) -> Driver:
    if world.mistake is Mistake.REWIND_BEFORE_TAKEOVER and driver.rewinds == 1:
        return driver._replace(step=steps.REWIND, sink=0)
    if world.mistake is not Mistake.SCAN_BEFORE_FENCE:
        return driver._replace(step=steps.FENCE)
    generation = 1 + max(driver.history.generation, driver.remembered[0])
    return driver._replace(
        step=steps.SCAN, closing=(generation, 0), then=steps.FENCE, sink=0, work=()
    )


def asked_again(world: World, state: State, driver: Driver) -> str:
    """`StartPlanner.plan_again`: how the driver ends, if it does."""
    if not world.asks or world.mistake in _STOPPED_BY_ASKING:
        return ""
    if targets.is_overtaken(state, driver):
        return DEAD
    again = driver._replace(remembered=remembered(state))
    refused = is_refused(driver.history, again.remembered)
    if driver.begins is not None:
        refused = is_restore_refused(world, again)
    if refused and world.mistake is not Mistake.STORE_NOT_VALIDATED_AGAINST_SINKS:
        return REFUSED
    return CHANGED if targets.has_changed(world, state, driver._replace(adopting=())) else ""


def _asked_again_after_the_fences(world: World, state: State, driver: Driver) -> str:
    return (
        "" if world.mistake is Mistake.SINKS_NOT_ASKED_AGAIN else asked_again(world, state, driver)
    )


def remembered(state: State) -> Remembered:
    """`Sink.history` of all sinks."""
    highest: dict[int, int] = {}
    for sink in state.sinks:
        proofs = [piece[:2] for piece in sink.pieces if piece.status in VISIBLE]
        for lineage, number in (*proofs, *sink.marks):
            highest[lineage] = max(highest.get(lineage, -1), number)
    return max(sink.fence[0] for sink in state.sinks), tuple(sorted(highest.items()))


def is_refused(history: History, found: Remembered) -> bool:
    """`plan._behind`."""
    generation, committed = found
    if history.rewinds:
        return True
    ancestors = {ancestor: last for known in history.lineages for ancestor, last in known.ancestors}
    if generation > history.generation:
        return True
    for lineage, number in committed:
        if lineage in ancestors:
            if number > ancestors[lineage]:
                return True
        elif all(known.id != lineage for known in history.lineages):
            return True
        elif history.lineages[-1].id == lineage:
            newest = log.newest_of(history, lineage)
            explained = any(found[1:3] == (lineage, number) for found in history.ahead)
            if not explained and (newest is None or newest.number < number):
                return True
    return False


def is_restore_refused(world: World, driver: Driver) -> bool:
    """`plan._not_restorable`. The log was read after the sinks were asked: what came in
    between is in the log.
    """
    assert driver.begins is not None
    if driver.rewinds or (world.mistake is Mistake.SAVEPOINT_NOT_COMPARED and driver.savepoint):
        return False
    if driver.history.rewinds:
        return True
    ancestors = dict(driver.begins.ancestors)
    decisions = driver.history.decisions
    if world.mistake is Mistake.RESTORE_OVERLOOKS_COMMITTED:
        decisions = tuple(log.uncommitted(driver.history))
    ahead = [one[1:3] for one in driver.history.ahead]
    found = [*(decision[:2] for decision in decisions), *ahead, *driver.remembered[1]]
    return any(number > ancestors.get(lineage, -1) for lineage, number in found)


def next_number(history: History) -> int:
    """What Spark runs next in the current lineage."""
    lineage = history.lineages[-1]
    newest = log.newest_of(history, lineage.id)
    return newest.number + 1 if newest else lineage.first


def begin_lineage(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Step 5, after the sinks were asked again."""
    if driver.step == steps.RECOVERED and (
        word := _asked_again_after_the_fences(world, state, driver)
    ):
        yield targets.ends(state, driver, word)
    elif driver.step == steps.RECOVERED:
        state = targets.overlooked(state, driver)
        then = steps.REWINDING if driver.rewinds == 1 else steps.LINEAGE
        recovered = driver._replace(step=then, remembered=(0, ()))
        if driver.begins is None and driver.history.lineages:
            recovered = recovered._replace(step=steps.IDLE, number=next_number(driver.history))
        yield Transition(
            ("has recovered", driver.owner, driver.generation), with_driver(state, recovered)
        )
    else:
        lineage = driver.begins or Lineage(driver.owner)
        yield from log.append(
            world,
            state,
            driver._replace(begins=None, savepoint=False, rewinds=0),
            Begin("LINEAGE", lineage),
            steps.IDLE,
        )

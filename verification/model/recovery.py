"""A driver's start: what it looks at, how it takes over, and how it closes older attempts.

`twophase.coordinator.recovery.recovery` and `twophase.coordinator.commit.orphans`,
`twophase.operations.savepoint.restore`, `twophase.sinks.mysql.fence`:

    1. planned by what the sinks remember and what the log says           REMEMBER, READ
    2. FENCE(generation)                                             FENCE
    3. commit decided checkpoints, oldest first                          RECOMMIT, in `checkpoint`
    4. in each sink: scan, abort, fence, scan, abort                 SCAN to FINAL_ABORT
    5. planned again; a lineage, if there is none or a restore
       begins one                                                    RECOVERED, LINEAGE

The plan itself is the product's (`planning`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    Refusal,
    RewindUnfinished,
    StartPlan,
    TargetLacks,
)
from verification.model import log, planning, steps, targets
from verification.model.explore import Transition
from verification.model.state import (
    ABANDON,
    ADOPT,
    CHANGED,
    CONFIRM,
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
                proofs=targets.proofs_of(history, decision, len(state.sinks)),
            )
            adopting = tuple(
                found for found in history.decisions[: place + 1] if not found.committed
            )
            if world.mistake is Mistake.RESTORE_WITHOUT_ADOPTING:
                adopting = ()
            before = (
                targets.proofs_before(history, adopting[0], len(state.sinks)) if adopting else ()
            )
            driver = Driver(owner, steps.REMEMBER, begins=lineage, adopting=adopting, before=before)
            yield driver, decision


def starting(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Steps 1 and 2."""
    if driver.step == steps.REMEMBER:
        changed = driver._replace(remembered=planning.remembered(state), step=steps.READ)
        yield Transition(("asks the sinks", driver.owner), with_driver(state, changed))
    elif driver.step == steps.READ:
        state = log.synced(state)
        history, last, nonce = log.read(state.log)
        changed = driver._replace(history=history, last=last, nonce=nonce)
        yield Transition(("reads the log", driver.owner), _planned(world, state, changed))
    else:
        if driver.repair == REWRITE and world.mistake is Mistake.REWRITE_WITHOUT_FENCE:
            unfenced = driver._replace(step=steps.REPAIR, generation=driver.history.generation)
            yield Transition(("does not take over", driver.owner), with_driver(state, unfenced))
            return
        generation = _highest_generation(driver)
        if world.mistake is not Mistake.GENERATION_REUSED or generation == 0:
            generation += 1
        then = steps.REPAIR if driver.repair else steps.RECOMMIT
        yield from log.append(world, state, driver, Fence("FENCE", generation), then)


def _planned(world: World, state: State, driver: Driver) -> State:
    """The first plan, before the fence."""
    if driver.repair:
        return _checked(world, state, driver)
    found = planning.plan(world, state, driver)
    if isinstance(found, StartPlan):
        return with_driver(state, _to_fence(world, driver))
    word = _word(found)
    if word == REFUSED and driver.savepoint and not state.moved:
        word = DEAD  # the job goes on without it
    return without_driver(state, driver, word)


def _checked(world: World, state: State, driver: Driver) -> State:
    """The same for a repair: nothing but what it is for may keep the job from going on."""
    found = planning.check(world, state, driver)
    missed = any(isinstance(why, DriverMissed) for why in found)
    if driver.repair == ADOPT and missed and driver.history.lineages:
        return with_driver(state, _to_fence(world, driver._replace(repair=CONFIRM)))
    if driver.repair == ABANDON and not driver.history.rewinding:
        return without_driver(state, driver, DEAD)  # there is nothing to give up
    repairs = _REPAIRS.get(driver.repair, (FolderBehind,))
    for why in found:
        if not isinstance(why, repairs):
            return without_driver(state, driver, _word(why))
    if driver.repair == ADOPT and not found:
        return without_driver(state, driver, DEAD)  # there is nothing to adopt
    return with_driver(state, _to_fence(world, driver))


_REPAIRS: dict[str, tuple[type[Refusal], ...]] = {
    ADOPT: (FolderBehind, DriverMissed),
    ABANDON: (RewindUnfinished, TargetLacks),
}
"""What each repair leads on from; the others go on to a folder that is behind."""


def _word(why: Refusal) -> str:
    return CHANGED if isinstance(why, TargetLacks) else REFUSED


def _highest_generation(driver: Driver) -> int:
    return max(driver.history.generation, *(one.generation for one in driver.remembered))


def _to_fence(world: World, driver: Driver) -> Driver:
    if world.mistake is Mistake.REWIND_BEFORE_TAKEOVER and driver.rewinds == 1:
        return driver._replace(step=steps.REWIND, sink=0)
    if world.mistake is not Mistake.SCAN_BEFORE_FENCE:
        return driver._replace(step=steps.FENCE)
    below = (1 + _highest_generation(driver), 0)
    return driver._replace(step=steps.SCAN, closing=below, then=steps.FENCE, sink=0, work=())


def planned_again(world: World, state: State, driver: Driver) -> StartPlan | str:
    """`StartPlanner.plan_again`; the word for how the driver ends, if it does."""
    if not world.asks or world.mistake in _STOPPED_BY_ASKING:
        return StartPlan()
    if targets.is_overtaken(state, driver):
        return DEAD
    found = planning.plan(world, state, driver, planning.remembered(state))
    return found if isinstance(found, StartPlan) else _word(found)


def next_number(history: History) -> int:
    """What Spark runs next in the current lineage."""
    lineage = history.lineages[-1]
    newest = log.newest_of(history, lineage.id)
    return newest.number + 1 if newest else lineage.first


def begin_lineage(world: World, state: State, driver: Driver) -> Iterator[Transition[State]]:
    """Step 5, after the sinks were asked again."""
    if driver.step == steps.RECOVERED:
        yield _recovered(world, state, driver)
    else:
        lineage = driver.begins or Lineage(driver.owner)
        yield from log.append(
            world,
            state,
            driver._replace(
                begins=None, adopting=(), adopted=0, before=(), savepoint=False, rewinds=0
            ),
            Begin("LINEAGE", lineage),
            steps.IDLE,
        )


def _recovered(world: World, state: State, driver: Driver) -> Transition[State]:
    """The last plan, behind the fences."""
    found: StartPlan | str = StartPlan()
    if world.mistake is not Mistake.SINKS_NOT_ASKED_AGAIN:
        found = planned_again(world, state, driver)
    if isinstance(found, str):
        return targets.ends(state, driver, found)
    state = targets.overlooked(state, driver)
    recovered = driver._replace(step=steps.LINEAGE, remembered=())
    if driver.rewinds == 1 and found.rewinding is not None:
        places = sorted({planning.place_of(one.sink) for one in found.takes_back})
        recovered = recovered._replace(step=steps.REWINDING, takes_back=tuple(places))
    elif driver.begins is None and driver.history.lineages:
        recovered = recovered._replace(step=steps.IDLE, number=next_number(driver.history))
    label = ("has recovered", driver.owner, driver.generation)
    return Transition(label, with_driver(state, recovered))

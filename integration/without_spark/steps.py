"""One tiny job, one SIGKILL: what the tests do, and what the mutants are run through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.nemesis import Ended, held_at
from integration.without_spark import source
from integration.without_spark.points import (
    Leaves,
    in_checkpoint,
    in_recovery,
    in_workers,
    is_staged,
)
from integration.without_spark.process import PlainDriver
from integration.without_spark.scenario import BATCH, TIMEOUT_S, Scenario, State
from integration.without_spark.targets import Pieces
from twophase.errors import FencedError, TargetUnreachableError
from twophase.testing.services import Service
from twophase.testing.sessions import session_of

PIECE = BATCH // source.PARTITIONS


def expected(scenario: Scenario, number: int, leaves: Leaves) -> State:
    """The state that a kill in checkpoint `number` leaves; all before it are committed."""

    def pieces(kind: str, prepared: int, visible: int) -> Pieces:
        begun = leaves.begun if is_staged(kind) else 0
        return Pieces(prepared, begun, number * BATCH + visible * PIECE)

    first, *rest = scenario.kinds
    targets = [pieces(first, *leaves.first), *(pieces(kind, *leaves.rest) for kind in rest)]
    if leaves.last is not None:
        targets[-1] = pieces(scenario.kinds[-1], *leaves.last)
    return State(
        number + leaves.decided, number + leaves.committed, number + 1, number, tuple(targets)
    )


def _prepared(state: State) -> int:
    return sum(pieces.prepared for pieces in state.targets)


def killed(ended: Ended, point: str) -> None:
    """It was SIGKILL, and there."""
    assert ended.killed, f"exit code {ended.code}:\n{ended.output}"
    assert {*ended.points} == {point}, f"{point} was planned, {ended.points} acted:\n{ended.output}"


def die_in_workers(scenario: Scenario, point: str, number: int) -> None:
    """Every worker of checkpoint `number` is held at a point; then all processes
    are killed at once.
    """
    scenario.produce(number + 1)
    die_in_workers_of(scenario, point, number)


def die_in_workers_of(scenario: Scenario, point: str, number: int) -> None:
    """The same, of what is produced already."""
    driver = scenario.start(held_at([point], "*"), arm_from=number)
    everyone = source.PARTITIONS * len(scenario.kinds)
    try:
        driver.wait_for(
            lambda: driver.points() == [point] * everyone, f"{everyone} workers at {point}"
        )
    finally:
        ended = driver.kill()
    killed(ended, point)
    scenario.check_state(expected(scenario, number, in_workers(scenario.kinds)[point]))


def die_in_chain(scenario: Scenario, point: str, hit: int, number: int, leaves: Leaves) -> None:
    """One worker of checkpoint `number` is held at the hit of a point, the others end; then all
    processes are killed at once.
    """
    scenario.produce(number + 1)
    driver = scenario.start(held_at([point], hit), arm_from=number)
    state = expected(scenario, number, leaves)
    try:
        driver.wait_for(lambda: driver.points() == [point], f"a worker at {point}")
        count = _prepared(state)
        scenario.wait_for(driver, f"{count} pieces", lambda found: _prepared(found) >= count)
    finally:
        ended = driver.kill()
    killed(ended, point)
    scenario.check_state(state)


def die_in_checkpoint(
    scenario: Scenario, point: str, number: int, leaves: Leaves | None = None, hit: int = 1
) -> None:
    """The driver kills itself at the hit of a point of checkpoint `number`."""
    scenario.produce(number + 1)
    die_in_checkpoint_of(scenario, point, number, leaves, hit)


def die_in_checkpoint_of(
    scenario: Scenario, point: str, number: int, leaves: Leaves | None = None, hit: int = 1
) -> None:
    """The same, of what is produced already."""
    killed(scenario.run(f"{point}=kill@{hit}", arm_from=number), point)
    scenario.check_state(expected(scenario, number, leaves or in_checkpoint(scenario.kinds)[point]))


def die_in_recovery(
    scenario: Scenario,
    point: str,
    number: int,
    found: tuple[str, Leaves] | None = None,
    hit: int = 1,
) -> None:
    """A driver leaves checkpoint `number` unfinished, the next one kills itself at the hit of a
    point of its recovery.
    """
    scenario.produce(number + 1)
    die_in_recovery_of(scenario, point, number, found, hit)


def die_in_recovery_of(
    scenario: Scenario,
    point: str,
    number: int,
    found: tuple[str, Leaves] | None = None,
    hit: int = 1,
) -> None:
    """The same, of what is produced already."""
    left_by, leaves = found or in_recovery(scenario.kinds)[point]
    die_in_checkpoint_of(scenario, left_by, number)
    killed(scenario.run(f"{point}=kill@{hit}"), point)
    scenario.check_state(expected(scenario, number, leaves))


def lose_a_worker(scenario: Scenario, point: str, number: int, hit: int = 1) -> Ended:
    """A worker of checkpoint `number` kills itself at the hit of a point; the driver lives and
    takes the checkpoint again.
    """
    scenario.produce(number + 1)
    ended = scenario.run(f"{point}=kill@{hit}", arm_from=number)
    assert ended.points == [point], ended.output
    assert ended.code == 0, f"exit code {ended.code}:\n{ended.output}"
    assert f"CheckpointDeclined(job='{scenario.job}', checkpoint={number}" in ended.output, (
        ended.output
    )
    scenario.verify()
    return ended


# -- sinks that commit ahead ----------------------------------------------------------------------

AHEAD = {"checkpoint.mode": "at_least_once"}


def die_ahead(scenario: Scenario, ahead: str, point: str, number: int) -> None:
    """The driver kills itself in checkpoint `number` with the sink of a kind of target ahead."""
    scenario.produce(number + 1)
    first = f"{ahead}_orders"
    killed(scenario.run(f"{point}=kill", arm_from=number, first=first), point)
    check_ahead(scenario, first, point, number)


def check_ahead(scenario: Scenario, first: str, point: str, number: int) -> None:
    """This sink has or gets checkpoint `number`, which is not decided."""
    state = scenario.state()
    assert (state.decided, state.committed) == (number, number)
    [ahead] = scenario.history().sink_decisions
    assert (ahead.sink, ahead.checkpoint) == (first, number)
    assert len(ahead.pieces) == source.PARTITIONS
    for name, pieces in zip(scenario.targets, state.targets, strict=True):
        visible = {VISIBLE_AHEAD.get(point, 0)} if name == ahead.sink else {0}
        assert (pieces.visible - number * BATCH) // PIECE in visible, f"{name}: {pieces}"
        if name == ahead.sink:
            whole = pieces.prepared * PIECE + pieces.visible
            assert whole == (number + 1) * BATCH, f"{name}: {pieces}"


VISIBLE_AHEAD = {"C13": 1, "C14": 1, "C15": 2, "A02": 2, "C06": 2, "C07": 2, "C18": 0, "C22": 2}
"""Pieces of the sink that is ahead whose rows are visible after a kill there; 0 elsewhere."""


def die_ahead_twice(scenario: Scenario, ahead: str, first: str, second: str, number: int) -> None:
    """A driver leaves a sink ahead, and the next one kills itself in its recovery or in the retry:
    the same sink is ahead.
    """
    die_ahead(scenario, ahead, first, number)
    killed(scenario.run(f"{second}=kill"), second)
    check_ahead(scenario, f"{ahead}_orders", second, number)


# -- commits behind the next micro-batch -----------------------------------------------------------

UNDER_WAY = 3
BEHIND = {"checkpoint.max_concurrent": UNDER_WAY}


def decided_behind(scenario: Scenario, point: str) -> State:
    """The state while the commit of checkpoint 1 is held at a point: two more are decided, and the
    next one is planned.
    """
    held = expected(scenario, 1, in_checkpoint(scenario.kinds)[point])
    more = UNDER_WAY - 1
    targets = tuple(
        replace(pieces, prepared=pieces.prepared + more * source.PARTITIONS)
        for pieces in held.targets
    )
    decided = held.decided + more
    return State(decided, held.committed, decided + 1, decided, targets)


def die_in_commit_behind(scenario: Scenario, point: str) -> None:
    """The thread that commits checkpoint 1 is held at a point; the query goes on as far as it may;
    then all is killed.
    """
    scenario.produce(1)
    scenario.finish()  # the commit of checkpoint 0 is not to pass there
    scenario.produce(7)
    driver = scenario.start(held_at([point]), arm_from=1, forever=True)
    state = decided_behind(scenario, point)
    try:
        scenario.wait_for(
            driver,
            f"the state {state}",
            lambda found: found.decided >= state.decided and found.planned >= state.planned,
        )
        driver.wait_for(lambda: point in driver.points(), f"the commit at {point}")
        driver.wait_for(_idle(driver), "the driver to have nothing more that it may do")
    finally:
        ended = driver.kill()
    killed(ended, point)
    scenario.check_state(state)


def die_in_recovery_of_commits_behind(scenario: Scenario, committed: int) -> None:
    """Three decided checkpoints wait; recovery kills itself when it has committed so many of
    them, the oldest first.
    """
    die_in_commit_behind(scenario, "C11")
    before = scenario.state()
    killed(scenario.run(f"C19=kill@{committed}"), "C19")
    targets = tuple(
        Pieces(
            pieces.prepared - committed * source.PARTITIONS, 0, pieces.visible + committed * BATCH
        )
        for pieces in before.targets
    )
    scenario.check_state(replace(before, committed=before.committed + committed, targets=targets))


def commit_in_order(scenario: Scenario) -> None:
    """A commit that takes its time; the next one to be made is the oldest of those that
    have come meanwhile.
    """
    scenario.produce(1)
    scenario.finish()  # the commit of checkpoint 0 is not to pass there
    scenario.produce(7)
    driver = scenario.start(f"C11=delay:8000@1,{held_at(['C16'], 2)}", arm_from=1, forever=True)
    try:
        scenario.wait_for(driver, "three decided", lambda state: state.decided >= 1 + UNDER_WAY)
        assert driver.points() == ["C11"], (
            "the commit did not take long enough for this test to say anything"
        )
        driver.wait_for(lambda: "C16" in driver.points(), "the second commit")
        committed = [
            decision.checkpoint for decision in scenario.history().decisions if decision.committed
        ]
        assert committed[-1] == 2, f"committed out of order: {committed}"
    finally:
        driver.kill()


def end_with_commits_behind(scenario: Scenario) -> None:
    """The input is used up while commits are still to be made: a clean end waits for them."""
    scenario.produce(4)
    ended = scenario.run("C11=delay:100@*")
    assert ended.code == 0, ended.output
    scenario.verify()


def _idle(driver: PlainDriver) -> Any:
    """Whether the driver neither worked nor had a worker since it was asked last."""
    seen: list[float] = []

    def idle() -> bool:
        family = session_of(driver.pid)
        used = [times.user + times.system for process in family for times in [process.cpu_times()]]
        seen.append(sum(used))
        return len(family) == 2 and len(seen) > 3 and seen[-1] == seen[-4]

    return idle


# -- zombies ---------------------------------------------------------------------------------------

ON = 2
"""Checkpoints that the others take before a stopped driver is let go."""
WORKERS_ALONE = ("E01", "E02")
ANNOUNCES_FIRST = "staged_kafka"
"""Its writers look at the fence behind the announcement of their piece. One that is killed between
the two, as another has found the fence, leaves it to the next start (decision 0083).
"""


def be_fenced_out(scenario: Scenario, point: str) -> None:
    """A driver is stopped at a point, others go on with the job, then it is let go: it ends as
    fenced, without a trace.
    """
    scenario.produce(2)
    everyone, recovery = 1, in_recovery(scenario.kinds)
    if point in recovery and point not in in_checkpoint(scenario.kinds):
        die_in_checkpoint_of(scenario, recovery[point][0], 1)
        zombie = scenario.start(f"{point}=stop", forever=True)
    elif point in in_workers(scenario.kinds):
        everyone = source.PARTITIONS * len(scenario.kinds)
        zombie = scenario.start(f"{point}=stop@*", arm_from=1, forever=True)
    else:
        zombie = scenario.start(f"{point}=stop", arm_from=1, forever=True)
    zombie.wait_until_stopped(point, everyone)
    if point not in WORKERS_ALONE:
        zombie.freeze()
    others_go_on(scenario, zombie)


def be_fenced_out_in_chain(scenario: Scenario, point: str, hit: int) -> None:
    """The same, with one worker of a chain stopped at the hit of a point."""
    scenario.produce(2)
    zombie = scenario.start(f"{point}=stop@{hit}", arm_from=1, forever=True)
    zombie.wait_until_stopped(point)
    if point not in WORKERS_ALONE:
        zombie.freeze()
    others_go_on(scenario, zombie)


def others_go_on(scenario: Scenario, zombie: PlainDriver) -> None:
    """Others take two checkpoints; then a stopped driver is let go."""
    scenario.produce(ON)
    scenario.finish()
    scenario.verify()
    let_go(scenario, zombie)
    if ANNOUNCES_FIRST in scenario.kinds:
        scenario.finish()
        scenario.verify()


def be_fenced_out_at_once(scenario: Scenario, point: str) -> None:
    """The same, but the other driver has done no more than append its fence, and
    stands still itself.
    """
    scenario.produce(2)
    zombie = scenario.start(f"{point}=stop", arm_from=1, forever=True)
    zombie.wait_until_stopped(point)
    zombie.freeze()
    rival = scenario.start("C18=stop")
    rival.wait_until_stopped("C18")
    let_go(scenario, zombie)
    rival.thaw()
    ended = rival.wait(TIMEOUT_S)
    assert ended.code == 0, f"exit code {ended.code}:\n{ended.output}"
    scenario.verify()


def let_go(scenario: Scenario, zombie: PlainDriver) -> None:
    """A stopped driver goes on while nothing else moves, so what changes is its doing."""
    log, state = scenario.records(), scenario.state()
    zombie.thaw()
    ended = zombie.wait(TIMEOUT_S)
    assert ended.code == FencedError.exit_code, f"exit code {ended.code}:\n{ended.output}"
    assert "FencedError" in ended.output
    assert scenario.records() == log, f"a trace was left in the log:\n{ended.output}"
    found = scenario.state()
    if ANNOUNCES_FIRST in scenario.kinds:
        found, state = without_prepared(found), without_prepared(state)
    assert found == state, f"a trace was left: {found}, was {state}:\n{ended.output}"


def without_prepared(state: State) -> State:
    """The same but for pieces that are prepared."""
    return replace(state, targets=tuple(replace(one, prepared=0) for one in state.targets))


# -- servers ---------------------------------------------------------------------------------------

NOTICED = ("CheckpointDeclined(", "CommitRetried(", "JobRestarting(", "TargetUnreachableError")
"""What a driver says whose server is gone: the attempt is declined, the commit held, or
the job starts again.
"""
ENDS_THE_START = ("C19", "C20", "C22")
"""Where a server is asked in a recovery that has committed decided checkpoints: the start fails, as
with a server that is down.
"""


def lose_a_server(scenario: Scenario, server: Service, point: str) -> None:
    """The server of the last sink is killed while a driver is held at a point, and comes back
    when that was noticed.
    """
    driver = stopped_at(scenario, point, sinks=impatient(scenario, "kafka"))
    server.kill()
    goes_on_without(driver, server.restart)
    ends_whole(scenario, driver, point)


IMPATIENT = {
    "mysql": {"io_timeout": "3 s", "connect_timeout": "3 s", "lock_wait_timeout": "1 s"},
    "kafka": {"request.timeout": "3 s"},
}


def impatient(scenario: Scenario, *kinds: str) -> dict[str, dict[str, Any]]:
    """The sinks; those of some types do not wait long for a server that says nothing."""
    sinks = {name: target.sink() for name, target in scenario.targets.items()}
    return {
        name: sink | (IMPATIENT[sink["type"]] if sink["type"] in kinds else {})
        for name, sink in sinks.items()
    }


def freeze_a_server(scenario: Scenario, server: Service, point: str) -> None:
    """The same, but the server is stopped, and let go when the driver has given up
    waiting for an answer.
    """
    driver = stopped_at(scenario, point, sinks=impatient(scenario, *IMPATIENT))
    server.suspend()
    goes_on_without(driver, server.resume)
    ends_whole(scenario, driver, point)


def stopped_at(scenario: Scenario, point: str, **settings: Any) -> PlainDriver:
    """A driver that is stopped at a point, of its recovery or of checkpoint 1, with all that is
    said to be there then.
    """
    recovery = in_recovery(scenario.kinds)
    recovering = point in recovery and point not in in_checkpoint(scenario.kinds)
    if recovering:
        scenario.produce(2)
        left_by, leaves = recovery[point]
        die_in_checkpoint_of(scenario, left_by, 1)
    elif point in in_workers(scenario.kinds):  # one worker is held, all others have pre-committed
        leaves = Leaves(decided=False)
    else:
        leaves = in_checkpoint(scenario.kinds)[point]
    if not recovering:
        scenario.produce(2)
    driver = scenario.start(f"{point}=stop", arm_from=None if recovering else 1, **settings)
    driver.wait_until_stopped(point)
    if point in in_workers(scenario.kinds):
        left = source.PARTITIONS * len(scenario.kinds) - (point in ("E01", "C04"))
        scenario.wait_for(
            driver,
            f"{left} prepared pieces",
            lambda state: _prepared(state) == left,
        )
        assert scenario.state().decided == 1
    else:
        scenario.check_state(expected(scenario, 1, leaves))
    return driver


def goes_on_without(driver: PlainDriver, bring_back: Callable[[], None]) -> None:
    """A stopped driver goes on while a server does not answer, which does when that was noticed."""
    driver.thaw()
    try:
        wait_until_noticed(driver)
    finally:
        bring_back()


def ends_whole(scenario: Scenario, driver: PlainDriver, point: str) -> None:
    """The driver, or the next one where a start fails without a server, has
    written everything once.
    """
    ended = driver.wait(TIMEOUT_S)
    if point in ENDS_THE_START:
        assert ended.code == TargetUnreachableError.exit_code, (
            f"exit code {ended.code}:\n{ended.output}"
        )
        scenario.finish()
    assert ended.code in (0, TargetUnreachableError.exit_code), (
        f"exit code {ended.code}:\n{ended.output}"
    )
    scenario.verify()


def wait_until_noticed(driver: PlainDriver) -> None:
    """Wait until a driver has noticed that a server does not answer, be it by its end."""

    def noticed() -> bool:
        said = driver.log.read_text(errors="replace")
        return any(word in said for word in NOTICED) or not driver.running

    driver.wait_for(noticed, "the server to be missed", TIMEOUT_S)

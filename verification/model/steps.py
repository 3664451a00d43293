"""Where a driver can stand, and how a state with a changed driver or sink is made."""

from __future__ import annotations

from verification.model.pieces import Attempt, Sink
from verification.model.state import Driver, State

REMEMBER = "asks the sinks what they remember"
READ = "reads the log"
FENCE = "takes over"
RECOMMIT = "commits decided checkpoints"
SCAN = "scans"
ABORT = "aborts what it found"
END_SESSIONS = "ends sessions"
RAISE = "raises the fence"
END_SESSIONS_AGAIN = "ends sessions again"
FINAL_SCAN = "scans again"
FINAL_ABORT = "aborts what it found again"
RECOVERED = "has recovered"
REPAIR = "repairs"
WRITE_AGAIN = "starts to write again"
WRITING_AGAIN = "writes again"
REPAIRED = "has repaired"
LINEAGE = "begins a lineage"
IDLE = "is idle"
ENDED = "has failed"
RUNNING = "runs a checkpoint"
AHEAD = "commits a sink ahead"
AHEAD_FIRST = "commits what is ahead before it closes"
APPEND_WRITE = "writes its record"
APPEND_SYNC = "syncs its record"
APPEND_CHECK = "checks its record"
DELETE = "deletes old records"
COLLAPSE = "collapses the ledger"
SWEEP = "sweeps"
SWEEP_ABORT = "aborts losers"
REPLAY = "replays"
REWINDING = "begins to take back"
REWIND = "takes back"
FORK = "commits what a savepoint holds"


def with_driver(state: State, driver: Driver) -> State:
    """The state in which `driver` is as given."""
    place = driver.owner - 1
    return state._replace(drivers=(*state.drivers[:place], driver, *state.drivers[place + 1 :]))


def without_driver(state: State, driver: Driver, why: str) -> State:
    """The state in which `driver` has ended."""
    place = driver.owner - 1
    return state._replace(drivers=(*state.drivers[:place], why, *state.drivers[place + 1 :]))


def with_sink(state: State, place: int, sink: Sink) -> State:
    """The state in which the sink at `place` is as given."""
    return state._replace(sinks=(*state.sinks[:place], sink, *state.sinks[place + 1 :]))


def begin_closing(state: State, driver: Driver, below: Attempt, then: str) -> State:
    """The state in which `driver` begins to close every attempt below `below` in every sink, to
    go on with `then`.
    """
    return with_driver(state, driver._replace(step=SCAN, sink=0, work=(), closing=below, then=then))


def declined(state: State, driver: Driver, then: str = IDLE) -> State:
    """The state in which the attempt of `driver` is declined: it is closed, then retried,
    or the driver ends.
    """
    below = (driver.generation, driver.counter + 1)
    return begin_closing(state, driver._replace(record=None), below, then)

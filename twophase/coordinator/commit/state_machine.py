"""The life of one attempt at a checkpoint, as a table. No input or output, no clock.

The decision lies between DECIDING and DECIDED: before it everything may abort, after it everything
commits. Once its record's create is tried the attempt can no longer expire or be declined.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Where an attempt stands."""

    PENDING = auto()
    ACKNOWLEDGED = auto()
    DECIDING = auto()
    IN_DOUBT = auto()
    DECIDED = auto()
    COMMITTED = auto()
    DECLINED = auto()
    ABORTED = auto()
    STOPPED = auto()


class Signal(Enum):
    """An event in the life of an attempt."""

    ACKNOWLEDGED = auto()
    ALL_ACKNOWLEDGED = auto()
    DECLINED = auto()
    EXPIRED = auto()
    TRIED = auto()
    NOT_WRITTEN = auto()
    WRITTEN = auto()
    UNCLEAR = auto()
    FENCED = auto()
    PROVEN = auto()
    LOST = auto()
    CLEANED = auto()


class Action(Enum):
    """The coordinator's next step."""

    WAIT = auto()
    DECIDE = auto()
    COMMIT = auto()
    SUBSUME = auto()
    ABORT = auto()
    STOP = auto()
    IGNORE = auto()


# fmt: off
TRANSITIONS: dict[tuple[Phase, Signal], tuple[Phase, Action]] = {
    (Phase.PENDING,      Signal.ACKNOWLEDGED):     (Phase.PENDING,      Action.WAIT),
    (Phase.PENDING,      Signal.ALL_ACKNOWLEDGED): (Phase.ACKNOWLEDGED, Action.DECIDE),
    (Phase.PENDING,      Signal.DECLINED):         (Phase.DECLINED,     Action.ABORT),
    (Phase.PENDING,      Signal.EXPIRED):          (Phase.DECLINED,     Action.ABORT),

    (Phase.ACKNOWLEDGED, Signal.TRIED):            (Phase.DECIDING,     Action.WAIT),
    (Phase.ACKNOWLEDGED, Signal.DECLINED):         (Phase.DECLINED,     Action.ABORT),
    (Phase.ACKNOWLEDGED, Signal.EXPIRED):          (Phase.DECLINED,     Action.ABORT),

    (Phase.DECIDING,     Signal.EXPIRED):          (Phase.DECIDING,     Action.IGNORE),
    (Phase.DECIDING,     Signal.DECLINED):         (Phase.DECIDING,     Action.IGNORE),
    (Phase.DECIDING,     Signal.NOT_WRITTEN):      (Phase.DECLINED,     Action.ABORT),
    (Phase.DECIDING,     Signal.WRITTEN):          (Phase.DECIDED,      Action.COMMIT),
    (Phase.DECIDING,     Signal.UNCLEAR):          (Phase.IN_DOUBT,     Action.STOP),
    (Phase.DECIDING,     Signal.FENCED):           (Phase.STOPPED,      Action.STOP),

    (Phase.DECIDED,      Signal.PROVEN):           (Phase.COMMITTED,    Action.SUBSUME),
    (Phase.DECIDED,      Signal.LOST):             (Phase.STOPPED,      Action.STOP),
    (Phase.DECIDED,      Signal.EXPIRED):          (Phase.DECIDED,      Action.IGNORE),
    (Phase.DECIDED,      Signal.DECLINED):         (Phase.DECIDED,      Action.IGNORE),

    (Phase.DECLINED,     Signal.ACKNOWLEDGED):     (Phase.DECLINED,     Action.IGNORE),
    (Phase.DECLINED,     Signal.ALL_ACKNOWLEDGED): (Phase.DECLINED,     Action.IGNORE),
    (Phase.DECLINED,     Signal.DECLINED):         (Phase.DECLINED,     Action.IGNORE),
    (Phase.DECLINED,     Signal.EXPIRED):          (Phase.DECLINED,     Action.IGNORE),
    (Phase.DECLINED,     Signal.CLEANED):          (Phase.ABORTED,      Action.IGNORE),
}
# fmt: on


def step(phase: Phase, signal: Signal) -> tuple[Phase, Action]:
    """Return the next phase and what to do.

    Raises:
        AssertionError: the signal cannot occur in this phase; a defect of the coordinator.
    """
    if (found := TRANSITIONS.get((phase, signal))) is None:
        raise AssertionError(f"{signal.name} cannot occur in phase {phase.name}")
    return found

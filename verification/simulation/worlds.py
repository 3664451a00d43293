"""What befalls the job's folder and its targets as a whole: a copy beside a live driver, a target
restored or swapped.

No seed of `Options.of` chooses these worlds: `in_world` makes the runs of a seed in one of them.

- copied: a driver over a copy of the folder, with or without a restore, beside the one over the
  original. One of them writes everything exactly; the other, or both, end with a named error, and
  no sink's checkpoint is aborted in another.
- target restored: a server's data is restored from a backup, under a running driver or between two.
  Nothing that was committed is lacking, or the job ends with a named error and goes on for nobody.
- swapped: another server, empty or older, or a table that was dropped and created again. The same.
- operated: an operator wants something else at any moment, see `operators`; something may happen to
  the folder, a body, a target or prepared pieces, see `incidents`. Nothing is duplicated; what was
  given up is missing, and nothing else; no refusal is a dead end.
- ahead: sinks commit ahead of the others (`checkpoint.mode`), in some of the drivers. Each sink has
  every row once, and what a sink has ahead is never aborted, nor written again.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from verification.simulation.dialects import DIALECTS
from verification.simulation.options import Mishap, Options

COPIED, RESTORED_TARGET, SWAPPED, OPERATED, AHEAD = WORLDS = (
    "copied",
    "target restored",
    "swapped",
    "operated",
    "ahead",
)
ROLLED_BACK, RETURNED, TARGET, FOLDER, NO_FOLDER, BODY = (
    "rolled back",
    "returned",
    "target restored",
    "folder restored",
    "folder gone",
    "body gone",
)
OFTEN = (*[ROLLED_BACK] * 4, *[RETURNED] * 3, *[TARGET] * 4, FOLDER, FOLDER, NO_FOLDER, BODY, BODY)
"""Incidents, as often as they happen."""
_AHEAD = 0.3
_STAND_STILL = 0.3
_STOPS_S = (0.0, 20.0)
"""A driver is killed, or stands still until another one is there."""


def in_world(seed: int, world: str) -> Options:
    """The run that a seed stands for in a world: nobody meddles by hand, and the
    machine keeps its power.
    """
    options = Options.of(seed)
    random = Random(f"options {world} {seed}")
    options = replace(options, world=world, restore="", meddling="", emptied=False, power_cuts=0)
    options = replace(options, checkpoints=max(options.checkpoints, 3))
    if world == COPIED:
        return replace(options, rivals=0, suspicion=0.0)
    if world == AHEAD:
        return _with_sinks_ahead(options, random)
    if world == OPERATED:
        return _operated(options, random)
    empty_rate, subsume_every = random.choice((0.1, 0.4)), random.choice((1, 1, 2))
    options = replace(options, empty_rate=empty_rate, subsume_every=subsume_every)
    if world == RESTORED_TARGET and random.random() < _STAND_STILL:
        return _standing_still(options, random)
    return options


def _standing_still(options: Options, random: Random) -> Options:
    """The first driver stands still before a micro-batch while a target is restored. Bodies go
    early, and micro-batches without rows commit nothing there.
    """
    decisions = random.choice((3, 4))
    return replace(
        options,
        restored_behind=decisions,
        mishaps=(Mishap("C01", decisions + 1, 40.0), *options.mishaps),
        checkpoints=decisions + 2,
        rivals=0,
        suspicion=0.0,
        empty_rate=0.5,
        num_retained=1,
    )


def _operated(options: Options, random: Random) -> Options:
    """Something may happen, once."""
    if random.random() < _AHEAD:
        options = _with_sinks_ahead(options, random)
    return replace(
        options,
        checkpoints=max(options.checkpoints, 4),
        stops=0,
        keyed=False,
        subsume_every=random.choice((1, 2, 3)),
        incident=random.choice(("", "", *OFTEN)),
    )


def _with_sinks_ahead(options: Options, random: Random) -> Options:
    """Several sinks, and drivers that die or stand still while one is ahead."""
    points = [random.choice(("A01", "A02", "C06", "C12", "C15", "C22")) for _ in range(3)]
    more = [Mishap(point, random.choice((1, 2)), random.choice(_STOPS_S)) for point in points]
    mishaps = tuple(random.sample((*options.mishaps, *more), len(options.mishaps) + 3))
    sinks = tuple(random.choice(list(DIALECTS)) for _ in range(random.choice((2, 2, 3))))
    sinks = sinks[:1] * len(sinks) if options.one_server else sinks
    return replace(options, sinks=sinks, mishaps=mishaps, max_concurrent=1, ahead=True)

"""The errors of fences, as every sink raises them (I7)."""

from __future__ import annotations

from twophase.errors import FencedError
from twophase.ids import Attempt

_REMEDY = "let the newer driver go on; find out why two were started."


def driver_is_fenced(job: str, sink: str, fence: Attempt, attempt: Attempt) -> FencedError:
    """Return the error of a driver that finds the fence of a newer one in the target."""
    return FencedError(
        f"Sink {sink!r} of job {job!r} is at {fence}, this driver at {attempt}.", remedy=_REMEDY
    )


def attempt_is_closed(
    job: str, sink: str, attempt: Attempt, where: str, fence: Attempt
) -> FencedError:
    """Return the error of a writer whose attempt is closed.

    Args:
        job: the job's name.
        sink: the sink's name.
        attempt: the writer's.
        where: the target, as a sentence names it.
        fence: the target's.
    """
    return FencedError(
        f"Attempt {attempt} of sink {sink!r} of job {job!r} is closed: {where} is at {fence}.",
        remedy=_REMEDY,
    )

"""What a fence is raised to, and the errors of fences, as every sink has them (I7)."""

from __future__ import annotations

from twophase.errors import FencedError
from twophase.ids import Attempt

_REMEDY = "let the newer driver go on; find out why two were started."


def driver_is_fenced(job: str, sink: str, fence: Attempt, attempt: Attempt) -> FencedError:
    """Return the error of a driver that finds the fence of a newer one in the target."""
    return FencedError(
        f"Sink {sink!r} of job {job!r} is at {fence}, this driver at {attempt}.", remedy=_REMEDY
    )


def raised_fence(job: str, sink: str, fence: Attempt, attempt: Attempt) -> Attempt | None:
    """Return what a fence becomes when it is raised to an attempt; None if it stays as it is.

    Raises:
        FencedError: it is that of a newer driver.
    """
    if fence.generation > attempt.generation:
        raise driver_is_fenced(job, sink, fence, attempt)
    return attempt if fence < attempt else None


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

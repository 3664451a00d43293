"""What a fence is raised to, and the errors of fences, as every sink has them (I7).

Only a later fence is another driver's doing. One that is missing or older than what this driver has
raised says that the target is not what it was: nobody has taken the job over.
"""

from __future__ import annotations

from twophase.errors import FencedError, FenceLostError, TargetChangedError
from twophase.ids import Attempt

_REMEDY = "let the newer driver go on; find out why two were started."
_CHANGED = "the target was restored from a backup, or made again"


def driver_is_fenced(
    job: str, sink: str, fence: Attempt | None, attempt: Attempt
) -> FencedError | TargetChangedError:
    """Return the error of a driver that does not find its own fence in the target.

    Args:
        job: the job's name.
        sink: the sink's name.
        fence: the target's; None if it has none.
        attempt: the driver's.
    """
    if fence is not None and fence > attempt:
        return FencedError(
            f"Sink {sink!r} of job {job!r} is at {fence}, this driver at {attempt}.",
            remedy=_REMEDY,
        )
    return TargetChangedError(
        f"Sink {sink!r} of job {job!r} {_found(fence)}, and this driver had raised it to "
        f"{attempt}: {_CHANGED}.",
        remedy="start the job again: it looks at the target again, and names what is missing.",
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
    job: str, sink: str, attempt: Attempt, where: str, fence: Attempt | None
) -> FencedError | FenceLostError:
    """Return the error of a writer whose attempt is closed.

    Args:
        job: the job's name.
        sink: the sink's name.
        attempt: the writer's.
        where: the target, as a sentence names it.
        fence: the target's; None if it has none.

    Returns:
        `FenceLostError` if no later attempt has closed it: the job tries again.
    """
    what = f"Attempt {attempt} of sink {sink!r} of job {job!r} is closed: {where} {_found(fence)}"
    if fence is not None and fence > attempt:
        return FencedError(f"{what}.", remedy=_REMEDY)
    return FenceLostError(
        f"{what}, and its driver had raised it: {_CHANGED}.",
        remedy="the next start looks at the target again, and names what is missing.",
    )


def _found(fence: Attempt | None) -> str:
    return "has no fence" if fence is None else f"is at {fence}"

"""What a fence is raised to, and the errors of fences, as every sink has them (I7).

Only a later fence is another driver's doing. One that is missing or older than what this driver has
raised says that the target is not what it was: nobody has taken the job over.
"""

from __future__ import annotations

from twophase.errors import FencedError, FenceLostError, TargetChangedError
from twophase.ids import Attempt

_REMEDY = "let the newer driver go on; find out why two were started."
_LOST = "the target was restored from a backup or created again, or has forgotten it"


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
        f"Sink {sink!r} of job {job!r} has {_found(fence)}, but not the one that this driver has "
        f"raised, {attempt}: {_LOST}.",
        remedy="start the job again: it says whether anything is missing.",
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
    of = f"Attempt {attempt} of sink {sink!r} of job {job!r}"
    if fence is not None and fence > attempt:
        return FencedError(f"{of} is closed: {where} is at {fence}.", remedy=_REMEDY)
    return FenceLostError(
        f"{of} cannot pre-commit: {where} has {_found(fence)}, but not its driver's: {_LOST}.",
        remedy="start the job, unless it restarts by itself: it says whether anything is missing.",
        fingerprint="fence lost",
    )


def _found(fence: Attempt | None) -> str:
    return f"the fence {fence}" if fence is not None and fence.generation else "no fence"

"""A rewind removes from the sinks what they committed after a restored checkpoint (H28).

Before step 3a of a start each sink that is ahead, or is bound to be, says that it can. Steps 3a to
3c are those of every start (`coordinator.recovery.recovery`): all that is decided is committed
(I2), and behind the fences, where no driver adds anything any more, the start is planned again.
Then, in step 3d:

    - record    REWINDING: a death leaves some sinks ahead, or one with a part of its rows, and no
                start goes on from there before it is finished or given up
    - rewind    sink by sink
    - ask       the sinks again: none is ahead

The record LINEAGE, which follows, ends it; or that of `twophase repair abandon-rewind`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twophase.contract.sink import CanRewind, OpenSink
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.plan import StartPlan, TakenBack, ahead_of
from twophase.coordinator.recovery.refusal import begun_and_refused
from twophase.errors import RestoreRefusedError
from twophase.events import SinkRewound
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint


def rewind(
    context: JobContext,
    plan: StartPlan,
    attempt: Attempt,
    sink_of: Callable[[TakenBack], OpenSink],
) -> None:
    """Step 3d.

    Args:
        context: the job.
        plan: of a restore that rewinds, made behind the fences; nothing is done if it says so.
        attempt: the fence of every sink.
        sink_of: returns the open sink that takes rows back.

    Raises:
        RestoreRefusedError: a sink cannot rewind after all.
        FencedError: a newer driver has taken the job over.
        Exception: of a sink. The next start with the same options calls it again.
    """
    if plan.rewinding is None:
        return
    origin, keep = plan.rewinding.restored_from, plan.rewinding.keep
    context.log.append(plan.rewinding)
    failpoint("S11")
    sinks = {(one.sink, one.name): sink_of(one) for one in plan.takes_back}
    for key, sink in sinks.items():
        if key[1] is not None:
            _close_older(sink, attempt)
        try:
            cast("CanRewind", sink).rewind(keep, attempt)
        except RestoreRefusedError as error:
            raise begun_and_refused(context.job, plan.rewinding, error) from error
        for one in plan.takes_back:
            if (one.sink, one.name) == key:
                found = (one.lineage, one.newest, one.kept)
                context.observers(SinkRewound(context.job, one.sink, *found))
        failpoint("S12")
    histories = {name: sink.history() for name, sink in context.sinks.items()}
    histories |= {other[1]: sink.history() for (_, other), sink in sinks.items() if other}
    for name, lineage, newest in ahead_of(keep, histories):
        raise RestoreRefusedError(
            f"Job {context.job!r}: sink {name!r} still has proof of checkpoint {newest} of lineage "
            f"{lineage} after it was rewound to {origin}. No lineage has begun.",
            remedy="find out who else writes to it under this job's name, then start again with "
            "the same options.",
        )
    failpoint("S13")


def _close_older(sink: OpenSink, attempt: Attempt) -> None:
    """Fence those who write under another name; what they have in doubt is decided nowhere."""
    sink.fence(attempt)
    sink.abort(sink.in_doubt())

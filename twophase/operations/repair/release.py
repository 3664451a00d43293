"""A repair: a job goes on without topics that its sources cannot read any more.

They were deleted, or created again, or have left the options of the source. Nothing of them that
was not read is read later, except for a topic that is subscribed again: the job goes on where it
has left that.

    1. show       what is given up, which writes nothing; the operator confirms
    2. take over  append a fence to the log, like every driver; plan again, with the same result
    3. record     REPAIRED, one record in the log: this is the repair

Every start after it has the next micro-batch leave the topics behind (`state.checkpoints.releases`,
`spark.folder.planned_release`). A crash before step 3 gives up nothing, and the command can be run
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twophase.contract.sink import SinkHistory
from twophase.contract.source import ReleasesTopics, SourceLeg
from twophase.contract.source_entry_points import owner_of, source_of
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import take_over
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Note, Release
from twophase.state.journal.history import History


@dataclass(frozen=True)
class ReleasePlan:
    """What a job would go on without.

    Attributes:
        topics: as the operator has named them.
        lineage: the current lineage.
        checkpoint: its newest decided checkpoint; the one before its first if it has none.
        parts: for each source an offset line of what it would leave behind.
        lost: a sentence for each part, on what is given up.
    """

    topics: tuple[str, ...]
    lineage: str
    checkpoint: int
    parts: tuple[str, ...]
    lost: tuple[str, ...]

    def is_same(self, other: ReleasePlan) -> bool:
        """Return whether it gives up the same parts. What is unread of one may have grown."""
        return (self.lineage, self.checkpoint, self.parts) == (
            other.lineage,
            other.checkpoint,
            other.parts,
        )


class ReleaseRepair:
    """Releases topics.

    Args:
        context: the job's.
        legs: its sources.
        folder: returns Spark's folder of a lineage.
    """

    def __init__(
        self, context: JobContext, legs: Sequence[SourceLeg], folder: Callable[[str], Path]
    ) -> None:
        self._context = context
        self._legs = legs
        self._folder = folder

    def plan(self, topics: Collection[str]) -> ReleasePlan:
        """Step 1.

        Raises:
            StopJobError: a topic is not missing, or no source of the job can leave it behind, or a
                sink is ahead of the others; or the job must not go on for another reason.
        """
        remembered = StartPlanner(self._context).histories()
        return self._plan(self._context.log.read(), remembered, tuple(topics))

    def release(self, plan: ReleasePlan, note: Note) -> None:
        """Steps 2 and 3.

        Raises:
            StopJobError: something has changed since the plan. Nothing was given up.
        """
        context = self._context
        remembered = StartPlanner(context).histories()

        def check(history: History) -> None:
            if not self._plan(history, remembered, plan.topics).is_same(plan):
                raise StopJobError(
                    f"Job {context.job!r}: the folder or a topic has changed since the plan was "
                    "shown. Nothing was given up.",
                    remedy="make sure that no driver of the job is running, "
                    "then run the command again.",
                )

        take_over(context.log, remembered, check)
        failpoint("R01")
        context.log.append(Release(note, plan.lineage, plan.checkpoint, plan.parts))
        failpoint("R03")

    def _plan(
        self, history: History, remembered: Mapping[str, SinkHistory], topics: tuple[str, ...]
    ) -> ReleasePlan:
        StartPlanner(self._context).check(history, remembered)
        job, lineage = self._context.job, history.lineage
        for ahead in history.sink_decisions:
            raise StopJobError(
                f"Job {job!r}: sink {ahead.sink!r} has checkpoint {ahead.checkpoint} ahead of the "
                "others, which need the same records. Nothing was given up.",
                remedy="start the job. If it cannot read these records any more, have the sink "
                "take its rows back: restore the newest checkpoint with "
                "`restore.sink_ahead=rewind`; then run this command again.",
            )
        found: dict[str, Sequence[str]] = {}
        present, checkpoint = topics, -1
        if lineage is not None:
            newest = history.newest(lineage.id)
            checkpoint = newest.checkpoint if newest else lineage.first_checkpoint - 1
            folder = SparkFolder(self._folder(lineage.id), lineage)
            position = folder.position(checkpoint)
            found = dict(self._missing(position, topics))
            present = tuple(one for one in topics if not [*self._missing(position, (one,))])
        lost = tuple(dict.fromkeys(text for texts in found.values() for text in texts))
        if lineage is None or present:
            raise StopJobError(
                f"Job {job!r}: it has read nothing of {', '.join(present)} that is missing now: "
                "there is nothing to give up.",
                remedy="start the job: it goes on by itself, or names the topic. If it has named "
                "this one, give the job file the job's sources, with their uids. A source of "
                "Spark's own goes on with failOnDataLoss=false, set for one start.",
            )
        return ReleasePlan(topics, lineage.id, checkpoint, tuple(found), lost)

    def _missing(
        self, lines: Sequence[str | None], topics: tuple[str, ...]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the missing parts of each source that has some, with what is given up."""
        for line in lines:
            name, source = owner_of(line) if line is not None else ("", None)
            if line is None or not isinstance(source, ReleasesTopics):
                continue
            for leg in self._legs:
                is_its = (leg.name, source_of(leg.name).uid(leg)) == (name, source.uid_in(line))
                parts, lost = source.missing(leg, line, topics) if is_its else ("", ())
                if lost:
                    yield parts, lost

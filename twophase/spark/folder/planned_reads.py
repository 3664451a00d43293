"""Whether what a planned micro-batch reads is still there, where Spark would leave it out."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.contract.source import Source, SourceLeg
from twophase.contract.source_entry_points import owner_of, source_of
from twophase.errors import SourceLossError
from twophase.spark.folder.spark_folder import SparkFolder


def check_present(
    folder: SparkFolder, number: int, legs: Sequence[SourceLeg] | None = None
) -> None:
    """Check it for micro-batch n, whose offsets are frozen.

    Spark numbers a source that is read twice once, and two equal ones twice. Behind the first such
    one, nothing is checked unless Spark's folder shows that each has a number of its own: it has
    the log of the last source that may have one.

    Args:
        folder: of the lineage.
        number: n.
        legs: the sources, in plan order; None in the plugin form, which does not see the plan.

    Raises:
        SourceLossError: something is gone.
        OffsetMismatchError, OSError: as `SparkFolder.offsets`.
    """
    if legs is not None and not any(map(_may_leave_out, legs)):
        return
    offsets = folder.offsets(number)
    if legs is None:
        legs = [SourceLeg(owner_of(line)[0] if line else "", {}) for line in offsets.end]
    logs = folder.path / "sources"
    last = max((place for place, leg in enumerate(legs) if _may_note(leg)), default=0)
    are_apart = (logs / str(last)).exists()
    lines = zip(legs, offsets.start, offsets.end, strict=False)
    for place, (leg, start, end) in enumerate(lines):
        if leg in legs[:place] and not are_apart:
            return
        if end is not None and end != start:
            source_of(leg.name).check_present(leg, start, end, logs / str(place))


def check_undecided(
    folder: SparkFolder, number: int, legs: Sequence[SourceLeg] | None = None
) -> None:
    """Check the same of a micro-batch that is to be decided. The arguments: see `check_present`.

    Raises:
        SourceLossError: something is gone; says that it is not decided.
    """
    try:
        check_present(folder, number, legs)
    except SourceLossError as loss:
        raise type(loss)(
            f"Checkpoint {number} is not decided: {loss.what}", remedy=loss.remedy
        ) from loss.__cause__


def _may_note(leg: SourceLeg) -> bool:
    """Return whether Spark's folder may have a log of it: not if it is written in Python."""
    return type(source_of(leg.name)).data_source is Source.data_source


def _may_leave_out(leg: SourceLeg) -> bool:
    return type(source_of(leg.name)).check_present is not Source.check_present

"""Decides which sinks chain to the source: once for a job, and again in each micro-batch.

A sink chains if its rows are columns of the one source of the plan, that source can be read in
tasks, and the executors write the sink. All others go the way through Spark, in the same
checkpoint and over the same frozen ranges.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from twophase.contract.sink import ArrowSink, OpenArrowSink, Sink
from twophase.contract.source import RangeReader, ReadsInTasks, SourceLeg
from twophase.contract.source_entry_points import source_of
from twophase.spark.batch.chain import Chain, Link
from twophase.spark.plan.logical_plan import (
    analyzed,
    is_same_leaf,
    items,
    leg_of,
    partitions,
    projection_of,
)
from twophase.spark_versions import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from twophase.coordinator.commit.pending import PendingCheckpoint
    from twophase.state.checkpoints.checkpoint import FrozenOffsets

_QUERY = "sql.streaming.queryId"
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_log = logging.getLogger("twophase")


@dataclass(frozen=True)
class ChainedSource:
    """The source of a job whose tasks can read it.

    Attributes:
        leg: the source in the plan.
        source: its kind.
        reader: reads its ranges.
        columns: for each column of the job's rows its position in the source's.
        said: what was logged, to say it once.
    """

    leg: SourceLeg
    source: ReadsInTasks[Any]
    reader: RangeReader[Any]
    columns: tuple[int, ...]
    said: set[str] = field(default_factory=set, compare=False)

    def chain(
        self, pending: PendingCheckpoint, tasks: int, links: Sequence[Link], *, again: bool
    ) -> Chain | None:
        """Return the chain of one micro-batch; None if nothing chains there.

        If other sinks get the micro-batch through Spark, the source is read twice, and both reads
        have to give the same records (hazard H53).

        Args:
            pending: the attempt at its checkpoint.
            tasks: of Spark, for this micro-batch.
            links: the sinks that take columns of the source.
            again: whether an earlier run of the query has planned it.
        """
        ranges = self.ranges(pending.offsets, tasks)
        if not ranges or not links:
            return None
        if {*pending.missing()} - {link.sink for link in links}:
            why = self.source.may_change(self.leg, ranges)
            if why:
                self._say(f"other sinks need a read of their own, and {why}")
                return None
        [start] = pending.offsets.start
        begun = self.source.has_begun(self.leg, start)
        return Chain(self.reader, ranges, again, begun, links)

    def ranges(self, offsets: FrozenOffsets, tasks: int) -> Sequence[Any] | None:
        """Return what each task of a micro-batch reads; None if Spark has planned other tasks.

        Args:
            offsets: of the micro-batch.
            tasks: of Spark, for this micro-batch.
        """
        [start], [end] = offsets.start, offsets.end
        found = self.source.ranges(self.leg, start, end)
        if len(found) == tasks:
            return found
        self._say("Spark has planned other tasks than one for each range")
        return None

    def _say(self, why: str) -> None:
        if why not in self.said:
            self.said.add(why)
            _log.warning("No sink is chained in a micro-batch: %s", why)


@dataclass(frozen=True)
class Columns:
    """The columns of a chained sink.

    Attributes:
        places: for each its position in the source's rows.
        schema: as Spark would give them to the writers.
    """

    places: tuple[int, ...]
    schema: pa.Schema


class Chaining:
    """What chains in a job.

    Args:
        frame: the job's rows, streaming.
        sinks: the declared sinks, each with its rows.
        apart: why each sink is written on its own; empty if they may be written together.

    Attributes:
        chained: the sinks that chain, as far as the streaming plan tells.
        unchained: why each other sink does not, as part of a sentence.
        source: None if nothing chains.
    """

    def __init__(
        self, frame: DataFrame, sinks: Mapping[str, tuple[Sink, DataFrame]], apart: str = ""
    ) -> None:
        self._session = frame.sparkSession
        found = apart or _source(frame)
        self.source = None if isinstance(found, str) else found
        whys = {
            name: found if isinstance(found, str) else _why_not(sink, rows)
            for name, (sink, rows) in sinks.items()
        }
        self.chained = tuple(name for name, why in whys.items() if not why)
        self.unchained = {name: why for name, why in whys.items() if why}
        self._kinds = {name: type(sink) for name, (sink, _) in sinks.items()}

    def beside(self, sink: str) -> int:
        """Return how many other sinks of the same kind a task writes to beside a sink."""
        if sink not in self.chained:
            return 0
        return sum(self._kinds[one] is self._kinds[sink] for one in self.chained) - 1

    def chain(
        self,
        batch: DataFrame,
        pending: PendingCheckpoint,
        sinks: Mapping[str, tuple[OpenArrowSink, DataFrame]],
        *,
        again: bool,
    ) -> Chain | None:
        """Return the chain of one micro-batch; None if nothing chains there.

        Args:
            batch: the micro-batch, as Spark passes it.
            pending: the attempt at its checkpoint.
            sinks: those that may chain, each with its rows of the micro-batch.
            again: whether an earlier run of the query has planned it.
        """
        if self.source is None:
            return None
        links = [
            Link(name, found.places, found.schema, sink.writers(), pending.transaction(name))
            for name, (sink, rows) in sinks.items()
            if (found := self._columns(batch, rows)) is not None
        ]
        return self.source.chain(pending, partitions(batch), links, again=again)

    def _columns(self, batch: DataFrame, rows: DataFrame) -> Columns | None:
        """Return the columns of a sink in one micro-batch; None if it does not chain there.

        Args:
            batch: the micro-batch, as Spark passes it.
            rows: the sink's rows of it.
        """
        if self.source is None:
            return None
        places = self.source.columns
        if rows is not batch:  # each step through a plan asks Spark's JVM
            found = projection_of(rows)
            if isinstance(found, str) or not is_same_leaf(found.leaf, analyzed(batch)):
                return None
            places = tuple(places[place] for place in found.columns)
        conf = rows.sparkSession.conf
        schema = to_arrow_schema(
            rows.schema,
            timezone=conf.get("spark.sql.session.timeZone"),
            prefers_large_types=conf.get(_LARGE, "false") == "true",
        )
        return Columns(places, schema)

    def add_to_progress(self, records: int) -> None:
        """Have Spark count the rows of the source that a chain has read in a micro-batch.

        Spark counts what its own read of the source outputs, which has not run. Called on a thread
        with the query's local properties.
        """
        streams, context = self._session.streams, self._session.sparkContext
        try:
            query = streams.get(context.getLocalProperty(_QUERY) or "")
            if query is None:
                return
            plan = query._jsq.streamingQuery().lastExecution().executedPlan()
            for scan in items(plan.collectLeaves().toSeq()):
                if (metric := scan.metrics().get("numOutputRows")).isDefined():
                    metric.get().add(records)
        except Exception:  # noqa: BLE001 a report must not disturb the job
            _log.debug("The records of a chain could not be reported", exc_info=True)


def _source(frame: DataFrame) -> ChainedSource | str:
    """Return the source of a job's rows, or why it does not chain."""
    found = projection_of(frame)
    if isinstance(found, str):
        return found
    leg = leg_of(found.leaf)
    source = source_of(leg.name)
    if not isinstance(source, ReadsInTasks) or not source.numbers_tasks():
        return f"only Spark reads the source {leg.name.partition('[')[0]}"
    columns = StructType.fromJson(json.loads(found.leaf.schema().json()))
    schema = to_arrow_schema(columns, timezone="UTC")
    return ChainedSource(leg, source, source.range_reader(leg, schema), found.columns)


def _why_not(sink: Sink, rows: DataFrame) -> str:
    """Return why a sink does not chain to a source that can; empty if it does."""
    if not isinstance(sink, ArrowSink):
        return "it is written from the driver"
    found = projection_of(rows)
    if isinstance(found, str):
        return found
    if twice := [name for name, count in Counter(rows.columns).items() if count > 1]:
        return f"two columns are named {twice[0]!r}"
    return ""

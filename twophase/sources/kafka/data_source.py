"""The data source `twophase-kafka`, as Spark registers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from twophase.errors import ConfigError
from twophase.kafka_client.access import AccessError, retried_once_begun
from twophase.kafka_client.credentials import SecretError
from twophase.kafka_client.other_names import with_capitals
from twophase.sources.kafka import raw_format
from twophase.sources.kafka.engines import cluster_of, planner_of
from twophase.sources.kafka.offsets import FORMAT, WHERE, Limits, OffsetRange, SourceOffset, ranges
from twophase.sources.kafka.options import KafkaOptions, ValueFormat
from twophase.sources.kafka.range_reader import KafkaRangeReader
from twophase.spark_versions import (
    LIMITED_READS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    to_arrow_schema,
)

if TYPE_CHECKING:
    from twophase.sources.kafka.planner import OffsetPlanner

_UNLIMITED_ROWS = 2**62


class KafkaPartition(InputPartition):
    """The input of one task.

    Attributes:
        item: the range.
        again: whether Spark runs the batch again, with offsets that another process
            planned, perhaps days ago.
        begun: whether the source has read a batch before.
    """

    def __init__(self, item: OffsetRange, *, again: bool = False, begun: bool = False) -> None:
        super().__init__(item)
        self.item = item
        self.again = again
        self.begun = begun


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one query's source.

    Raises:
        ConfigError: the schema does not fit `value.format`.
    """

    def __init__(self, options: KafkaOptions, schema: StructType) -> None:
        self._options = options
        self._ranges = KafkaRangeReader(options, to_arrow_schema(schema, timezone="UTC"))
        self._planner: OffsetPlanner | None = None
        self._planned: tuple[SourceOffset, SourceOffset] | None = None
        self._freezes = False

    def initialOffset(self) -> dict[str, Any]:
        """Return the constant "nothing yet": after a crash in batch 0 Spark asks again (H55)."""
        return SourceOffset.initial(self._options.uid).to_values()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options: not the one of a trigger that reads everything."""
        if self._options.max_per_trigger is None and self._options.max_per_partition is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.max_per_trigger or _UNLIMITED_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the ends of this query."""
        self._freezes = True
        with suppress(AccessError, SecretError):  # `latestOffset` knows whether to retry them
            self._freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or `start` if nothing is new."""
        begin = SourceOffset.parse(start)
        with retried_once_begun(begun=begin.has_begun):
            self._freeze()
            end = self._open().latest(begin, self._limits(limit))
        if end == begin:
            return start
        self._planned = (begin, end)
        return end.to_values()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the partitions ended at the last look, for the progress report."""
        seen = self._planner.seen if self._planner is not None else None
        return None if seen is None else seen.to_values()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a batch, at least one for each partition that advances.

        If Spark runs a batch again, the tasks that read its records check that they still exist,
        not the driver: it may be committed already, and then nothing reads them (hazard H62).
        """
        planned = SourceOffset.parse(start), SourceOffset.parse(end)
        again = planned != self._planned
        return [
            KafkaPartition(item, again=again, begun=planned[0].has_begun)
            for item in ranges(*planned, min_tasks=self._options.min_read_tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range.

        Raises:
            SourceLossError: records of it are gone or have changed.
        """
        planned: KafkaPartition = partition  # type: ignore[assignment]
        yield from self._ranges.read(planned.item, again=planned.again, begun=planned.begun)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: it comes one trigger late. Group offsets go with the checkpoint."""

    def stop(self) -> None:
        """Close the driver process's connection."""
        if self._planner is not None:
            cluster_of(self._options).close()

    def _open(self) -> OffsetPlanner:
        if self._planner is None:
            self._planner = planner_of(self._options)
        return self._planner

    def _freeze(self) -> None:
        if self._freezes:
            self._open().freeze()
            self._freezes = False

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        per_trigger: int | None = None
        if isinstance(limit, ReadMaxRows) and limit.max_rows < _UNLIMITED_ROWS:
            per_trigger = limit.max_rows
        return Limits(per_trigger, self._options.max_per_partition)


class KafkaDataSource(DataSource):
    """Reads Kafka topics as a stream: `readStream.format("twophase-kafka")`.

    Options: `KafkaOptions`.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of value.format=raw; called if the user gives no schema."""
        options = self._parsed()
        if options.value_format is ValueFormat.JSON:
            raise ConfigError(
                f"{WHERE}: value.format=json needs a schema.",
                remedy="call .schema(...) before .load().",
            )
        return raw_format.ddl(options.columns)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """Return the reader of one query; opens nothing."""
        return KafkaStreamReader(self._parsed(), schema)

    def _parsed(self) -> KafkaOptions:
        LIMITED_READS.require()
        return KafkaOptions.parse(with_capitals(self.options, KafkaOptions.keys()))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 Spark's signature
        """Refuse a batch read: the source is a stream."""
        raise ConfigError(
            f"{WHERE}: spark.read is not supported.",
            remedy="use spark.readStream, with .trigger(availableNow=True) to stop at the end.",
        )

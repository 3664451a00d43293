"""Reads ranges of Kafka's records as rows, in tasks: of Spark's own read, or of a chain."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from twophase.contract.source import RangeReader
from twophase.errors import SourceLossError
from twophase.internals.workers import freeze_gc
from twophase.kafka_client.access import retried_once_begun
from twophase.sources.kafka.engines import read_range
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions, ValueFormat
from twophase.sources.kafka.range_digest import RangeDigest, settle
from twophase.sources.kafka.raw_format import RawDecoder
from twophase.state.checkpoints.replay_guard import ReplayGuard

_NOWHERE = OffsetRange("", "", "", 0, 0, 0)

_log = logging.getLogger(__name__)


class KafkaRangeReader(RangeReader[OffsetRange]):
    """Reads, decodes and checks ranges of one source. Picklable.

    Args:
        options: of the source.
        schema: of the rows, with times in UTC.

    Raises:
        ConfigError: the schema does not fit `value.format`.
    """

    def __init__(self, options: KafkaOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self.decoder(_NOWHERE)

    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        """See `RangeReader.read`."""
        guard = ReplayGuard.of_task(TaskContext.get())
        try:
            with retried_once_begun(begun=begun):
                yield from self._read(item, guard, again=again)
        except SourceLossError as error:
            if guard is not None:
                guard.lost(error)
            raise

    def _read(
        self, item: OffsetRange, guard: ReplayGuard | None, *, again: bool
    ) -> Iterator[pa.RecordBatch]:
        decoder, digest = self.decoder(item), RangeDigest()
        for block in read_range(self._options, item, decoder.wanted, again=again):
            decoder.take(block)
            if guard is not None:
                digest.take(block)  # after the decoder: the values are in the processor's cache
            if decoder.full:
                yield from _rows(decoder)
        yield from _rows(decoder)
        if guard is not None:
            settle(guard, item, digest)
        for note in decoder.notes():
            _log.warning(note)
        freeze_gc()

    def decoder(self, item: OffsetRange) -> RawDecoder | JsonDecoder:
        """Return a decoder of the records of a range."""
        if self._options.value_format is ValueFormat.JSON:
            return JsonDecoder(
                self._schema,
                item,
                self._options.on_bad_record,
                self._options.on_tombstone,
                self._options.skip_bytes,
            )
        return RawDecoder(self._schema, item)


def _rows(decoder: RawDecoder | JsonDecoder) -> Iterator[pa.RecordBatch]:
    batch = decoder.batch()
    if batch.num_rows:
        yield batch

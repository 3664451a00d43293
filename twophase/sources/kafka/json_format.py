"""Values parsed as JSON into the schema, each record one row, or named as bad.

pyarrow parses a block of values, joined by newlines, as a stream of objects, wherever lines end. That each value is
exactly one row follows from four checks together:

    1. no value holds a NUL byte: the parser takes one for the end of the block
    2. each value begins with { and ends with }
    3. the parser refuses a raw newline inside a string, so none spans two values, and refuses a { right after a }
       inside any object or list, so between two values it stands at the top level: each value gives one row at least
    4. there are as many rows as values

A block that fails any check, or a conversion, is halved until the bad records are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import pyarrow as pa
import pyarrow.json as pj

from twophase.errors import BadRecordError, ConfigError
from twophase.sources.kafka import raw_format
from twophase.sources.kafka.arrow_types import UnfitError, convert, has_decimals, read_type
from twophase.sources.kafka.chunk import Chunk, Wanted
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import WHERE, OnBadRecord

_METADATA = {
    "kafka_topic": ((pa.string(),), raw_format.topics),
    "kafka_partition": ((pa.int32(),), raw_format.partitions),
    "kafka_offset": ((pa.int64(),), raw_format.offsets),
    "kafka_timestamp": ((raw_format.TIMESTAMP,), raw_format.timestamps),
    "kafka_key": ((pa.binary(), pa.string()), raw_format.keys),
}
_BLANKS = b" \t\r\n"
_OBJECT = ({ord("{")}, {ord("}")})
_MAX_REASON = 300
_first, _last = itemgetter(0), itemgetter(-1)


class JsonDecoder:
    """Turns chunks into record batches.

    Args:
        schema: the Arrow schema of the rows, as Spark wants it; columns named `kafka_*` come from the record itself.
        item: the range that the chunks are of.
        on_bad_record: what becomes of a record that does not fit.

    Attributes:
        dropped: how many records were left out.
        first_dropped: offset of, and reason for, the first of them.

    Raises:
        ConfigError: a column has a type that cannot be read.
    """

    def __init__(self, schema: pa.Schema, item: OffsetRange, on_bad_record: OnBadRecord) -> None:
        self._schema = schema
        self._item = item
        self._fail = on_bad_record is OnBadRecord.FAIL
        payload = [field for field in schema if field.name not in _METADATA]
        _check_schema(schema, payload)
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([(field.name, read_type(field.name, field.type)) for field in payload]),
            unexpected_field_behavior="ignore",
        )
        self.wanted = Wanted(keys="kafka_key" in schema.names, timestamps="kafka_timestamp" in schema.names)
        self.dropped = 0
        self.first_dropped: tuple[int, str] | None = None

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """One row a record, without the dropped ones.

        Raises:
            BadRecordError: a record does not fit the schema; names the first.
        """
        pieces = list(self._fitting(chunk, 0, len(chunk)))
        if len(pieces) == 1 and pieces[0][0] == range(len(chunk)):
            payload, kept = pieces[0][1], None
        else:
            empty = [column[:0] for column in self._payload([b"{}"], check_nulls=False)]
            batches = [columns for _, columns in pieces]
            payload = [pa.concat_arrays(parts) for parts in zip(empty, *batches, strict=True)]
            kept = pa.array([index for rows, _ in pieces for index in rows], pa.int64())
        parsed = iter(payload)
        columns = [
            self._metadata(field, chunk, kept) if field.name in _METADATA else next(parsed) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def notes(self) -> list[str]:
        """What the operator should know of the chunks so far."""
        if self.first_dropped is None:
            return []
        offset, reason = self.first_dropped
        return [
            f"Source {self._item.source!r}: {self.dropped} records of {self._item} do not fit the schema and were "
            f"dropped; the first has offset {offset}: {reason}."
        ]

    def _metadata(self, field: pa.Field, chunk: Chunk, kept: pa.Array | None) -> pa.Array:
        array = _METADATA[field.name][1](chunk, self._item)
        array = array if kept is None else array.take(kept)
        return array.cast(field.type)

    def _fitting(self, chunk: Chunk, low: int, high: int) -> Iterator[tuple[range, list[pa.Array]]]:
        """The runs of records that fit, with their columns; in order, so that the first bad record is met first."""
        if low == high:
            return
        try:
            self._check_keys(chunk, low, high)
            yield range(low, high), self._payload(chunk.values[low:high])
        except (UnfitError, pa.ArrowInvalid) as error:
            if high - low == 1:
                self._bad(chunk.offset_at(low), error)
                return
            middle = (low + high) // 2
            yield from self._fitting(chunk, low, middle)
            yield from self._fitting(chunk, middle, high)

    def _payload(self, values: list[bytes | None], *, check_nulls: bool = True) -> list[pa.Array]:
        """Parse values into the columns that are not metadata.

        Raises:
            UnfitError, ArrowInvalid: some value does not fit.
        """
        data = _join(values)
        # one block: where pyarrow would cut a larger input is not where records end
        settings = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pj.read_json(pa.BufferReader(data), settings, self._options)
        if table.num_rows != len(values):
            raise UnfitError("more than one JSON object")
        arrays = []
        fields = [field for field in self._schema if field.name not in _METADATA]
        for field, column in zip(fields, table.columns, strict=True):
            array = column.chunk(0)
            if has_decimals(field.type) or not data.isascii():
                array.validate(full=True)  # digits beyond the precision; bytes that are not UTF-8
            arrays.append(convert(field.name, array, field if check_nulls else field.with_nullable(True)))
        return arrays

    def _check_keys(self, chunk: Chunk, low: int, high: int) -> None:
        if self.wanted.keys and pa.types.is_string(self._schema.field("kafka_key").type):
            pa.array(chunk.keys[low:high], pa.binary()).cast(pa.string())

    def _bad(self, offset: int, error: Exception) -> None:
        reason = _reason(error)
        if self._fail:
            raise BadRecordError(
                f"Source {self._item.source!r}: the record at offset {offset} of {self._item.key} (topic "
                f"{self._item.topic!r}, partition {self._item.partition}) does not fit the schema: {reason}.",
                remedy="correct the producer or the schema; json.on_error=drop leaves such records out.",
            ) from None
        self.dropped += 1
        self.first_dropped = self.first_dropped or (offset, reason)


def _join(values: list[bytes | None]) -> bytes:
    try:
        data = b"\n".join([*values, b""])  # type: ignore[list-item]
        whole = set(map(_first, values)), set(map(_last, values))  # type: ignore[arg-type]
    except TypeError:
        raise UnfitError("it has no value (a tombstone)") from None
    except IndexError:
        raise UnfitError("its value is empty") from None
    if whole != _OBJECT:
        stripped = [value.strip(_BLANKS) for value in values if value is not None]
        if not all(value[:1] == b"{" and value[-1:] == b"}" for value in stripped):
            raise UnfitError("its value is not one JSON object")
    if b"\0" in data:
        raise UnfitError("its value holds a NUL byte")
    return data


def _check_schema(schema: pa.Schema, payload: list[pa.Field]) -> None:
    if not payload:
        raise ConfigError(f"{WHERE}: value.format=json needs at least one column that is not one of kafka_*.")
    if len(set(schema.names)) != len(schema.names):
        raise ConfigError(f"{WHERE}: the schema names a column twice: {', '.join(schema.names)}.")
    for name, (allowed, _) in _METADATA.items():
        if name in schema.names and schema.field(name).type not in allowed:
            raise ConfigError(
                f"{WHERE}: column {name!r} has the type {schema.field(name).type}; it comes from the record itself.",
                remedy=f"give it the type {' or '.join(map(str, allowed))}, or take the column out of the schema.",
            )


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).removeprefix("JSON parse error: ").removesuffix(" in row 0").rstrip(".")
    return "".join(char if char.isprintable() else "?" for char in text)[:_MAX_REASON]

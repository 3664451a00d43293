"""Parses values as JSON into the schema: each record becomes one row, or is reported as bad.

pyarrow parses a block of values, joined by newlines, as a stream of objects, regardless of line
ends. Four checks together ensure that each value is exactly one row:

    1. no value contains a NUL byte: the parser would take it for the end of the input
    2. each value begins with { and ends with }
    3. the parser refuses a raw newline inside a string, so none spans two values, and refuses a {
       right after a } inside any object or list, so between two values it is at the top level: each
       value gives at least one row
    4. there are as many rows as values

A block that fails a check or a conversion is split in halves until the bad records are found. The
reader's columns are converted to exactly the Arrow types that Spark expects.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from twophase.errors import BadRecordError, ConfigError
from twophase.internals.redaction import shown
from twophase.sources.kafka import raw_format
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.offsets import WHERE, OffsetRange
from twophase.sources.kafka.options import OnBadRecord

_METADATA = {
    "kafka_topic": ((pa.string(),), raw_format.topics),
    "kafka_partition": ((pa.int32(),), raw_format.partitions),
    "kafka_offset": ((pa.int64(),), raw_format.offsets),
    "kafka_timestamp": ((raw_format.TIMESTAMP,), raw_format.timestamps),
    "kafka_key": ((pa.binary(), pa.string()), raw_format.keys),
}
_MAX_ROWS = 20_000  # pyarrow refuses more than 100,000 at once
_MAX_BYTES = 4 * 1024 * 1024
_BLANKS = b" \t\r\n"
_OBJECT = ({ord("{")}, {ord("}")})
_first, _last = itemgetter(0), itemgetter(-1)


class UnfitError(Exception):
    """A value does not fit the schema."""


_UNFIT = (UnfitError, pa.ArrowInvalid)


@dataclass
class _Piece:
    """One block, prepared for parsing.

    Attributes:
        joined: the values, each followed by a newline; None if they failed check 1 or 2.
        lengths: the lengths of the values, to find them in `joined`.
        values: only if `joined` is None.
        metadata: the columns that come from the record itself.
    """

    joined: bytes | None
    lengths: list[int]
    values: list[bytes | None]
    offsets: Sequence[int]
    metadata: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.offsets)

    def all_values(self) -> list[bytes | None]:
        if self.joined is None:
            return self.values
        starts = itertools.accumulate((length + 1 for length in self.lengths), initial=0)
        return [
            self.joined[at : at + length] for at, length in zip(starts, self.lengths, strict=False)
        ]


class JsonDecoder:
    """Turns blocks into record batches.

    Args:
        schema: the Arrow schema that Spark expects of the rows; columns named `kafka_*` come from
            the record itself.
        item: the range that the blocks belong to.
        on_bad_record: the handling of a record that does not fit.

    Attributes:
        wanted: the parts of the records that the blocks must have.
        dropped: the number of records left out.

    Raises:
        ConfigError: a column has a type that cannot be read.
    """

    def __init__(self, schema: pa.Schema, item: OffsetRange, on_bad_record: OnBadRecord) -> None:
        self._schema = schema
        self._item = item
        self._fail = on_bad_record is OnBadRecord.FAIL
        self._payload = [field for field in schema if field.name not in _METADATA]
        self._metadata = [field for field in schema if field.name in _METADATA]
        _check_schema(schema, self._payload)
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(
                [(field.name, read_type(field.name, field.type)) for field in self._payload]
            ),
            unexpected_field_behavior="ignore",
        )
        self.wanted = Wanted(
            keys="kafka_key" in schema.names, timestamps="kafka_timestamp" in schema.names
        )
        self._pieces: list[_Piece] = []
        self._rows = self._bytes = 0
        self.dropped = 0
        self._first_dropped: tuple[int, str] | None = None

    @property
    def full(self) -> bool:
        """True if there are enough records for a batch."""
        return self._rows >= _MAX_ROWS or self._bytes >= _MAX_BYTES

    def take(self, block: Block) -> None:
        """Add records."""
        metadata = {
            field.name: _METADATA[field.name][1](block, self._item) for field in self._metadata
        }
        try:
            joined = _join(block.values)
            piece = _Piece(joined, list(map(len, block.values)), [], block.offsets, metadata)  # type: ignore[arg-type]
            self._bytes += len(joined)
        except UnfitError:
            piece = _Piece(None, [], block.values, block.offsets, metadata)
            self._bytes += sum(len(value or b"") for value in block.values)
        self._pieces.append(piece)
        self._rows += len(piece)

    def batch(self) -> pa.RecordBatch:
        """Return all rows since the last batch, without the dropped ones.

        Raises:
            BadRecordError: a record does not fit the schema; the error names the first.
        """
        pieces, self._pieces = self._pieces, []
        self._rows = self._bytes = 0
        parts = [piece.joined for piece in pieces if piece.joined is not None]
        try:
            if len(parts) == len(pieces) and pieces:
                rows = sum(map(len, pieces))
                return self._assemble(self._columns(b"".join(parts), rows), pieces)
        except _UNFIT:
            pass
        found = [self._halves(piece, piece.all_values(), 0, len(piece)) for piece in pieces]
        empty = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in self._schema], schema=self._schema
        )
        return pa.concat_batches([empty, *itertools.chain.from_iterable(found)])

    def notes(self) -> list[str]:
        """Return warnings about the rows so far for the operator."""
        if self._first_dropped is None:
            return []
        offset, reason = self._first_dropped
        return [
            (
                f"Source {self._item.source!r}: {self.dropped} records of {self._item} do not "
                f"fit the schema and were dropped; the first has offset {offset}: {reason}."
            )
        ]

    def _halves(
        self, piece: _Piece, values: list[bytes | None], low: int, high: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the runs of records that fit, in order: the first bad record is found first."""
        try:
            columns = self._columns(_join(values[low:high]), high - low)
            yield self._assemble(columns, [piece], low, high - low)
        except _UNFIT as error:
            if high - low == 1:
                self._bad(piece.offsets[low], error)
                return
            middle = (low + high) // 2
            yield from self._halves(piece, values, low, middle)
            yield from self._halves(piece, values, middle, high)

    def _columns(self, data: bytes, rows: int) -> dict[str, pa.Array]:
        """Parse joined values into the columns that are not metadata.

        Raises:
            UnfitError, ArrowInvalid: some value does not fit.
        """
        # one block: pyarrow would not split a larger input between records
        settings = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pj.read_json(pa.BufferReader(data), settings, self._options)
        if table.num_rows != rows:
            raise UnfitError("more than one JSON object")
        text = not data.isascii()
        columns = {}
        for field, column in zip(self._payload, table.columns, strict=True):
            array = column.chunk(0)
            if text or has_decimals(field.type):
                array.validate(full=True)  # bytes that are not UTF-8; digits beyond the precision
            columns[field.name] = convert(field.name, array, field)
        return columns

    def _assemble(
        self,
        columns: dict[str, pa.Array],
        pieces: list[_Piece],
        low: int = 0,
        rows: int | None = None,
    ) -> pa.RecordBatch:
        for field in self._metadata:
            array = pa.concat_arrays([piece.metadata[field.name] for piece in pieces]).slice(
                low, rows
            )
            columns[field.name] = array.cast(field.type)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    def _bad(self, offset: int, error: Exception) -> None:
        reason = _reason(error)
        if self._fail:
            raise BadRecordError(
                f"Source {self._item.source!r}: the record at offset {offset} of "
                f"{self._item.key} (topic {self._item.topic!r}, partition {self._item.partition}) "
                f"does not fit the schema: {reason}.",
                remedy="correct the producer or the schema; json.on_error=drop drops such records.",
            ) from None
        self.dropped += 1
        self._first_dropped = self._first_dropped or (offset, reason)


def _join(values: list[bytes | None]) -> bytes:
    """Join values for the parser, after checks 1 and 2.

    Raises:
        UnfitError: a value fails them.
    """
    try:
        data = b"\n".join([*values, b""])  # type: ignore[list-item]
        ends = set(map(_first, values)), set(map(_last, values))  # type: ignore[arg-type]
    except TypeError:
        raise UnfitError("it has no value (a tombstone)") from None
    except IndexError:
        raise UnfitError("its value is empty") from None
    if ends != _OBJECT:
        stripped = [value.strip(_BLANKS) for value in values if value is not None]
        if not all(value[:1] == b"{" and value[-1:] == b"}" for value in stripped):
            raise UnfitError("its value is not one JSON object")
    if b"\0" in data:
        raise UnfitError("its value holds a NUL byte")
    return data


def _check_schema(schema: pa.Schema, payload: list[pa.Field]) -> None:
    if not payload:
        raise ConfigError(
            f"{WHERE}: value.format=json needs at least one column that is not one of kafka_*."
        )
    if len(set(schema.names)) != len(schema.names):
        raise ConfigError(f"{WHERE}: the schema names a column twice: {', '.join(schema.names)}.")
    for name, (allowed, _) in _METADATA.items():
        if name in schema.names and schema.field(name).type not in allowed:
            raise ConfigError(
                f"{WHERE}: column {name!r} has the type {schema.field(name).type}; it comes from "
                "the record itself.",
                remedy=f"give it the type {' or '.join(map(str, allowed))}, "
                "or take the column out of the schema.",
            )


def _reason(error: Exception) -> str:
    if isinstance(error, UnfitError):  # its text is ours; values in it are shown as such
        return str(error)
    text = (
        " ".join(str(error).split())
        .removeprefix("JSON parse error: ")
        .removesuffix(" in row 0")
        .rstrip(".")
    )
    return shown(text)


def read_type(name: str, target: pa.DataType) -> pa.DataType:
    """Return the type that the JSON reader is to produce for a column of type `target`.

    Raises:
        ConfigError: JSON values cannot become this type.
    """
    if pa.types.is_struct(target):
        return pa.struct(
            [
                pa.field(child.name, read_type(f"{name}.{child.name}", child.type))
                for child in target
            ]
        )
    if pa.types.is_list(target):
        return pa.list_(read_type(f"{name}[]", target.value_type))
    # The reader takes dates only as numbers, silently drops a time zone, and lets a float overflow.
    if pa.types.is_date32(target) or (pa.types.is_timestamp(target) and target.tz is None):
        return pa.string()
    if pa.types.is_float32(target):
        return pa.float64()
    if not _readable(target):
        raise ConfigError(
            f"{WHERE}: column {name!r} has the type {target}, which value.format=json cannot read.",
            remedy="read binary columns and maps as STRING or STRUCT, "
            "or use value.format=raw and from_json.",
        )
    return target


def convert(name: str, array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert an array of the read type to exactly the type of `field`.

    Raises:
        UnfitError: a value is null where the schema forbids it, or does not fit the type.
    """
    if not field.nullable and array.null_count:
        raise UnfitError(f"{name} is null or missing, and the schema says NOT NULL")
    target = field.type
    if pa.types.is_struct(target):
        return _convert_struct(name, array, target)
    if pa.types.is_list(target):
        items = convert(f"{name}[]", array.values, target.value_field)
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=array.is_null())
    if array.type == target:
        return array
    try:
        cast = array.cast(target)
    except pa.ArrowInvalid as error:
        raise UnfitError(f"{name}: {shown(str(error))}") from None
    if pa.types.is_float32(target) and _infinite(cast) != _infinite(array):
        raise UnfitError(f"{name}: a number is too big for FLOAT")
    return cast


def has_decimals(target: pa.DataType) -> bool:
    """Return whether a type contains a decimal: the reader accepts some that are too long."""
    return any(pa.types.is_decimal(leaf) for leaf in _leaves(target))


def _convert_struct(name: str, array: pa.StructArray, target: pa.StructType) -> pa.Array:
    absent = array.is_null()
    children = []
    for index, child in enumerate(target):
        values = array.field(index)
        path = f"{name}.{child.name}"
        # a child of a struct that is null itself is null without being missing
        if not child.nullable and pc.any(pc.and_not(values.is_null(), absent)).as_py():
            raise UnfitError(f"{path} is null or missing, and the schema says NOT NULL")
        children.append(convert(path, values, child.with_nullable(True)))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=absent)


def _infinite(array: pa.Array) -> int:
    return pc.sum(pc.is_inf(array)).as_py() or 0


def _leaves(target: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(target):
        for child in target:
            yield from _leaves(child.type)
    elif pa.types.is_list(target):
        yield from _leaves(target.value_type)
    else:
        yield target


def _readable(target: pa.DataType) -> bool:
    is_of = pa.types
    return bool(
        is_of.is_boolean(target)
        or is_of.is_signed_integer(target)
        or is_of.is_float64(target)
        or is_of.is_string(target)
        or is_of.is_decimal128(target)
        or is_of.is_timestamp(target)
    )

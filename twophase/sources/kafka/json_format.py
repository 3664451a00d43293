"""Decodes records whose value is JSON: each becomes one row, or is reported as bad."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from twophase.errors import BadRecordError, ConfigError
from twophase.internals.arrow_values import integers
from twophase.internals.redaction import shown
from twophase.sources.kafka import raw_format
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.json_parser import TOMBSTONE, UNFIT, VAGUE, Faults, JsonParser, join
from twophase.sources.kafka.json_reshape import Reshaping
from twophase.sources.kafka.json_types import UnfitError
from twophase.sources.kafka.offsets import WHERE, OffsetRange
from twophase.sources.kafka.options import OnBadRecord

_METADATA = {
    "kafka_topic": ((pa.string(),), raw_format.topics),
    "kafka_partition": ((pa.int32(),), raw_format.partitions),
    "kafka_offset": ((pa.int64(),), raw_format.offsets),
    "kafka_timestamp": ((raw_format.TIMESTAMP,), raw_format.timestamps),
    "kafka_key": ((pa.binary(), pa.string()), raw_format.keys),
}
_SPARK_S = {
    pa.binary(): "BINARY",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    raw_format.TIMESTAMP: "TIMESTAMP",
}
_TEXT = b"\t\n\r" + bytes(range(32, 127))
_MAX_ROWS = 20_000  # pyarrow refuses more than 100,000 at once
_MAX_BYTES = 4 * 1024 * 1024
_MOST_SORTED = 16  # batches


@dataclass
class _Piece:
    """One block, prepared for parsing.

    Attributes:
        joined: the values, each followed by a newline; None if they cannot be joined.
        lengths: the lengths of the values, to find them in `joined`.
        values: only if `joined` is None.
        metadata: the columns that come from the record itself.
        faults: why values are bad that cannot be cut, by their numbers.
    """

    joined: bytes | None
    lengths: list[int]
    values: list[bytes | None]
    offsets: Sequence[int]
    metadata: dict[str, pa.Array]
    faults: Faults

    def __len__(self) -> int:
        return len(self.offsets)

    def all_values(self) -> list[bytes | None]:
        if self.joined is None:
            return self.values
        if self.joined.count(b"\n") == len(self):
            return self.joined.split(b"\n")[:-1]  # type: ignore[return-value]
        starts = itertools.accumulate((length + 1 for length in self.lengths), initial=0)
        return [
            self.joined[at : at + length] for at, length in zip(starts, self.lengths, strict=False)
        ]


@dataclass
class _Dropped:
    """Records that were left out, and the first of them."""

    count: int = 0
    offset: int = 0
    reason: str = ""

    def add(self, offset: int, fault: Exception) -> None:
        if not self.count:
            self.offset, self.reason = offset, _reason(fault)
        self.count += 1


class JsonDecoder:
    """Turns blocks into record batches.

    Args:
        schema: the Arrow schema that Spark expects of the rows; columns named `kafka_*` come from
            the record itself.
        item: the range that the blocks belong to.
        on_bad_record: the handling of a record that does not fit.
        on_tombstone: the handling of a record without a value; None: that of `on_bad_record`.
        skip_bytes: the number of bytes before the JSON of each value.

    Attributes:
        wanted: the parts of the records that the blocks must have.

    Raises:
        ConfigError: a column has a type that cannot be read.
    """

    def __init__(
        self,
        schema: pa.Schema,
        item: OffsetRange,
        on_bad_record: OnBadRecord,
        on_tombstone: OnBadRecord | None = None,
        skip_bytes: int = 0,
    ) -> None:
        self._schema = schema
        self._item = item
        self._fail = on_bad_record is OnBadRecord.FAIL
        self._fail_tombstone = (on_tombstone or on_bad_record) is OnBadRecord.FAIL
        payload = [field for field in schema if field.name not in _METADATA]
        self._metadata = [field for field in schema if field.name in _METADATA]
        _check_schema(schema, payload)
        self._skip = skip_bytes
        reshaping = Reshaping(payload)
        self._reshaping = reshaping if reshaping.is_needed() else None
        self._parser = JsonParser(reshaping.fields, skip_bytes)
        self.wanted = Wanted(
            keys="kafka_key" in schema.names, timestamps="kafka_timestamp" in schema.names
        )
        self._pieces: list[_Piece] = []
        self._rows = self._bytes = 0
        self._sort_first = False  # the next batch is sorted without a try to parse it as it is
        self._refused = self._sorted = 0  # tries in a row that failed, batches sorted since
        self._unfit, self._tombstones = _Dropped(), _Dropped()

    @property
    def full(self) -> bool:
        """True if there are enough records for a batch."""
        return self._rows >= _MAX_ROWS or self._bytes >= _MAX_BYTES

    def take(self, block: Block) -> None:
        """Add records."""
        metadata = {
            field.name: _METADATA[field.name][1](block, self._item) for field in self._metadata
        }
        values, faults = self._cut(block.values) if self._skip else (block.values, {})
        if self._reshaping is not None:
            values = _reshaped(self._reshaping, values, faults)
        joined = None if self._sort_first or faults else join(values)
        if joined is None:
            piece = _Piece(None, [], values, block.offsets, metadata, faults)
            self._bytes += sum(map(len, filter(None, values)))
        else:
            lengths = list(map(len, values))  # type: ignore[arg-type]
            piece = _Piece(joined, lengths, [], block.offsets, metadata, faults)
            self._bytes += len(joined)
        self._pieces.append(piece)
        self._rows += len(piece)

    def batch(self) -> pa.RecordBatch:
        """Return all rows since the last batch, without the dropped ones.

        Raises:
            BadRecordError: a record does not fit the schema; the error names the first.
        """
        pieces, self._pieces = self._pieces, []
        self._rows = self._bytes = 0
        if not pieces:
            empty = [pa.nulls(0, field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(empty, schema=self._schema)
        parts = [piece.joined for piece in pieces if piece.joined is not None]
        refusal: Exception | None = None
        if len(parts) == len(pieces):
            try:
                columns = self._parser.parse(b"".join(parts), sum(map(len, pieces)))
                batch = self._assemble(columns, pieces)
            except UNFIT as error:
                refusal = error
            else:
                self._refused = 0
                return batch
        return self._sort(pieces, refusal)

    def notes(self) -> list[str]:
        """Return warnings about the rows so far for the operator."""
        kinds = {"do not fit the schema": self._unfit, "are tombstones": self._tombstones}
        return [
            f"Source {self._item.source!r}: {dropped.count} records of {self._item} {what} and "
            f"were dropped; the first has offset {dropped.offset}: {dropped.reason}."
            for what, dropped in kinds.items()
            if dropped.count
        ]

    def _cut(self, values: list[bytes | None]) -> tuple[list[bytes | None], Faults]:
        """Take the bytes before the JSON away; a value that begins with text has none."""
        fault = UnfitError(
            f"its value does not begin with {self._skip} bytes other than text",
            remedy="leave json.skip_bytes out if no record has them.",
        )
        faults: Faults = {
            n: fault
            for n, value in enumerate(values)
            if value is not None and (len(value) < self._skip or value[0] in _TEXT)
        }
        return [value and value[self._skip :] for value in values], faults

    def _sort(self, pieces: list[_Piece], refusal: Exception | None) -> pa.RecordBatch:
        values = list(itertools.chain.from_iterable(piece.all_values() for piece in pieces))
        faults = self._faulty_keys(pieces, values)
        starts = itertools.accumulate(map(len, pieces), initial=0)
        for start, piece in zip(starts, pieces, strict=False):
            faults |= {start + number: fault for number, fault in piece.faults.items()}
        rows, columns = self._parser.sort(values, faults, refusal)
        if refusal is not None:
            self._refused, self._sorted = self._refused + 1, 0
        self._sorted += 1
        # what one batch has, the next one probably has too; some fit, though not as they are
        probably_fits = not faults and not self._parser.expected
        self._sort_first = not probably_fits or self._sorted < min(2**self._refused, _MOST_SORTED)
        if faults:
            offsets = list(itertools.chain.from_iterable(piece.offsets for piece in pieces))
            for number in sorted(faults):
                self._bad(offsets[number], faults[number])
        return self._assemble(columns, pieces, rows)

    def _faulty_keys(self, pieces: list[_Piece], values: list[bytes | None]) -> Faults:
        if pa.field("kafka_key", pa.string()) not in self._metadata:
            return {}
        keys = pa.concat_arrays([piece.metadata["kafka_key"] for piece in pieces])
        try:
            keys.cast(pa.string())
        except pa.ArrowInvalid:
            faulty = {n: key for n, key in enumerate(keys.to_pylist()) if not _is_utf8(key)}
            faults: Faults = {n: VAGUE for n in faulty if values[n] is not None}
            for first in [*faults][:1]:
                faults[first] = UnfitError("is not UTF-8", "kafka_key", faulty[first])
            return faults
        return {}

    def _assemble(
        self, columns: dict[str, pa.Array], pieces: list[_Piece], rows: list[int] | None = None
    ) -> pa.RecordBatch:
        if self._reshaping is not None:
            columns = self._reshaping.back(columns)
        for field in self._metadata:
            array = pa.concat_arrays([piece.metadata[field.name] for piece in pieces])
            if rows is not None:
                array = array.take(integers(rows))
            columns[field.name] = array.cast(field.type)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    def _bad(self, offset: int, fault: Exception) -> None:
        tombstone = fault is TOMBSTONE
        if self._fail_tombstone if tombstone else self._fail:
            remedy = getattr(fault, "remedy", "") or "correct the producer or the schema."
            option = "on_tombstone" if tombstone else "on_error"
            raise BadRecordError(
                f"Source {self._item.source!r}: the record at offset {offset} of "
                f"{self._item.key} (topic {self._item.topic!r}, partition {self._item.partition}) "
                f"does not fit the schema: {_reason(fault)}.",
                remedy=f"{remedy} To drop such records: `json.{option}=drop`",
            ) from None
        dropped = self._tombstones if tombstone else self._unfit
        dropped.add(offset, fault)


def _reshaped(
    reshaping: Reshaping, values: list[bytes | None], faults: Faults
) -> list[bytes | None]:
    """Return values in the form of the parser; why one cannot be brought into it is added."""
    found = list(values)
    for number, value in enumerate(values):
        if value is None or number in faults:
            continue
        try:
            found[number] = reshaping.text(value)
        except UnfitError as error:
            faults[number] = error
    return found


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
                remedy=f"give it the type {' or '.join(_SPARK_S[one] for one in allowed)}, "
                "or take the column out of the schema.",
            )


def _is_utf8(key: bytes | None) -> bool:
    try:
        return key is None or key.isascii() or bool(key.decode())
    except UnicodeDecodeError:
        return False


def _reason(fault: Exception) -> str:
    if isinstance(fault, UnfitError):  # its text is ours; values in it are shown as such
        return str(fault)
    text = (
        " ".join(str(fault).split())
        .removeprefix("JSON parse error: ")
        .removesuffix(" in row 0")
        .rstrip(".")
    )
    return shown(text)

"""Rows as Kafka's records: as JSON objects, or as the parts that their columns are.

JSON is written as Spark's `to_json` does, with three differences: a null is written, times are in
UTC with all of their microseconds, and numbers that are not finite are refused.

    boolean, integers, float, double    true, 1, 0.5: as many digits as it takes to read it back
    decimal                             a number with all of its digits
    text; binary                        text; text in base64
    date; timestamp                     "2026-01-31"; "2026-01-31T12:00:00.000001Z"
    timestamp without a zone            "2026-01-31T12:00:00.000001"
    array; struct; map                  an array; an object; an object, its keys being text
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import ConfigError, RejectedRowsError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging.formats import check_utf8
from twophase.sinks.common.staging.times import check_years, inside, shown_time, times_inside
from twophase.sinks.kafka.options import KafkaSinkOptions, RecordFormat

_REMEDY = "correct or filter these rows before the sink."
_INTEGERS = (pa.types.is_integer,)
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_null,
)
_TEXT = (pa.types.is_string, pa.types.is_large_string)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary)
RAW_COLUMNS = ("key", "value", "headers", "partition", "timestamp", "topic")
"""The columns of rows that are records already."""
_HEADERS = "an array of structs of key (text) and value (bytes)"
_LEAST = {
    "partition": (0, "Kafka counts them from 0"),
    "timestamp": (
        1,
        "librdkafka writes the first millisecond of 1970 as now, and Kafka has no time before it",
    ),
}
"""The lowest number of a column, and why."""


@dataclass(frozen=True)
class KafkaRecord:
    """A record to write.

    Attributes:
        value: its value; None of a tombstone.
        key: its key; None if it has none.
        headers: names and values.
        partition: None for one that the key decides.
        timestamp_ms: since 1970; None for now.
        topic: that the row names; None for the sink's `topic`.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    topic: str | None = None


def check_columns(schema: pa.Schema, options: KafkaSinkOptions) -> None:
    """Check that rows can be written so that they read back unchanged.

    Raises:
        ConfigError: a column cannot, or one is missing.
    """
    check = _raw_problems if options.format is RecordFormat.RAW else _json_problems
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    problems = [f"column {name!r} exists twice" for name in twice]
    if problems := [*problems, *check(schema, options)]:
        raise ConfigError(
            f"The rows do not fit {options.where}: {'; '.join(problems)}.",
            remedy="change the rows in the query or the sink's transform.",
        )


def _json_problems(schema: pa.Schema, options: KafkaSinkOptions) -> Iterator[str]:
    for field in schema:
        if reason := refusal(field.type):
            yield f"column {field.name!r}: {reason}"
    for option, name, kinds, what in (
        ("key", options.key, (*_TEXT, *_BYTES, *_INTEGERS), "a key (text, bytes, integer)"),
        ("topic_column", options.topic_column, _TEXT, "the name of a topic (text)"),
    ):
        if name is None:
            continue
        at = schema.get_field_index(name)
        if at < 0:
            yield f"there is no column {name!r}, which the option {option} names"
        elif not _is(schema.field(at).type, kinds):
            yield f"column {name!r} is {schema.field(at).type}, and cannot be {what}"


def _raw_problems(schema: pa.Schema, options: KafkaSinkOptions) -> Iterator[str]:
    kinds = {field.name: field.type for field in schema}
    for name in schema.names:
        if name not in RAW_COLUMNS:
            yield f"column {name!r} is not part of a record ({', '.join(RAW_COLUMNS)})"
    if "value" not in kinds:
        yield "there is no column 'value'"
    if options.other_topics and "topic" not in kinds:
        yield "there is no column 'topic', and other_topics is set"
    for name in ("key", "value"):
        if name in kinds and not _is(kinds[name], (*_TEXT, *_BYTES)):
            yield f"column {name!r} is {kinds[name]}, neither text nor bytes"
    if "topic" in kinds and not _is(kinds["topic"], _TEXT):
        yield f"column 'topic' is {kinds['topic']}, not text"
    if "partition" in kinds and kinds["partition"] != pa.int32():
        yield f"column 'partition' is {kinds['partition']}, not INT"
    if "timestamp" in kinds and not pa.types.is_timestamp(kinds["timestamp"]):
        yield f"column 'timestamp' is {kinds['timestamp']}, not TIMESTAMP"
    if "headers" in kinds and not _is_headers(kinds["headers"]):
        yield f"column 'headers' is {kinds['headers']}, not {_HEADERS}"


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {one.name: one.type for one in kind.value_type}
    return (
        sorted(one.name for one in kind.value_type) == ["key", "value"]
        and _is(fields["key"], _TEXT)
        and _is(fields["value"], (*_TEXT, *_BYTES))
    )


def refusal(kind: pa.DataType) -> str:
    """Return why a type has no JSON; empty if it has."""
    if _is(kind, _PLAIN):
        return ""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return refusal(kind.value_type)
    if pa.types.is_map(kind):
        if not _is(kind.key_type, _TEXT):
            return "the keys of a map have to be text"
        return refusal(kind.item_type)
    if pa.types.is_struct(kind):
        names = [one.name for one in kind]
        if len(set(names)) < len(names):
            return "a struct has a field twice"
        return next((reason for one in kind if (reason := refusal(one.type))), "")
    return f"{kind} has no JSON here"


def _is(kind: pa.DataType, checks: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(check(kind) for check in checks)


class JsonRecords:
    """Makes a JSON object of each row.

    Args:
        key: the column of the keys, if there is one.
        topic: the column of the topics, if there is one.
    """

    def __init__(self, key: str | None, topic: str | None = None) -> None:
        self._key = key
        self._topic = topic
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def records(self, batch: pa.RecordBatch) -> Iterator[KafkaRecord]:
        """Yield a record for each row.

        Raises:
            RejectedRowsError: a value has no JSON.
        """
        fields = [field.with_type(_in_utc(field.type)) for field in batch.schema]
        batch = batch.cast(pa.schema(fields))
        _check_batch(batch)
        names = batch.schema.names
        columns = [_values(name, column) for name, column in zip(names, batch.columns, strict=True)]
        key, topic = (
            None if name is None else names.index(name) for name in (self._key, self._topic)
        )
        encode = self._encode
        for row in zip(*columns, strict=True):
            yield KafkaRecord(
                encode(dict(zip(names, row, strict=True))),
                None if key is None else _key(row[key]),
                topic=None if topic is None else row[topic],
            )


class RawRecords:
    """Makes records of rows that have their parts."""

    def records(self, batch: pa.RecordBatch) -> Iterator[KafkaRecord]:
        """Yield a record for each row.

        Raises:
            RejectedRowsError: a value cannot be written.
        """
        parts: dict[str, Sequence[Any]] = {name: [None] * batch.num_rows for name in RAW_COLUMNS}
        _check_batch(batch)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column
            if pa.types.is_timestamp(column.type):
                in_ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
                values = in_ms.cast(pa.int64())
            if name in _LEAST:
                _check_least(name, column, values)
            parts[name] = values.to_pylist()
        for row in zip(*(parts[name] for name in RAW_COLUMNS), strict=True):
            key, value, headers, partition, timestamp, topic = row
            yield KafkaRecord(
                _bytes(value),
                _bytes(key),
                [_header(one) for one in headers or ()],
                partition,
                timestamp,
                topic,
            )


def _header(header: Mapping[str, Any] | None) -> tuple[str, bytes | None]:
    name = None if header is None else header["key"]
    if header is None or name is None:
        raise RejectedRowsError("A header of a record has no key.", remedy=_REMEDY)
    if "\0" in name:
        raise RejectedRowsError(
            f"The key of a header is {shown(name)}: librdkafka cuts it at the NUL character.",
            remedy=_REMEDY,
        )
    return name, _bytes(header["value"])


def _check_least(name: str, column: pa.Array, numbers: pa.Array) -> None:
    """Refuse numbers that librdkafka takes for something else: any partition, or now.

    Args:
        name: of the column.
        column: as the rows have it.
        numbers: as Kafka has them.
    """
    least, why = _LEAST[name]
    bad = pc.less(numbers, least).fill_null(False)
    if pc.any(bad).as_py():
        row = pc.index(bad, pa.scalar(True)).as_py()
        number, is_time = column.cast(pa.int64())[row].as_py(), pa.types.is_timestamp(column.type)
        what = shown_time(number, column.type) if is_time else shown(number)
        raise RejectedRowsError(
            f"{name} is {what} in row {row + 1} of a batch: {why}.", remedy=_REMEDY
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _key(value: Any) -> bytes | None:
    return _bytes(str(value) if isinstance(value, int) else value)


def _check_batch(batch: pa.RecordBatch) -> None:
    try:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _check_values(name, column)
    except RefusedValueError as error:
        raise RejectedRowsError(f"{error}.", remedy=error.remedy) from None


def _check_values(name: str, column: pa.Array) -> None:
    """Refuse values that would be changed: text that is no UTF-8, years without four digits, and
    numbers that JSON does not have.
    """
    for times in times_inside(column):
        check_years(name, times, "JSON", rows=times is column)
    if _is(column.type, (*_TEXT, pa.types.is_nested)):
        check_utf8(name, column)
    for numbers in _floats_inside(column):
        bad = pc.invert(pc.is_finite(numbers)).fill_null(False)
        if pc.any(bad).as_py():
            row = pc.index(bad, pa.scalar(True)).as_py()
            where = f" in row {row + 1} of a batch" if numbers is column else ""
            raise RefusedValueError(
                f"{name} is {numbers[row].as_py()}{where}, which JSON cannot store", _REMEDY
            )


def _floats_inside(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_floating(kind):
        yield array
    elif pa.types.is_map(kind):
        yield from _floats_inside(array.items)
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _floats_inside(child)
    elif pa.types.is_nested(kind):
        yield from _floats_inside(array.flatten())


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Return a type of Python's times, with moments in UTC: pyarrow does not know Java's zones."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    return inside(kind, _in_utc)


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    """Return the values of a column as what JSON is made of."""
    values = column.to_pylist()
    change = _changed(column.type)
    try:
        return values if change is None else [_or_none(change, one) for one in values]
    except RefusedValueError as error:
        raise RejectedRowsError(f"{name}: {error}.", remedy=error.remedy) from None


def _changed(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes JSON of a value that pyarrow gives; None where nothing has to be done."""
    if pa.types.is_map(kind):
        item = _changed(kind.item_type) or _same
        return lambda pairs: _object(item, pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _changed(kind.value_type)
        return element and (lambda values: [_or_none(element, one) for one in values])
    if pa.types.is_struct(kind):
        found = {one.name: change for one in kind if (change := _changed(one.type))}
        return (
            (
                lambda value: (
                    value | {name: _or_none(change, value[name]) for name, change in found.items()}
                )
            )
            if found
            else None
        )
    return None


def _object(item: Callable[[Any], Any], pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    """Return the entries of a map. Readers of JSON keep one of those with the same key."""
    found = {key: _or_none(item, value) for key, value in pairs}
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise RefusedValueError(f"a map has the key {shown(double)} twice", _REMEDY)
    return found


def _same(value: Any) -> Any:
    return value


def _or_none(change: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else change(value)


def records_of(options: KafkaSinkOptions) -> JsonRecords | RawRecords:
    """Return what makes records of rows."""
    if options.format is RecordFormat.RAW:
        return RawRecords()
    return JsonRecords(options.key, options.topic_column)

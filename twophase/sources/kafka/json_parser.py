"""Parses JSON values into columns; if some do not fit, sorts them from those that do.

pyarrow parses values, joined by newlines, as a stream of objects, regardless of line ends. Four
checks together ensure that each value is exactly one row:

    1. no value contains a NUL byte: the parser would take it for the end of the input
    2. each value begins with { and ends with }
    3. the parser refuses a raw newline inside a string, so none spans two values, and refuses a {
       right after a } inside any object or list, so between two values it is at the top level: each
       value gives at least one row
    4. there are as many rows as values

Sorting costs work in proportion to the number of values, however many of them are bad:

    1. what check 1 or 2 refuses is bad
    2. the rest is parsed, with timestamps as text and room in decimals; while the parser refuses
       it, the values that its error points to are judged one by one (`json_records`)
    3. rows that have no date where one belongs, a number that overflows a FLOAT, more digits than a
       DECIMAL has, or null against the schema, are bad
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from twophase.sources.kafka.json_records import (
    NUL,
    TOO_FINE,
    RecordCheck,
    causes_of,
    framing_fault,
    is_framed,
    is_too_fine,
)
from twophase.sources.kafka.json_types import (
    UnfitError,
    convert,
    has,
    has_infinity,
    read_type,
    unfit_rows,
)

UNFIT = (UnfitError, pa.ArrowInvalid)
TOMBSTONE = UnfitError("it has no value (a tombstone)")

VAGUE = UnfitError("it does not fit the schema")

Columns = dict[str, pa.Array]
Faults = dict[int, Exception]

_OBJECT = ({ord("{")}, {ord("}")})
_first, _last = itemgetter(0), itemgetter(-1)


class JsonParser:
    """Parses values into the columns of a schema.

    Args:
        payload: the columns that come from the value, with the types that Spark expects.
        skipped: the number of bytes that the values have lost, for errors.

    Attributes:
        expected: the causes of faults that the last values had.

    Raises:
        ConfigError: a column has a type that cannot be read.
    """

    def __init__(self, payload: Sequence[pa.Field], skipped: int = 0) -> None:
        self._payload = {field.name: field for field in payload}
        self._unfit: set[str] = set()  # the columns that the last rows did not fit
        self._skipped = skipped
        self._strict, self._lenient = (
            pj.ParseOptions(
                explicit_schema=pa.schema(
                    [(f.name, read_type(f.name, f.type, lenient=lenient)) for f in payload]
                ),
                unexpected_field_behavior="ignore",
            )
            for lenient in (False, True)
        )
        self._decimals = [has(field.type, pa.types.is_decimal) for field in payload]
        self.expected: list[str] = []

    @cached_property
    def _check(self) -> RecordCheck:
        return RecordCheck(pa.struct(list(self._payload.values())))

    def parse(self, data: bytes, rows: int) -> Columns:
        """Parse joined values, all of which have to fit.

        Raises:
            UnfitError, ArrowInvalid: some value does not fit.
        """
        arrays = self._read(data, rows, self._strict)
        self._check_infinity(arrays)
        return self._convert(arrays)

    def sort(
        self, values: Sequence[bytes | None], faults: Faults, refusal: Exception | None = None
    ) -> tuple[list[int], Columns]:
        """Parse the values that fit.

        Args:
            values: None is a tombstone.
            faults: why a value is bad, by its number; those that it has are left out, and the
                others are added. The texts of all but the first may be vague. No tombstones.
            refusal: what `parse` raised for these values.

        Returns:
            The numbers of the values that fit, and their columns.
        """
        records = self._framed(values, faults)
        tried = self.expected if refusal is None else list(causes_of(refusal)[:1])
        self.expected = []
        for cause in tried:
            self._expect(self._judge(cause, records, faults))
        while records:
            try:
                return self._rows(records, faults, tried)
            except UNFIT as error:
                causes = [c for c in (*causes_of(error), "alone") if c not in tried]
                if not causes:
                    raise
            tried = [*tried, causes[0]]
            self._expect(self._judge(causes[0], records, faults))
        return [], {name: pa.nulls(0, field.type) for name, field in self._payload.items()}

    def _framed(self, values: Sequence[bytes | None], faults: Faults) -> dict[int, bytes]:
        """Return the values that begin with { and end with }; the others are added to `faults`."""
        odd = [n for n, v in enumerate(values) if not v or v[0] != 123 or v[-1] != 125]
        records: dict[int, Any] = dict(enumerate(values))
        for number in faults:
            del records[number]
        fault: Exception | None = None
        for number in odd:
            value = values[number]
            if number in faults or (value and is_framed(value)):
                continue
            del records[number]
            if value is None:
                faults[number] = TOMBSTONE
            else:
                faults[number] = fault = VAGUE if fault else framing_fault(value, self._skipped)
        return records

    def _expect(self, causes: list[str]) -> None:
        self.expected += [cause for cause in causes if cause not in self.expected]

    def _judge(self, cause: str, records: dict[int, bytes], faults: Faults) -> list[str]:
        """Move what is bad, of the records that `cause` points to, to `faults`.

        Returns:
            The causes that point to them, the cheapest first.
        """
        if cause == "alone":
            found = dict(self._refused(records, list(records)))
            faults.update(found)
            for number in found:
                del records[number]
            return []  # not worth a look before pyarrow's
        suspects = list(self._check.suspects(cause, records))
        fault: Exception | None = None
        rewritten = 0
        for number, judged in suspects:
            try:
                fitting = None if judged else self._check.judge(cause, records[number])
            except RecursionError:
                if cause != "type":  # left to pyarrow
                    continue
                fitting = None  # it would have to be rewritten
            if fitting is None:
                faults[number] = fault = VAGUE if fault else self._check.reason(records[number])
                del records[number]
            elif fitting is not records[number]:
                records[number] = fitting
                rewritten += 1
        if cause != "type" or not self._check.finds_texts or not rewritten:
            return [cause] if suspects else []
        return ["text", "type"] if rewritten < len(suspects) else ["text"]

    def _refused(
        self, records: dict[int, bytes], numbers: list[int]
    ) -> Iterator[tuple[int, Exception]]:
        """Yield the records that pyarrow refuses though each was judged to fit, by halves."""
        try:
            self._rows({number: records[number] for number in numbers}, {}, ("type", TOO_FINE))
        except UNFIT as error:
            if len(numbers) == 1:
                yield numbers[0], error
                return
            middle = len(numbers) // 2
            yield from self._refused(records, numbers[:middle])
            yield from self._refused(records, numbers[middle:])

    def _rows(
        self, records: dict[int, bytes], faults: Faults, tried: Collection[str]
    ) -> tuple[list[int], Columns]:
        numbers, data = list(records), _joined(records.values())
        arrays = self._read(data, len(records), self._lenient, judged=TOO_FINE in tried)
        if "type" not in tried:
            self._check_infinity(arrays)
        columns, unfit = self._convert_fitting(arrays)
        bad = [numbers[row] for row in unfit]
        if bad:
            faults |= dict.fromkeys(bad, VAGUE)
            faults[bad[0]] = self._reason(records[bad[0]])
            numbers = [number for number in numbers if number not in faults]
        return numbers, columns

    def _convert_fitting(self, arrays: list[pa.Array]) -> tuple[Columns, list[int]]:
        """Return the columns of the rows that fit, and the numbers of the other rows."""
        columns: Columns = dict(zip(self._payload, arrays, strict=True))
        unfit: Columns = {}
        for name, array in columns.items():
            if name not in self._unfit:
                try:
                    columns[name] = convert(name, array, self._payload[name])
                    continue
                except UnfitError:
                    pass
            unfit[name] = unfit_rows(array, self._payload[name])
        self._unfit = {name for name, rows in unfit.items() if rows.true_count}
        bad: list[int] = []
        if self._unfit:
            found = reduce(pc.or_, unfit.values())
            bad = pc.indices_nonzero(found).to_pylist()
            keep = pc.invert(found)
            columns = {name: array.filter(keep) for name, array in columns.items()}
        return columns | {
            name: convert(name, columns[name], self._payload[name]) for name in unfit
        }, bad

    def _reason(self, text: bytes) -> Exception:
        try:
            self._convert(self._read(_joined([text]), 1, self._lenient, judged=True))
        except UNFIT as error:
            return error
        raise AssertionError("a value that does not fit among others fits alone")

    def _read(
        self, data: bytes, rows: int, options: pj.ParseOptions, *, judged: bool = False
    ) -> list[pa.Array]:
        # one block: pyarrow would not split a larger input between records
        settings = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        if b"\0" in data:
            raise UnfitError(NUL)
        if not judged and any(self._decimals) and is_too_fine(data):
            raise UnfitError(TOO_FINE)
        table = pj.read_json(pa.BufferReader(data), settings, options)
        if table.num_rows != rows:
            raise UnfitError("more than one JSON object")
        arrays = [column.chunk(0) for column in table.columns]
        text = not data.isascii()
        for array, decimals in zip(arrays, self._decimals, strict=True):
            if text or decimals:
                array.validate(full=True)  # bytes that are not UTF-8; digits beyond the precision
        return arrays

    def _check_infinity(self, arrays: list[pa.Array]) -> None:
        """Raise UnfitError if there is one: pyarrow reads an integer of 400 digits as that."""
        if any(map(has_infinity, arrays)):
            raise UnfitError("a number is too big for DOUBLE")

    def _convert(self, arrays: list[pa.Array]) -> Columns:
        return {
            name: convert(name, array, field)
            for (name, field), array in zip(self._payload.items(), arrays, strict=True)
        }


def join(values: Sequence[bytes | None]) -> bytes | None:
    """Join values for the parser; None if one of them fails check 1 or 2."""
    try:
        data = _joined(values)  # type: ignore[arg-type]
        ends = set(map(_first, values)), set(map(_last, values))  # type: ignore[arg-type]
    except (TypeError, IndexError):  # a tombstone; an empty value
        return None
    fits = ends == _OBJECT or all(map(is_framed, values))  # type: ignore[arg-type]
    return data if fits and b"\0" not in data else None


def _joined(values: Iterable[bytes]) -> bytes:
    return b"\n".join([*values, b""])

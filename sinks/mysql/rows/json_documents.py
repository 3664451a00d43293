"""Documents that a JSON column of MySQL would store as another document.

MySQL parses a document, and keeps what it has understood: of a key that comes twice the last one,
integers beyond 64 bits and all other numbers as doubles, which it may even miss by the last digit;
of half a character that is written as two it keeps bytes that are no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twophase.internals.redaction import shown
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.encoders import converted
from twophase.sinks.mysql.rows.refused_values import rejected
from twophase.sinks.mysql.rows.types import ColumnPlan

# Every number of at most 15 digits without an exponent is stored exactly.
_LONG_NUMBER = "[0-9.]{16}|[0-9][eE]"
_IS_LONG = re.compile(_LONG_NUMBER).search
_NUMBERS_AT_ONCE, _LONGEST_NUMBER = 500, 400
_OR_ELSE = "make it a TEXT column, or round"
_HALF = "\\ud"
_UNREADABLE = (ValueError, ArithmeticError, RecursionError)


class _RepeatedKeyError(Exception):
    pass


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


# As floats: an integer may have more digits than Python converts, and only keys matter here.
_KEYS = json.JSONDecoder(object_pairs_hook=_once, parse_int=float)
_VALUES = json.JSONDecoder(parse_int=Decimal, parse_float=Decimal)


def value_of(document: str) -> Any:
    """Return what a document says, with numbers as exact as they are written.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _VALUES.decode(document)
    except (ArithmeticError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def check_documents(
    session: Session, batches: Sequence[pa.RecordBatch], plans: Sequence[ColumnPlan]
) -> None:
    """Refuse rows with a document that the server would change.

    What is not JSON at all is left to the server, which refuses it.

    Raises:
        RejectedRowsError: there is one; names the first.
        pymysql.Error: the server did not answer, or found a document invalid.
    """
    for plan in (plan for plan in plans if plan.encoding is Encoding.JSON):
        for batch in batches:
            values = converted(batch.column(plan.field), plan)
            _check_keys(values, plan)
            _check_numbers(session, values, plan)


def _check_keys(values: pa.Array, plan: ColumnPlan) -> None:
    for row, document in enumerate(values.to_pylist()):
        try:
            if document is None:
                continue
            found = _KEYS.decode(document)
            if _HALF in document.lower():
                json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            why = "it has one half of a character that is written as two (a lone surrogate)"
            raise rejected(values, row, plan, why) from None
        except _RepeatedKeyError as error:
            why = f"MySQL would keep one of the values of its key {shown(error.args[0])}"
            raise rejected(values, row, plan, why) from None
        except _UNREADABLE:
            continue


def _check_numbers(session: Session, values: pa.Array, plan: ColumnPlan) -> None:
    """Ask the server what it makes of numbers that it may not store exactly.

    Of them alone: a whole document may be longer than a statement (`max_allowed_packet`).
    """
    numbers = _long_numbers(values)
    while asked := list(islice(numbers, _NUMBERS_AT_ONCE)):
        for row, number in asked:
            if len(number) > _LONGEST_NUMBER:
                why = f"a number in it has {len(number)} characters; {_OR_ELSE}"
                raise rejected(values, row, plan, why)
        texts = [number for _, number in asked]
        [answers] = session.rows(f"SELECT {', '.join(['CAST(%s AS JSON)'] * len(texts))}", texts)
        for (row, number), answer in zip(asked, answers, strict=True):
            if not _is_same(number, answer):
                why = f"MySQL would store {shown(answer)} for {shown(number)}; {_OR_ELSE}"
                raise rejected(values, row, plan, why)


def _long_numbers(values: pa.Array) -> Iterator[tuple[int, str]]:
    """Yield each long number with its row."""
    found = pc.indices_nonzero(pc.match_substring_regex(values, _LONG_NUMBER).fill_null(False))
    for row in found.to_pylist():
        numbers: list[str] = []
        with suppress(*_UNREADABLE):
            json.JSONDecoder(parse_int=numbers.append, parse_float=numbers.append).decode(
                values[row].as_py()
            )
        yield from ((row, number) for number in numbers if _IS_LONG(number))


def _is_same(number: str, answer: str) -> bool:
    try:
        return bool(value_of(number) == value_of(answer))
    except ValueError:
        return False

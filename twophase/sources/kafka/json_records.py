"""JSON records one by one: which of them make pyarrow refuse a block, and why.

pyarrow refuses a block as a whole, and seldom says for which record. Then msgspec, which validates
a record against the schema in a fraction of the time that pyarrow takes to parse it, finds the
suspects, and each suspect is judged: it fits as it is, it fits once it is rewritten, or it is bad.
What msgspec lets pass is still pyarrow's to accept.
"""

from __future__ import annotations

import decimal
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from twophase.sources.kafka.json_types import TO_DATE, TO_TIMESTAMP, UnfitError, has, is_time

_BLANKS = b" \t\r\n"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUOTED = rf"\A{_NUMBER}\Z"
_DIGITS = re.compile(_NUMBER.encode()).fullmatch
_BACKSLASH = ord("\\")  # Python looks for a number in bytes in a fraction of the time
_TEXT_OR_NULL = b'"n'
_TWICE = re.compile(r"Column\((/.*)\) was specified twice")
_BIG = re.compile(rb"[eE]\+?\d{3}|\d{300}")
# pyarrow takes NaN and Infinity for numbers, msgspec does not: 1e38 fits where they fit
_BARE_CONSTANT = re.compile(rb"(?<![\w.+-])-?(?:NaN|Inf(?:inity)?)(?![\w.+-])")
_CONSTANT = re.compile(rb'("(?:[^"\\]|\\.)*")|%b' % _BARE_CONSTANT.pattern, re.DOTALL)
_CONSTANTS = (b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf")
_INSTEAD = {name: b"1.000000000%de38" % number for number, name in enumerate(_CONSTANTS)}
_AS_GIVEN = {instead: name for name, instead in _INSTEAD.items()}
_INSTEAD_OF = re.compile(
    rb'("(?:[^"\\]|\\.)*")|%b' % b"|".join(map(re.escape, _AS_GIVEN)), re.DOTALL
)
# what msgspec says if no rewriting can help: only a STRING or a date may take something else
_SURELY = re.compile(r"Expected `(?!str(?!` matching))").match
NUL = "its value holds a NUL byte"
TOO_FINE = "a number has too many decimals"
_CONFLUENT = 5
# by the first byte: who writes it before JSON, and the bytes before that
_REGISTRIES = {
    0: (("Confluent's", _CONFLUENT), ("Apicurio's", 9)),
    3: (("AWS Glue's", 18),),
}
_EXPONENTS = (b"e-", b"E-")
_EXPONENT = re.compile(rb'([0-9]+)(?:["\s,}\]]|\Z)')
_MANTISSA = re.compile(rb'(?:^|[:,\["\s])[-+]?[0-9]*\.?([0-9]*)\Z')
_MANTISSA_BYTES = 200  # a longer one counts as too fine
_MANY_BYTES = 10_000
_EXACT_DIGITS = 15  # of a float
_MOST_DECIMALS = 38  # beyond a little more, pyarrow reads past the end of a table, and may die
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")
_EMPTY, _NO_OBJECT = map(UnfitError, ("its value is empty", "its value is not one JSON object"))
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError)

Text = bytes | msgspec.Raw
Render = Callable[[Text], Text]
_DecimalCheck = Callable[[pa.Decimal128Type], Callable[[Text], object]]


def is_too_fine(data: bytes) -> bool:
    """Return whether a number, if it is that of a DECIMAL, must not get to pyarrow.

    By its exponent it has more decimals than any type, as 1e-40 has. It may be text, or of another
    column, or have an escape that could hide one.

    Args:
        data: values of records.
    """
    if _BACKSLASH in data and _ESCAPED_ASCII.search(data):
        return True
    for mark in _EXPONENTS:
        at = data.find(mark) if _may_hold(data, mark) else -1
        while at >= 0:
            if (exponent := _EXPONENT.match(data, at + 2)) is not None:
                mantissa = _MANTISSA.search(data[max(at - _MANTISSA_BYTES, 0) : at])
                digits = exponent[1].lstrip(b"0")
                is_cut = at > _MANTISSA_BYTES == len(mantissa[0]) if mantissa else False
                if mantissa is not None and (
                    is_cut
                    or len(digits) > 3
                    or len(mantissa[1]) + int(digits or b"0") > _MOST_DECIMALS
                ):
                    return True
            at = data.find(mark, at + 2)
    return False


def is_framed(value: bytes) -> bool:
    """Return whether a value begins with { and ends with }, but for blanks."""
    ends = value.strip(_BLANKS)
    return ends.startswith(b"{") and ends.endswith(b"}")


def framing_fault(value: bytes, skipped: int = 0) -> UnfitError:
    """Return why a value is not framed.

    Args:
        value: what is left of it.
        skipped: the number of bytes before it.
    """
    if not value:
        return _EMPTY
    if skipped:
        return UnfitError(
            f"its value is not one JSON object after its first {skipped} bytes",
            remedy="leave json.skip_bytes out, and the message names what a registry put there.",
        )
    if value[0] in _REGISTRIES and len(value) > _CONFLUENT:
        return _registry_fault(value)
    return _NO_OBJECT


def _registry_fault(value: bytes) -> UnfitError:
    serializers = _REGISTRIES[value[0]]
    found = [(maker, size) for maker, size in serializers if is_framed(value[size:])]
    for maker, size in found:
        number = "" if value[0] else f", here {int.from_bytes(value[1:size])}"
        return UnfitError(
            f"its value begins with the bytes {value[:size].hex(' ')}, by which serializers of a "
            f"schema registry ({maker}) name the schema{number}",
            remedy=f"set `json.skip_bytes={size}`.",
        )
    makers = " or ".join(maker for maker, _ in serializers)
    return UnfitError(
        f"its value begins with the bytes {value[:_CONFLUENT].hex(' ')}, as serializers of a "
        f"schema registry ({makers}) give it, and no JSON follows",
        remedy="give the producer a serializer for JSON, without compression: Avro and Protobuf "
        "are not read; or read the bytes with `value.format=raw`.",
    )


def _may_hold(data: bytes, pair: bytes) -> bool:
    """Return whether two bytes are in many, at a tenth of what `in` costs; True for few."""
    if len(data) < _MANY_BYTES:
        return True
    wanted = np.frombuffer(pair, np.uint16)
    halves = (np.frombuffer(data, np.uint16, (len(data) - at) // 2, at) for at in (0, 1))
    return any((half == wanted).any() for half in halves)


class RecordCheck:
    """Finds and judges the records for which pyarrow refuses a block.

    Args:
        target: the columns that come from the value, with the types that Spark expects.

    Attributes:
        finds_texts: whether the cause "text" finds every STRING that is not a JSON string.
    """

    def __init__(self, target: pa.StructType) -> None:
        self._target = target
        self._types = _decode(_screen_type(target, str))
        self._types_but_text = _decode(_screen_type(target, msgspec.Raw))
        self._digits = _decode(_digits_type(target, _usual_decimal))
        self._exact_digits = _decode(_digits_type(target, _plain_decimal))
        self._coarse = _decode(_digits_type(target, _coarse_decimal))
        self._rewrite = _renderer("", target, explain=False)
        self._explain = _renderer("", target, explain=True)
        self._keys = {name: msgspec.json.encode(name) for name in names_in(target)}
        # In an object without others and without escapes, what lies between two strings has : or ,
        flat = not any(":" in name or "," in name for name in target.names)
        names = b"|".join(map(re.escape, map(self._keys.__getitem__, target.names)))
        self._flat = re.compile(b"(%s)[ \t\r\n]*:" % names) if flat else None
        self._texts = [
            (f"f{i}", self._keys[child.name])
            for i, child in enumerate(target)
            if pa.types.is_string(child.type)
        ]
        deeper = any(
            has(t, pa.types.is_string)
            for t in (c.type for c in target if not pa.types.is_string(c.type))
        )
        self.finds_texts = bool(self._texts) and not deeper
        names = b"|".join(re.escape(key) for _, key in self._texts)
        self._raw_texts = re.compile(b'(?:%s)[ \t\r\n]*:[ \t\r\n]*[^" \t\r\nn]' % names).finditer
        plain = all(name.isascii() and "/" not in name for name in self._keys)
        self._escape = re.compile(rb"\\u00[2-7]" if plain else rb"\\[u/]").search

    def suspects(self, cause: str, records: Mapping[int, bytes]) -> Iterator[tuple[int, bool]]:
        """Yield the numbers of the records that a cause points to, and whether each is surely bad.

        An exception of msgspec's costs as much as several good records.
        """
        if cause == "type":
            yield from _refused(self._types, records)
        elif cause == "text":
            yield from zip(self._with_raw_text(records), itertools.repeat(False))
        elif cause == "digits":
            yield from _refused(self._digits, records)
        elif cause == TOO_FINE:
            fine = {i: text for i, text in records.items() if is_too_fine(text)}
            yield from _refused(self._coarse, fine)
        elif cause == NUL:
            yield from ((i, True) for i, text in records.items() if 0 in text)
        elif cause == "big":
            yield from ((i, False) for i, text in records.items() if _BIG.search(text))
        else:
            keys = [key for name, key in self._keys.items() if cause.endswith(f"/{name}")]
            found = {i for key in keys for i, text in records.items() if text.count(key) > 1}
            if any(_BACKSLASH in text for text in records.values()):  # a name with escapes
                found |= {i for i, text in records.items() if self._escape(text)}
            yield from zip(sorted(found), itertools.repeat(False))

    def judge(self, cause: str, text: bytes) -> bytes | None:
        """Return a text of a record that pyarrow can read, as far as the cause goes.

        A STRING that is not a JSON string is its raw text, and a number for a DECIMAL that pyarrow
        cannot read is written by the scale. Where one is rewritten, fields that the schema does
        not have are left out.

        Returns:
            None if the record does not fit; `reason` says why.

        Raises:
            RecursionError: it is nested too deeply to be judged.
        """
        if cause[0] == "/":
            return None if self._repeats(text) else text
        try:
            if cause in ("digits", TOO_FINE):
                rewritten = bytes(self._explain(text))
                repeats = self._may_repeat(text, self._keys.values()) and self._repeats(text)
                return None if repeats else rewritten
            found = self._types_but_text(text)
            if cause == "text" and (quick := self._with_texts(text, found)) is not None:
                return quick
            repeats = self._may_repeat(text, self._keys.values())
            rewritten = bytes(self._rewrite(text))
        except (msgspec.ValidationError, UnicodeDecodeError, UnfitError):
            return None
        except msgspec.DecodeError:
            return text if self._fits_with_constants(cause, text) else None
        return None if repeats and self._repeats(text) else rewritten

    def reason(self, text: bytes) -> UnfitError:
        """Return why a record does not fit that was judged so."""
        if b"\0" in text:
            return UnfitError(NUL)
        try:
            if twice := repeated_in(text, self._target):
                return UnfitError("is given twice", twice)
            self._explain(plain := without_constants(text))
            if plain != text:
                return UnfitError("beside NaN or Infinity each STRING has to be in quotes")
        except UnfitError as error:
            given = _AS_GIVEN.get(error.value) if isinstance(error.value, bytes) else None
            if given is not None:
                return UnfitError(error.reason, error.subject, given, error.remedy)
            return error
        except msgspec.DecodeError as error:
            return UnfitError(f"its value is not well-formed JSON ({error})")
        except RecursionError:
            pass
        return UnfitError("it does not fit the schema")

    def _fits_with_constants(self, cause: str, text: bytes) -> bool:
        """Return whether a record with NaN or Infinity fits, without being rewritten."""
        plain = without_constants(text)
        check = {"digits": self._exact_digits, TOO_FINE: self._coarse}.get(cause, self._types)
        try:
            check(plain)
            return plain != text and not (cause == "big" and _overflows(plain))
        except ValueError:  # all that msgspec and json raise
            return False

    def _may_repeat(self, text: bytes, keys: Iterable[bytes]) -> bool:
        for key in keys:
            if text.count(key) > 1:
                return True
        return _BACKSLASH in text and self._escape(text) is not None  # a name with escapes

    def _with_texts(self, text: bytes, found: Any) -> bytes | None:
        """Return a record with text for STRING columns, of which none is deeper.

        Args:
            found: its columns.

        Returns:
            None if that takes `_rewrite`.
        """
        if _BACKSLASH in text or not text.isascii():
            return None
        for field, key in self._texts:
            raw = getattr(found, field)
            if raw is None or (value := bytes(raw))[0] in _TEXT_OR_NULL:
                continue
            before, _, after = text.partition(key)
            if key in after:
                return None
            blank, _, after = after.partition(value)
            text = b"".join((before, key, blank, _encode(value.decode()), after))
        return text

    def _with_raw_text(self, records: Mapping[int, bytes]) -> list[int]:
        """Return the records of which a STRING may be something else; one search for all."""
        texts = records.values()
        starts = [found.start() for found in self._raw_texts(b"\n".join(texts))]
        if not starts:
            return []
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        numbers = np.fromiter(records, np.int64, len(records))
        found: list[int] = numbers[np.unique(np.searchsorted(ends, starts, "right"))].tolist()
        return found

    def _repeats(self, text: bytes) -> bool:
        """Return whether a field of the schema is given twice."""
        if self._flat and text.count(b"{") == 1 and _BACKSLASH not in text:
            names = self._flat.findall(text)
            return len(set(names)) < len(names)
        return repeated_in(text, self._target) != ""


def causes_of(error: Exception) -> tuple[str, ...]:
    """Return what an error of pyarrow's may point to, the cheapest to look for first.

    NUL, TOO_FINE, "/" and the path of a field that is given twice, "type" and all other faults,
    "digits" of a decimal, more than any type has, "big" numbers in fields that the schema does not
    have.
    """
    text = str(error)
    twice = _TWICE.search(text)
    if twice:
        return (twice[1], "type")
    if text in (NUL, TOO_FINE):
        return (text, "type")
    return ("type", "digits") if "decimal" in text.lower() else ("type", "big")


def names_in(target: pa.DataType) -> Iterator[str]:
    """Yield the names of all fields in a type."""
    if pa.types.is_list(target):
        yield from names_in(target.value_type)
    elif pa.types.is_map(target):
        yield from names_in(target.item_type)
    elif pa.types.is_struct(target):
        for child in target:
            yield child.name
            yield from names_in(child.type)


def repeated_in(text: bytes, target: pa.DataType, path: str = "") -> str:
    """Return a field of a type, or a key of a MAP, that a text gives twice; "" if there is none,
    or the text is not JSON.
    """
    try:
        found = _PAIRS.decode(text.decode(errors="surrogateescape"))
    except json.JSONDecodeError:
        return ""
    return next(_repeated(path, found, target), "")


def without_constants(text: bytes) -> bytes:
    """Return a text with numbers in place of NaN and Infinity, which msgspec does not take."""
    if b'\\"' in text:
        return _CONSTANT.sub(lambda found: found[1] or _INSTEAD[found[0]], text)

    def number(found: re.Match[bytes]) -> bytes:
        is_quoted = text.count(b'"', 0, found.start()) % 2
        return found[0] if is_quoted else _INSTEAD[found[0]]

    return _BARE_CONSTANT.sub(number, text)


def with_constants(text: bytes) -> bytes:
    """Return a text with NaN and Infinity again."""
    return _INSTEAD_OF.sub(lambda found: found[1] or _AS_GIVEN[found[0]], text)


def path_to(name: str, child: str) -> str:
    """Return how errors call a field within a column."""
    return f"{name}.{child}" if name else child


def list_renderer(name: str, each: Render) -> Render:
    """Return what renders the JSON of an array.

    Args:
        name: the column.
        each: renders one of its values.
    """
    decode = _decode(list[msgspec.Raw] | None)

    def render(text: Text) -> Text:
        try:
            items = decode(text)
        except msgspec.ValidationError:
            raise UnfitError("is not a JSON array", name, bytes(text)) from None
        return text if items is None else b"[" + b",".join(map(each, items)) + b"]"

    return render


def _refused(
    screen: Callable[[bytes], object], records: Mapping[int, bytes]
) -> Iterator[tuple[int, bool]]:
    for number, text in records.items():
        try:
            screen(text)
        except msgspec.ValidationError as error:
            yield number, _SURELY(str(error)) is not None
        except msgspec.DecodeError:
            yield number, not (text.count(b"NaN") or text.count(b"Inf"))
        except UnicodeDecodeError:
            yield number, True
        except RecursionError:  # left to pyarrow
            pass


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object, each as often as it is given."""


_encode = msgspec.json.Encoder().encode
_PAIRS = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str)


def _repeated(name: str, found: Any, target: pa.DataType) -> Iterator[str]:
    """Yield the fields of a schema that are given twice."""
    if pa.types.is_list(target) and type(found) is list:
        for item in found:
            yield from _repeated(f"{name}[]", item, target.value_type)
    elif pa.types.is_struct(target) and isinstance(found, _Pairs):
        given = [key for key, _ in found]
        for child in target:
            if given.count(child.name) > 1:
                yield path_to(name, child.name)
        for key, value in found:
            if isinstance(value, list) and key in target.names:
                yield from _repeated(path_to(name, key), value, target.field(key).type)
    elif pa.types.is_map(target) and isinstance(found, _Pairs):
        keys = Counter(key for key, _ in found)
        yield from (path_to(name, key) for key, times in keys.items() if times > 1)
        for key, value in found:
            yield from _repeated(path_to(name, key), value, target.item_type)


def _overflows(text: bytes) -> bool:
    found: list[float] = []

    def note(digits: str) -> None:
        found.append(float(digits))

    json.loads(text.decode(errors="surrogateescape"), parse_float=note, parse_int=note)
    return math.inf in map(abs, found)


def _screen_type(target: pa.DataType, text: Any) -> Any:
    """Return the type by which msgspec validates a value: all but the last digits of decimals.

    Args:
        target: the type in the schema.
        text: the type for STRING.
    """
    if pa.types.is_struct(target):
        return _struct_type([(child.name, _screen_type(child.type, text)) for child in target])
    if pa.types.is_list(target):
        return list[_screen_type(target.value_type, text)] | None  # type: ignore[misc]
    if pa.types.is_signed_integer(target):
        limit = 2 ** (target.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None
    if pa.types.is_boolean(target):
        return bool | None
    if pa.types.is_string(target):
        return text if text is msgspec.Raw else text | None
    if pa.types.is_decimal(target):  # pyarrow reads 1.50 and "1.50"
        limit = float(10 ** (target.precision - target.scale))
        within = msgspec.Meta(gt=-limit, lt=limit)
        if target.precision > _EXACT_DIGITS:  # the highest one that fits may be read as the limit
            within = msgspec.Meta(ge=-limit, le=limit)
        number = Annotated[float, within]
        return number | Annotated[str, msgspec.Meta(pattern=_QUOTED)] | None
    return (str if is_time(target) else float) | None


def _digits_type(target: pa.DataType, fits: _DecimalCheck) -> Any:
    """Return the type by which msgspec validates the digits of decimals, and nothing else."""
    if pa.types.is_list(target):
        return list[_digits_type(target.value_type, fits)] | None  # type: ignore[misc]
    if not pa.types.is_struct(target):
        return msgspec.Raw
    children = [child for child in target if has(child.type, pa.types.is_decimal)]
    checks = [(f"f{i}", _digits_check(child.type, fits)) for i, child in enumerate(children)]

    def check(self: msgspec.Struct) -> None:
        for field, fit in checks:
            value = getattr(self, field)
            if value is not None and not fit(value):
                raise ValueError(field)

    fields = [(child.name, _digits_type(child.type, fits)) for child in children]
    return _struct_type(fields, __post_init__=check)


def _digits_check(target: pa.DataType, fits: _DecimalCheck) -> Callable[[Any], object]:
    if pa.types.is_list(target):
        each = _digits_check(target.value_type, fits)
        return lambda items: all(item is None or each(item) for item in items)
    if pa.types.is_struct(target):  # it has checked itself
        return lambda _: True
    return fits(target)


def _usual_decimal(target: pa.Decimal128Type) -> Callable[[Text], object]:
    """Return a check without exponents and surplus zeros: what fails it may fit."""
    whole = target.precision - target.scale
    before = rf"[1-9]\d{{0,{whole - 1}}}|0" if whole else "0"
    after = rf"(?:\.\d{{1,{target.scale}}})?" if target.scale else ""
    return re.compile(rf"-?(?:{before}){after}|null".encode()).fullmatch


def _coarse_decimal(_: pa.Decimal128Type) -> Callable[[Text], object]:
    return lambda raw: not is_too_fine(bytes(raw))


def _plain_decimal(target: pa.Decimal128Type) -> Callable[[Text], bytes]:
    """Return what writes a number for pyarrow, by the scale; nothing if it does not fit."""
    context = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.InvalidOperation])
    limit = 10**target.precision

    def plain(raw: Text) -> bytes:
        text = bytes(raw)
        if text == b"null":
            return text
        if text[0] == 34:
            text = msgspec.json.decode(text, type=str).encode()
            if not _DIGITS(text):
                return b""
        try:
            digits = context.scaleb(context.create_decimal(text.decode()), target.scale)
            whole = int(context.to_integral_exact(digits))
        except ArithmeticError:
            return b""
        return f"{whole}e-{target.scale}".encode() if abs(whole) < limit else b""

    return plain


def _struct_type(fields: list[tuple[str, Any]], **namespace: Any) -> Any:
    """Return a type with fields f0, f1, ..., which are None if they are missing."""
    listed = [
        (f"f{i}", kind, msgspec.field(default=None, name=name))
        for i, (name, kind) in enumerate(fields)
    ]
    return msgspec.defstruct("Record", listed, namespace=namespace, gc=False) | None


def _decode(kind: Any) -> Callable[[Text], Any]:
    return msgspec.json.Decoder(kind).decode


def _renderer(name: str, target: pa.DataType, *, explain: bool) -> Render:
    """Return what renders the JSON of a value for pyarrow.

    Args:
        name: the column.
        target: its type in the schema.
        explain: raise UnfitError if the value does not fit. Otherwise it is known to fit, but for
            the text of a STRING.
    """
    if not explain and not has(target, pa.types.is_string):
        return _unchanged
    if pa.types.is_struct(target):
        return _struct_renderer(name, target, explain=explain)
    if pa.types.is_list(target):
        return list_renderer(name, _renderer(f"{name}[]", target.value_type, explain=explain))
    if pa.types.is_string(target):
        return partial(_render_string, name)
    if pa.types.is_decimal(target):
        return partial(_render_decimal, name, target, _plain_decimal(target))
    return partial(_check_leaf, name, target, _leaf_check(target))


def _unchanged(text: Text) -> Text:
    return text


def _struct_renderer(name: str, target: pa.StructType, *, explain: bool) -> Render:
    decode = _decode(_struct_type([(child.name, msgspec.Raw) for child in target]))
    keys = [msgspec.json.encode(child.name) + b":" for child in target]
    children = [
        _renderer(path_to(name, child.name), child.type, explain=explain) for child in target
    ]

    def render(text: Text) -> Text:
        try:
            found = decode(text)
        except msgspec.ValidationError:
            raise UnfitError("is not a JSON object", name, bytes(text)) from None
        if found is None:
            return text
        given = zip(keys, msgspec.structs.astuple(found), children, strict=True)
        parts = [key + each(raw) for key, raw, each in given if raw is not None]
        return b"{" + b",".join(parts) + b"}"

    return render


def _render_string(name: str, text: Text) -> bytes:
    value = bytes(text)
    try:
        decoded = value.decode()
    except UnicodeDecodeError:
        raise UnfitError("is not UTF-8", name, value) from None
    return value if value[0] == 34 or value == b"null" else msgspec.json.encode(decoded)


def _render_decimal(
    name: str, target: pa.DataType, plain: Callable[[Text], bytes], text: Text
) -> bytes:
    found = plain(text)
    if not found:
        raise UnfitError(f"does not fit {target}", name, bytes(text))
    return found


def _leaf_check(target: pa.DataType) -> Callable[[Text], bool]:
    decode = _decode(_screen_type(target, str))

    def fits(text: Text) -> bool:
        try:
            decode(text)
        except _REFUSED:
            return False
        return True

    return fits


def _check_leaf(name: str, target: pa.DataType, fits: Callable[[Text], bool], text: Text) -> Text:
    if not fits(text):
        value = bytes(text)
        remedy = _time_remedy(target, value) if is_time(target) else ""
        raise UnfitError(f"does not fit {target}", name, value, remedy)
    return text


def _time_remedy(target: pa.DataType, text: bytes) -> str:
    date = pa.types.is_date32(target)
    if text[0] == ord("["):
        maker = "make_date" if date else "make_timestamp"
        return f"give the column the type ARRAY<INT>, and convert it with {maker}."
    if text[0] in b"-0123456789":
        maker = "date_from_unix_date" if date else "timestamp_millis or timestamp_seconds"
        kind = "INT" if date else "BIGINT"
        return f"give the column the type {kind}, and convert it with {maker}."
    return TO_DATE if date else TO_TIMESTAMP

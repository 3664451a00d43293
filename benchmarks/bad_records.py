"""What records cost that do not fit: `python -m benchmarks.bad_records`.

Processor time of the JSON decoder for batches with some bad records of a kind, as a ratio to that
of batches without, measured in turns. Records have seven columns and about 170 bytes, and the
first two of them with `--narrow`.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import pyarrow as pa

from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("created", pa.timestamp("us", tz="UTC")),
    ]
)
_NARROW = pa.schema([_SCHEMA.field("id"), _SCHEMA.field("customer")])
_ROWS, _BLOCK = 20_000, 1000
_SHARES = (0.01, 0.5, 1.0)

Values = list[bytes | None]


def _record(number: int, **changed: Any) -> bytes:
    good = {
        "id": number,
        "customer": f"customer-{number % 1000}",
        "amount": number % 1000 + 0.25,
        "n": number % 7,
        "x": number / 8,
        "day": f"2024-05-{1 + number % 30:02}",
        "created": f"2024-05-01T10:00:{number % 60:02}.123456Z",
    }
    return json.dumps(good | changed).encode()


_KINDS: dict[str, Callable[[int], bytes | None]] = {
    "tombstone": lambda _: None,
    "empty": lambda _: b"",
    "not an object": lambda i: b"[" + _record(i) + b"]",
    "truncated": lambda i: _record(i)[:60] + b"}",
    "two objects": lambda i: _record(i) * 2,
    "NUL": lambda i: _record(i)[:-1] + b"\0}",
    "invalid UTF-8": lambda i: _record(i, customer="??").replace(b"??", b"\xff"),
    "wrong type": lambda i: _record(i, id="seven"),
    "integer too large": lambda i: _record(i, id=2**64 + i),
    "number too large": lambda i: _record(i, x=0).replace(b'"x": 0', b'"x": 1e400'),
    "1.5 for INT": lambda i: _record(i, n=1.5),
    "decimal digits": lambda i: _record(i, amount=1.555),
    "no decimal": lambda i: _record(i, amount="free"),
    "decimal too large": lambda i: _record(i, amount=0).replace(b'"amount": 0', b'"amount": 1e50'),
    "bad date": lambda i: _record(i, day="2023-02-29"),
    "bad timestamp": lambda i: _record(i, created="2024-05-01T10:00:00.1234567Z"),
    "milliseconds": lambda i: _record(i, created=1714557600000 + i),
    "NOT NULL missing": lambda i: _record(i).replace(b'"id"', b'"no"'),
    "field twice": lambda i: _record(i)[:-1] + b',"id":1}',
    "registry": lambda i: b"\0\0\0\0\7" + _record(i),
    "raw text (good)": lambda i: _record(i, customer={"a": [1, 2.5]}),
    "number for STRING (good)": lambda i: _record(i, customer=i),
    "zeros past the sixth digit (good)": lambda i: _record(
        i, created="2024-05-01T10:00:00.1230000Z"
    ),
}


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(list(_KINDS)))
@click.option("--rounds", default=10, show_default=True)
@click.option("--batches", default=8, show_default=True)
@click.option("--narrow", is_flag=True, help="Only the columns id and customer.")
def main(kinds: tuple[str, ...], rounds: int, batches: int, narrow: bool) -> None:
    """Print the ratio for each kind, or for those named, and share."""
    noise = random.Random(1)
    schema, cut = (_NARROW, _narrowed) if narrow else (_SCHEMA, lambda value: value)
    clean: list[Values] = [[cut(_record(i)) for i in range(_ROWS)] for _ in range(batches)]
    _decode(schema, clean)
    for kind in kinds or _KINDS:
        make, found = _KINDS[kind], []
        if cut(make(0)) == cut(_record(0)):  # of a column that is not there
            continue
        for share in _SHARES:
            bad = [
                [
                    cut(make(i)) if noise.random() < share else value
                    for i, value in enumerate(values)
                ]
                for values in clean
            ]
            ratios = [_decode(schema, bad) / _decode(schema, clean) for _ in range(rounds)]
            found.append(f"{statistics.median(ratios):6.2f} at {share:4.0%}")
        print(f"{kind:35}", *found, flush=True)


_OTHERS = re.compile(rb', "amount": .*?"created": [^,}]*')


def _narrowed(value: bytes | None) -> bytes | None:
    return value and _OTHERS.sub(b"", value)


def _decode(schema: pa.Schema, batches: list[Values]) -> float:
    """Return the seconds of processor time."""
    decoder = JsonDecoder(
        schema, OffsetRange("kafka", "orders", "id", 0, 0, _ROWS), OnBadRecord.DROP
    )
    begun = time.process_time()
    for values in batches:
        for at in range(0, _ROWS, _BLOCK):
            decoder.take(Block(values[at : at + _BLOCK], range(at, at + _BLOCK)))
        decoder.batch()
    return time.process_time() - begun


if __name__ == "__main__":
    main()

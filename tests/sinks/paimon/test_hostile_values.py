"""Values and names that are easily lost: pypaimon reads them back as they were, or they are refused
by name before anything is visible.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.hostile_values import VALUES
from harness.paimon_harness import PaimonHarness
from tests.sinks.paimon import others
from tests.sinks.paimon.others import committed
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError
from twophase.testing.harness import FIRST_SUBTASK, transaction_id

TEXTS = [*VALUES, "\U0010ffff" * 20, "\ud7ff\ue000" * 9, "x" * 100_000]
INF, NAN = math.inf, math.nan
TIMES = [
    datetime(1, 1, 1),
    datetime(1582, 10, 10, 1, 2, 3, 4),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
    None,
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, -1, 127, None]),
    "smallint": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1, None]),
    "float": (pa.float32(), [-0.0, 0.0, 1e-45, 3.4028234663852886e38, INF, -INF, NAN, None]),
    "double": (pa.float64(), [-0.0, 0.0, 5e-324, 1.7976931348623157e308, INF, -INF, NAN, None]),
    "one digit": (pa.decimal128(1, 1), [Decimal("-0.9"), Decimal("0.0"), None]),
    "long decimal": (pa.decimal128(18, 18), [Decimal(1 - 10**18).scaleb(-18), None]),
    "all digits": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), None]),
    "text": (pa.string(), TEXTS),
    "bytes": (pa.binary(), [b"", b"\0", bytes(range(256)), b"\xff" * 100_000, None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [one and one.replace(tzinfo=UTC) for one in TIMES]),
    "local": (pa.timestamp("us"), TIMES),
    "texts": (pa.list_(pa.string()), [[], [None], TEXTS, None]),
    "numbers": (pa.list_(pa.float64()), [[-0.0, NAN, None, INF], [], None]),
    "lists": (pa.list_(pa.list_(pa.int64())), [[], [[]], [None, [None, 2**63 - 1]], None]),
    "row": (
        pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
        [{"a": None, "b": None}, {"a": -1, "b": {"c": None}}, {"a": 0, "b": {"c": "\0"}}, None],
    ),
    "map": (
        pa.map_(pa.string(), pa.list_(pa.binary())),
        [[], [("", None), ("\0", [b"\0", None]), ("é", [])], None],
    ),
}


def columns(count: int) -> pa.RecordBatch:
    """Rows with every value of every column, beside one another."""
    arrays = {
        name: pa.array([values[row % len(values)] for row in range(count)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    return pa.RecordBatch.from_pydict({"id": pa.array(range(count), pa.int64()), **arrays})


def write(harness: PaimonHarness, batch: pa.RecordBatch) -> pa.Table:
    """Commit rows, and return what pypaimon reads."""
    sink = harness.opened()
    writer = sink.writers()(transaction_id(), FIRST_SUBTASK)
    writer.write(batch)
    piece = writer.pre_commit()
    assert piece is not None
    assert committed(sink, piece) == [Committed()]
    sink.close()
    return harness.read().sort_by("id") if "id" in batch.schema.names else harness.read()


def bits(column: pa.ChunkedArray) -> Any:
    """Values that are equal only if all of their bits are: of -0.0 and NaN too."""
    if pa.types.is_floating(column.type):
        whole = pa.int32() if pa.types.is_float32(column.type) else pa.int64()
        return column.combine_chunks().view(whole).to_pylist()
    return repr(column.to_pylist())


@pytest.mark.parametrize("statistics", ["none", "full"])
def test_every_value_of_every_type_reads_back_as_it_was(tmp_path: Path, statistics: str) -> None:
    batch = columns(len(TEXTS))
    harness = PaimonHarness(tmp_path / "lake", batch.schema)
    others.make_table(harness, options={"metadata.stats-mode": statistics})
    found = write(harness, batch)
    assert found.num_rows == batch.num_rows
    for name in batch.schema.names:
        given = pa.chunked_array([batch.column(name)])
        assert bits(found.column(name).cast(given.type)) == bits(given), name


PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": COLUMNS["boolean"],
    "tinyint": COLUMNS["tinyint"],
    "smallint": COLUMNS["smallint"],
    "int": COLUMNS["int"],
    "bigint": COLUMNS["bigint"],
    "string": (pa.string(), [text for text in VALUES if text is None or len(text) < 80]),
    "date": (pa.date32(), [*COLUMNS["day"][1], date(1582, 10, 10), date(2000, 2, 29)]),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_value_of_a_partition_is_found_by_itself_alone(tmp_path: Path, name: str) -> None:
    kind, values = PARTITIONS[name]
    fields = pa.schema([("id", pa.int64()), ("part", kind)])
    harness = PaimonHarness(tmp_path / "lake", fields, partition_by=["part"])
    given = pa.RecordBatch.from_pydict({"id": [*range(len(values))], "part": values}, fields)
    assert write(harness, given).cast(fields).to_pydict() == given.to_pydict()
    table, some = harness.table(), range(0, len(values), max(1, len(values) // 20))
    for number in some:
        builder, value = table.new_read_builder(), values[number]
        made = builder.new_predicate_builder()
        is_it = made.is_null("part") if value is None else made.equal("part", value)
        builder = builder.with_filter(is_it)
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        assert found.column("id").to_pylist() == [number], repr(value)


NAMES = [
    *("a b", "a.b", "a=b", "a/b", "..", "a'b", '"', "`", "%2f", "é", "e\u0301", "\u202ea", "😀"),
    *("_rowid", "_KEY", "key", "$", "x" * 200, "-", "*", "_twophase", "0", "null", "*\n\0"),
]


def test_every_name_of_a_column_is_its_own(tmp_path: Path) -> None:
    fields = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in NAMES)])
    harness = PaimonHarness(tmp_path / "lake", fields)
    row = {"id": [1], **{name: [f"of {name}"] for name in NAMES}}
    assert write(harness, pa.RecordBatch.from_pydict(row, fields)).to_pydict() == row


@pytest.mark.parametrize(
    "name", ["_ROW_ID", "_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_KEY_a", "rowkind"]
)
def test_a_name_that_paimon_keeps_for_itself_is_refused(tmp_path: Path, name: str) -> None:
    """pypaimon makes such a table and cannot read it."""
    fields = pa.schema([("id", pa.int64()), (name, pa.int64())])
    harness = PaimonHarness(tmp_path / "lake", fields)
    with pytest.raises(ConfigError, match=f"column '{name}' has a name that Paimon keeps"):
        harness.opened()
    assert not harness.location.exists()
    others.make_table(harness)
    with pytest.raises(ConfigError, match=f"column '{name}' has a name that Paimon keeps"):
        harness.opened()


@pytest.mark.parametrize("name", ["a b", "a=b", "a/b", "..", "é", "%2f"])
def test_every_name_of_a_partition_column_is_its_own(tmp_path: Path, name: str) -> None:
    fields = pa.schema([("id", pa.int64()), (name, pa.string())])
    harness = PaimonHarness(tmp_path / "lake", fields, partition_by=[name])
    row = {"id": [1, 2], name: ["../x", None]}
    assert write(harness, pa.RecordBatch.from_pydict(row, fields)).to_pydict() == row
    outside = [path for path in harness.folder.rglob("*.parquet") if "orders" not in path.parts]
    assert outside == []

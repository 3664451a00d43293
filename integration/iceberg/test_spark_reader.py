"""What the sink writes is read back by Iceberg's own reader in Spark: every partition transform,
hostile texts, nested values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness import bounds
from harness.hostile_values import VALUES
from harness.iceberg_harness import IcebergHarness
from harness.nemesis import DriverProcess
from tests.sinks.iceberg.test_partitions import FIELDS, ROWS, SPECS, by_id
from tests.sinks.iceberg.test_rows import FULL, NESTED
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.sinks.iceberg.options import partition_field
from twophase.spark_versions import SPARK

_TIMEOUT_S = 540
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK != (4, 1), reason="Iceberg has a runtime for no newer Spark"),
]

TEXTS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("b", pa.binary())])
OF_TEXTS = ("texts", "texts by truncate[2](v)", "texts by bucket[8](v)")


class Reader(DriverProcess):
    module = "integration.iceberg.spark_reader"


@dataclass(frozen=True)
class Given:
    """Rows, the options of the table that they are written to, and in how many checkpoints."""

    fields: pa.Schema
    rows: list[dict[str, Any]]
    partition_by: tuple[str, ...] = ()
    format_version: int = 2
    checkpoints: int = 2


def texts(*partition_by: str) -> Given:
    rows = [
        {"id": number, "v": value, "b": None if value is None else value.encode()}
        for number, value in enumerate([*VALUES, "\U0010ffff" * 20, "a" * 100_000])
    ]
    return Given(TEXTS, rows, partition_by)


GIVEN: dict[str, Given] = {
    **{spec: Given(FIELDS, ROWS, (spec,)) for spec in SPECS},
    "format version 1": Given(FIELDS, ROWS, ("day(at)", "bucket[16](id)"), format_version=1),
    "nested": Given(NESTED, [FULL, dict.fromkeys(NESTED.names)]),
    "texts": texts(),
    "texts by truncate[2](v)": texts("truncate[2](v)"),
    "texts by bucket[8](v)": texts("bucket[8](v)"),
    "bounds": Given(bounds.FIELDS, [*chain(*bounds.files())], checkpoints=len(bounds.files())),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the reader has put what it found in every table."""
    folder = tmp_path_factory.mktemp("read")
    for number, given in enumerate(GIVEN.values()):
        location = written(given, folder / f"lake {number}")
        asked = {
            "location": str(location),
            "conditions": conditions(given),
            "bounds": given is GIVEN["bounds"],
        }
        (folder / f"{number}.json").write_text(json.dumps(asked))
    ended = Reader({"folder": str(folder)}, folder / "runs").wait(_TIMEOUT_S)
    assert ended.code == 0, ended.output
    return folder


def written(given: Given, folder: Path) -> Path:
    """Write rows, and return the table's folder, as a reader of folders wants
    it: with the newest metadata under a number.
    """
    harness = IcebergHarness(
        folder,
        given.fields,
        partition_by=list(given.partition_by),
        format_version=given.format_version,
    )
    sink = harness.opened()
    ends = [len(given.rows) * part // given.checkpoints for part in range(given.checkpoints + 1)]
    for checkpoint, (start, end) in enumerate(pairwise(ends)):
        piece = harness.write(sink, given.rows[start:end], checkpoint)
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
    sink.close()
    table = harness.table()
    location = Path(table.location().removeprefix("file://"))
    newest = Path(table.metadata_location.removeprefix("file://"))
    (location / "metadata" / "v1.metadata.json").write_bytes(newest.read_bytes())
    (location / "metadata" / "version-hint.text").write_text("1")
    return location


def conditions(given: Given) -> list[str]:
    """Return a condition for each row, by the column that the table is partitioned by."""
    [*columns] = {partition_field(spec)[0] for spec in given.partition_by}
    return [meets(columns, row) for row in given.rows] if columns else []


def meets(columns: list[str], row: dict[str, Any]) -> str:
    return " AND ".join(f"{column} <=> {literal(row[column])}" for column in columns)


def literal(value: Any) -> str:
    """A value in Spark's SQL."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return f"{value}L"
        case str():
            return f"decode(X'{value.encode().hex()}', 'UTF-8')"
        case bytes():
            return f"X'{value.hex()}'"
        case Decimal():
            return f"CAST('{value}' AS DECIMAL(12, 2))"
        case datetime(tzinfo=None):
            return f"TIMESTAMP_NTZ'{value.isoformat()}'"
        case datetime():
            return f"TIMESTAMP'{value.isoformat()}'"
        case date():
            return f"DATE'{value.isoformat()}'"
    raise TypeError(type(value))


def numbered(name: str) -> int:
    return [*GIVEN].index(name)


@pytest.mark.parametrize("name", GIVEN)
def test_iceberg_s_own_reader_finds_every_row(read: Path, name: str) -> None:
    given = GIVEN[name]
    with pa.memory_map(str(read / f"{numbered(name)}.arrow")) as file:
        found = pa.ipc.open_file(file).read_all()
    rows = by_id(found.cast(given.fields).to_pylist())
    # UTC has other objects in other environments, so both come out of pyarrow
    expected = by_id(pa.Table.from_pylist(given.rows, given.fields).to_pylist())
    assert repr(rows) == repr(expected)  # NaN is not equal to itself


@pytest.mark.parametrize("name", [name for name in GIVEN if GIVEN[name].partition_by])
def test_it_finds_a_row_by_the_column_of_its_partition(read: Path, name: str) -> None:
    given = GIVEN[name]
    [*columns] = {partition_field(spec)[0] for spec in given.partition_by}
    values = [tuple(row[column] for column in columns) for row in given.rows]
    found = json.loads((read / f"{numbered(name)}.counts").read_text())
    assert found == [values.count(value) for value in values]


def test_a_condition_finds_in_the_table_what_it_finds_in_memory(read: Path) -> None:
    missed = json.loads((read / f"{numbered('bounds')}.missed").read_text())
    # Where Spark goes by a dictionary, it tells -0.0 from 0.0.
    assert [condition for condition in missed if not condition.endswith(bounds.ZEROS)] == []

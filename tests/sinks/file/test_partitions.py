"""Partition values from hell: each reads back equal, or is refused by name before
anything is visible.
"""

from __future__ import annotations

import datetime
import re
import resource
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest

from harness.hostile_values import READABLE, REFUSED, VALUES
from harness.staged_sink_harness import FileHarness, commit
from twophase.contract.outcome import Committed
from twophase.errors import RejectedRowsError
from twophase.ids import Subtask
from twophase.sinks.common.partition_names import (
    MAX_NAME_BYTES,
    NULL_NAME,
    RefusedValueError,
    escape,
    folder_name,
)
from twophase.sinks.common.staging.rows import divide
from twophase.testing.harness import transaction_id

FIELDS = pa.schema([("id", pa.int64()), ("part", pa.string())])


def test_the_corpus_is_large_and_its_values_are_distinct() -> None:
    assert len(VALUES) >= 200
    assert len(set(VALUES)) == len(VALUES)
    assert {
        unicodedata.normalize("NFC", "é"),
        unicodedata.normalize("NFD", "é"),
        "../../x",
        "%2f",
        None,
    } <= {*READABLE}


def test_every_value_reads_back_equal_and_stays_in_the_table(tmp_path: Path) -> None:
    table = FileHarness(tmp_path / "orders", FIELDS, partition_by=["part"])
    sink = table.opened()
    rows = [{"id": number, "part": value} for number, value in enumerate(READABLE)]
    assert commit(sink, table.write(sink, rows)) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == rows
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]
    assert {path.parent.parent for path in table.files()} == {table.path}
    assert len({path.parent for path in table.files()}) == len(READABLE)


@pytest.mark.parametrize("value", REFUSED, ids=ascii)
def test_a_value_that_would_read_back_as_another_is_refused(tmp_path: Path, value: str) -> None:
    table = FileHarness(tmp_path / "orders", FIELDS, partition_by=["part"])
    sink = table.opened()
    with pytest.raises(RejectedRowsError, match="part = ") as caught:
        table.write(sink, [{"id": 1, "part": "good"}, {"id": 2, "part": value}])
    assert table.files() == []
    assert ("null" in str(caught.value)) == (f"nullif(part, '{value}')" in caught.value.remedy)
    assert commit(sink, table.write(sink, [{"id": 1, "part": "good"}], 1)) == [Committed()]


def test_several_partition_columns_of_every_type_read_back_equal(tmp_path: Path) -> None:
    fields = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("hot", pa.bool_()),
            ("shard", pa.int32()),
            ("part", pa.string()),
        ]
    )
    table = FileHarness(
        tmp_path / "orders", fields, partition_by=["day", "hot", "shard", "part"], format="orc"
    )
    sink = table.opened()
    rows = [
        {"id": number, "day": day, "hot": hot, "shard": shard, "part": part}
        for number, (day, hot, shard, part) in enumerate(
            (day, hot, shard, part)
            for day in (datetime.date(2026, 8, 1), datetime.date(1, 1, 1), None)
            for hot in (True, False, None)
            for shard in (-(2**31), 0, None)
            for part in ("a/b", None)
        )
    ]
    assert commit(sink, table.write(sink, rows)) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == rows


def test_rows_keep_their_order_within_a_partition() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"id": list(range(100)), "part": ["abc"[number % 3] for number in range(100)]}
    )
    parts = {values: rows.column("id").to_pylist() for values, rows in divide(batch, ["part"])}
    assert parts == {(letter,): list(range(start, 100, 3)) for start, letter in enumerate("abc")}


def test_a_name_escapes_what_spark_escapes() -> None:
    """The characters were read out of Spark 4.2.0, `ExternalCatalogUtils.escapePathName`;
    NUL is added.
    """
    escaped = {chr(code) for code in range(0x180) if escape(chr(code)) != chr(code)}
    assert escaped == {*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?[\\]^{"}
    assert escape("a/b=%c") == "a%2Fb%3D%25c"


def test_a_folder_name_cannot_leave_its_parent() -> None:
    for column in ("..", "/", "\0", "part"):
        for value in READABLE:
            assert re.fullmatch(r"[^/\0]+=[^/\0]+", folder_name(column, value))


def test_the_longest_name_is_taken_and_one_byte_more_is_not() -> None:
    room = MAX_NAME_BYTES - len("part=")
    assert len(folder_name("part", "x" * room).encode()) == MAX_NAME_BYTES
    with pytest.raises(RefusedValueError, match=f"{MAX_NAME_BYTES + 1} bytes"):
        folder_name("part", "x" * (room + 1))


@pytest.mark.parametrize("value", ["", NULL_NAME, "\ud800"])
def test_refused_values_are_named(value: str) -> None:
    with pytest.raises(RefusedValueError, match="part"):
        folder_name("part", value)


def test_a_piece_is_written_with_more_partitions_than_a_process_may_open_files(
    tmp_path: Path,
) -> None:
    table = FileHarness(tmp_path / "orders", FIELDS, partition_by=["part"])
    sink = table.opened()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 50, hard))
    try:
        piece = table.write(sink, [{"id": number, "part": f"p{number}"} for number in range(200)])
        assert commit(sink, piece) == [Committed()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(table.files()) == 200


def test_a_bounded_buffer_becomes_several_files_of_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twophase.sinks.common.staging.writer._BUFFER_BYTES", 2_000)
    table = FileHarness(tmp_path / "orders", FIELDS, partition_by=["part"])
    sink = table.opened()
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    for first in range(0, 1_000, 100):
        rows = [
            {"id": number, "part": "much" if number % 10 else "little"}
            for number in range(first, first + 100)
        ]
        writer.write(pa.RecordBatch.from_pylist(rows, FIELDS))
    piece = writer.pre_commit()
    assert piece is not None
    assert commit(sink, piece) == [Committed()]
    assert sorted(row["id"] for row in table.rows_visible()) == list(range(1_000))
    many = len(list((table.path / "part=much").iterdir()))
    assert many > 1
    assert len(list((table.path / "part=little").iterdir())) == 1
    assert piece.handle["files"] == many + 1

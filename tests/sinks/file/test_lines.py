"""What a file would not give back: refused by name."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.staged_sink_harness import FileHarness
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import ConfigError, RejectedRowsError
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = pytest.mark.part("files")

LATIN = pa.array([b"a", b"b\xff"]).view(pa.string())
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def write(folder: Path, batch: pa.RecordBatch, **options: Any) -> FileHarness:
    folder.mkdir(exist_ok=True)
    table = FileHarness(folder / "t", batch.schema, **options)
    sink = table.new_sink().open(SinkContext(JOB, SINK, batch.schema, parallelism=1))
    sink.fence(FIRST)
    made = table.pre_commit(sink, transaction_id(), batch)
    sink.commit([CommitRequest(piece) for piece in made])
    sink.close()
    return table


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.date32(), pa.float64()], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_line_with_nothing_in_it_would_be_skipped(
    tmp_path: Path, kind: pa.DataType, place: int, *, partitioned: bool
) -> None:
    values = pa.array([None if row == place else 7 for row in range(3)], pa.int32()).cast(kind)
    rows: dict[str, Any] = {"it": values}
    if partitioned:
        rows["day"] = pa.array(["x"] * 3)
    options = {"partition_by": ["day"]} if partitioned else {}
    batch = pa.RecordBatch.from_pydict(rows)
    with pytest.raises(RejectedRowsError, match=f"it = NULL in row {place + 1} of 3 would be an"):
        write(tmp_path / "refused", batch, format="csv", **options)
    second = batch.append_column("too", pa.array([1, 2, 3]))
    assert len(write(tmp_path / "second", second, format="csv", **options).rows_visible()) == 3
    assert len(write(tmp_path / "json", batch, format="json", **options).rows_visible()) == 3
    without = batch.filter(batch["it"].is_valid())
    assert len(write(tmp_path / "without", without, format="csv", **options).rows_visible()) == 2


def test_a_line_with_an_empty_text_or_a_second_column_is_one(tmp_path: Path) -> None:
    one = pa.RecordBatch.from_pydict({"it": pa.array(["", "x"])})
    [file] = write(tmp_path / "one", one, format="csv").files()
    assert file.read_text() == '"it"\n""\n"x"\n'
    two = pa.RecordBatch.from_pydict({"it": pa.array([None], pa.string()), "too": pa.array([1])})
    [file] = write(tmp_path / "two", two, format="csv").files()
    assert file.read_text() == '"it","too"\n,1\n'


@pytest.mark.parametrize("name", ["csv", "json"])
@pytest.mark.parametrize("large", [False, True])
def test_bytes_that_are_no_text_are_refused_by_name(
    tmp_path: Path, name: str, *, large: bool
) -> None:
    values = LATIN.view(pa.binary()).cast(pa.large_binary()).view(pa.large_string())
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "it": values if large else LATIN})
    with pytest.raises(RejectedRowsError, match="it in row 2 of 2 is not text in UTF-8"):
        write(tmp_path, batch, format=name)


def test_bytes_that_are_no_text_are_no_name_of_a_partition(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "it": LATIN})
    with pytest.raises(RejectedRowsError, match="it in row 2 of 2 is not text in UTF-8"):
        write(tmp_path, batch, format="parquet", partition_by=["it"])


def test_columns_of_csv_keep_their_order(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"debit": [1], "credit": [2]})
    write(tmp_path, batch, format="csv")
    other = batch.select(["credit", "debit"])
    with pytest.raises(ConfigError, match="in this order"):
        write(tmp_path, other, format="csv")


@pytest.mark.parametrize("name", ["parquet", "orc", "json"])
@pytest.mark.parametrize("kind", [VARIANT, pa.list_(VARIANT), pa.struct([("v", VARIANT)])], ids=str)
def test_a_type_that_is_read_back_as_bytes_is_refused(
    tmp_path: Path, name: str, kind: pa.DataType
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, kind)], names=["it"])
    with pytest.raises(ConfigError, match="column 'it': a variant is read back as"):
        write(tmp_path, batch, format=name)


@pytest.mark.parametrize("name", ["parquet", "orc", "json"])
@pytest.mark.parametrize("twice", ["a", "A"])
def test_a_field_that_appears_twice_is_refused(tmp_path: Path, name: str, twice: str) -> None:
    kind = pa.list_(pa.struct([("a", pa.int64()), (twice, pa.int64())]))
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, kind)], names=["it"])
    with pytest.raises(ConfigError, match="column 'it': the field 'a' appears twice"):
        write(tmp_path, batch, format=name)


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_a_struct_without_fields_is_refused(tmp_path: Path, name: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, pa.struct([]))], names=["it"])
    with pytest.raises(ConfigError, match="cannot store a struct without fields"):
        write(tmp_path, batch, format=name)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_the_column_that_spark_fills_itself_is_refused(tmp_path: Path, name: str) -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1], "_corrupt_record": ["x"]})
    with pytest.raises(ConfigError, match="Spark's reader fills a column of this name itself"):
        write(tmp_path, batch, format=name)


@pytest.mark.parametrize("name", ["csv", "json"])
@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Amsterdam", "Africa/Monrovia", "+02:00", "GMT+1", "UTC+1", "Z"]
)
def test_a_moment_is_the_same_whatever_the_zone_of_the_session(
    tmp_path: Path, name: str, zone: str
) -> None:
    """Amsterdam was 19 minutes and 32 seconds ahead in 1930; Java knows `GMT+1`, pyarrow not."""
    texts = ["1930-01-01T12:00:00", "1880-06-01T03:04:05.000006", "2026-10-25T01:30:00"]
    moments = pa.array(texts).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    at = moments.cast(pa.timestamp("us", zone))
    [file] = write(tmp_path, pa.RecordBatch.from_pydict({"at": at}), format=name).files()
    lines = file.read_text().splitlines()
    found = [json.loads(line)["at"] for line in lines] if name == "json" else lines[1:]
    assert [datetime.fromisoformat(text) for text in found] == moments.to_pylist()


@pytest.mark.parametrize("shape", ["map", "list of maps"])
def test_a_map_with_a_key_twice_is_refused_by_name_until_one_is_left_out(
    tmp_path: Path, shape: str
) -> None:
    def batch(pairs: list[tuple[str, int]]) -> pa.RecordBatch:
        kind = pa.map_(pa.string(), pa.int64())
        is_map = shape == "map"
        values = pa.array(
            [[("a", 1)], pairs] if is_map else [None, [pairs]], kind if is_map else pa.list_(kind)
        )
        return pa.RecordBatch.from_pydict({"id": [1, 2], "it": values})

    twice = [("a", 1), ("a", 2)]
    with pytest.raises(
        RejectedRowsError, match=r"it has a map with a key twice.*: .*a.*1.*a.*2"
    ) as caught:
        write(tmp_path / "refused", batch(twice), format="json")
    assert caught.value.remedy == "leave one of them out, or write parquet or orc."
    write(tmp_path / "json", batch(twice[:1]), format="json")
    for kind in ("parquet", "orc"):
        assert (
            write(tmp_path / kind, batch(twice), format=kind).rows_visible()
            == batch(twice).to_pylist()
        )


@pytest.mark.parametrize("nested", [False, True])
def test_a_backquote_in_a_name_is_refused_in_orc(tmp_path: Path, *, nested: bool) -> None:
    """Spark reads a column a`b as one of the name a, and stops at others."""
    values = pa.array([1])
    if nested:
        values = pa.StructArray.from_arrays([values], ["a`b"])
    batch = pa.RecordBatch.from_pydict({"it" if nested else "a`b": values})
    with pytest.raises(ConfigError, match="Spark does not read ORC"):
        write(tmp_path, batch, format="orc")
    write(tmp_path, batch, format="parquet")

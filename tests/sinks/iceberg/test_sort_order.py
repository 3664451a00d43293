"""Files of a table with a sort order are sorted by it and say so; a file that is not does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    SetDefaultSortOrderUpdate,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import LongType, NestedField, StringType, StructType

from harness.iceberg_harness import TABLE, IcebergHarness
from harness.savepoint_world import killed
from tests.sinks.iceberg.others import FIELDS as PLAIN
from tests.sinks.iceberg.others import (
    Change,
    before_the_swap,
    change,
    commit,
    rival_of,
    widen_a_column,
)
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError
from twophase.sinks.iceberg.records import Manifest, SortedManifest
from twophase.sinks.iceberg.sorting import refusals

ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST


def by(
    source: int,
    direction: SortDirection = ASC,
    nulls: NullOrder = FIRST,
    transform: Transform[Any, Any] | None = None,
) -> SortField:
    return SortField(source, transform or IdentityTransform(), direction, nulls)


def sort_by(*fields: SortField) -> Change:
    """As `ALTER TABLE ... WRITE ORDERED BY` does."""

    def sorted_by(table: Table) -> None:
        number = max(order.order_id for order in table.metadata.sort_orders) + 1
        order = SortOrder(*fields, order_id=number)
        added = AddSortOrderUpdate(sort_order=order)
        default = SetDefaultSortOrderUpdate(sort_order_id=number)
        table.catalog.commit_table(table, (), (added, default))

    return sorted_by


def unsorted(table: Table) -> None:
    """As `ALTER TABLE ... WRITE UNORDERED` does."""
    default = SetDefaultSortOrderUpdate(sort_order_id=0)
    added = AddSortOrderUpdate(sort_order=SortOrder(order_id=0))
    has_it = any(order.order_id == 0 for order in table.metadata.sort_orders)
    table.catalog.commit_table(table, (), (default,) if has_it else (added, default))


def table_of(folder: Path, kind: pa.DataType, *fields: SortField, **options: Any) -> IcebergHarness:
    rows = pa.schema([("v", kind), ("n", pa.int64())])
    harness = IcebergHarness(folder / "lake", rows, **options)
    harness.opened().close()
    change(harness, sort_by(*fields))
    return harness


def files(harness: IcebergHarness) -> list[tuple[int | None, list[Any]]]:
    """The sort order that each file says it has, and its values as they lie in it."""
    table = harness.table()
    head = table.metadata.snapshot_by_name(harness.branch)
    assert head is not None
    found = []
    for manifest in head.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            column = pq.read_table(file.file_path.removeprefix("file://")).column(0)
            found.append((file.sort_order_id, column.to_pylist()))
    return found


def stored(folder: Path, kind: pa.DataType, values: Sequence[Any], *fields: SortField) -> list[Any]:
    harness = table_of(folder, kind, *fields)
    numbers = range(len(values))
    columns = [pa.array(values, kind), pa.array(numbers, pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, schema=harness.fields)
    sink = harness.opened()
    commit(harness, sink, batch.to_pylist())
    [(order, found)] = files(harness)
    assert order == 1
    return found


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
        (pa.bool_(), [False, True]),
        (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 1e300, math.inf, math.nan]),
        (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 0.5, math.inf, math.nan]),
        (pa.string(), ["", "B", "a", "ab", "ä", "\uffff", "\U0001f680"]),
        (pa.binary(), [b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff"]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("direction", "nulls"), [(ASC, FIRST), (ASC, LAST), (DESC, FIRST), (DESC, LAST)], ids=str
)
def test_values_lie_in_the_order_that_iceberg_defines(
    tmp_path: Path,
    kind: pa.DataType,
    ascending: list[Any],
    direction: SortDirection,
    nulls: NullOrder,
) -> None:
    given = [None, *ascending[1::2], *ascending[::2][::-1], None]
    wanted = ascending if direction == ASC else ascending[::-1]
    wanted = [None, None, *wanted] if nulls == FIRST else [*wanted, None, None]
    found = stored(tmp_path, kind, given, by(1, direction, nulls))
    assert [*map(repr, found)] == [*map(repr, wanted)]


@pytest.mark.parametrize(
    ("transform", "wanted"),
    [
        (TruncateTransform(1), ["ab", "aa", "b2", "b1"]),
        (VoidTransform(), ["b2", "ab", "b1", "aa"]),
    ],
    ids=str,
)
def test_rows_that_a_transform_makes_equal_stay_as_they_are(
    tmp_path: Path, transform: Transform[Any, Any], wanted: list[str]
) -> None:
    field = by(1, transform=transform)
    assert stored(tmp_path, pa.string(), ["b2", "ab", "b1", "aa"], field) == wanted


def test_a_second_field_orders_what_the_first_leaves_equal(tmp_path: Path) -> None:
    fields = by(1, transform=BucketTransform(2)), by(1, DESC)
    values = [*range(20)]
    found = stored(tmp_path, pa.int64(), values, *fields)
    bucket = BucketTransform(2).transform(LongType())
    assert found == sorted(values, key=lambda value: (bucket(value), -value))


def test_a_column_that_the_rows_lack_is_null_and_orders_nothing(tmp_path: Path) -> None:
    harness = table_of(tmp_path, pa.int64(), by(2), by(1, DESC))
    harness.fields = pa.schema([("v", pa.int64())])
    sink = harness.opened()
    commit(harness, sink, pa.record_batch({"v": [1, 3, 2]}).to_pylist())
    assert files(harness) == [(1, [3, 2, 1])]


def test_each_file_of_a_partition_is_sorted(tmp_path: Path) -> None:
    harness = table_of(tmp_path, pa.int64(), by(1), partition_by=["bucket[3](v)"])
    sink = harness.opened()
    commit(harness, sink, pa.record_batch({"v": [*range(50, 0, -1)], "n": [0] * 50}).to_pylist())
    found = files(harness)
    assert len(found) == 3
    assert all(order == 1 and values == sorted(values) for order, values in found)
    assert sorted(value for _, values in found for value in values) == [*range(1, 51)]


def test_pieces_of_a_table_without_a_sort_order_are_as_they_were(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", PLAIN)
    sink = harness.opened()
    harness.write(sink, [{"id": 2}, {"id": 1}])
    [folder] = harness.staged()
    manifest = Manifest.read(folder)
    assert type(manifest) is Manifest
    assert (folder / "manifest").read_bytes().startswith(b"twophase-iceberg/1 ")


# -- what others do --------------------------------------------------------------------------------

REVERSED = sort_by(by(1, DESC))


def forget_it(table: Table) -> None:
    """A tool has written the metadata again without the old sort order, and uses its id again."""
    metadata = Path(table.metadata_location.removeprefix("file://"))
    text = metadata.read_text()
    assert '"direction":"asc"' in text
    metadata.write_text(text.replace('"direction":"asc"', '"direction":"desc"'))


@pytest.mark.parametrize(
    ("what", "then"),
    [
        (REVERSED, (2, [4, 3])),
        (unsorted, (None, [3, 4])),
        (widen_a_column, (1, [3, 4])),
    ],
)
@pytest.mark.parametrize("in_flight", [False, True], ids=["before the commit", "during the commit"])
def test_a_sort_order_that_changes_is_that_of_files_written_from_then_on(
    tmp_path: Path,
    what: Change,
    then: tuple[int | None, list[int]],
    in_flight: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = IcebergHarness(tmp_path / "lake", PLAIN)
    harness.opened().close()
    change(harness, sort_by(by(1)))
    sink = harness.opened()
    piece = harness.write(sink, [{"id": 2}, {"id": 1}], 0)
    if in_flight:
        before_the_swap(monkeypatch, lambda: change(harness, what))
    else:
        change(harness, what)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    after = harness.write(sink, [{"id": 3}, {"id": 4}], 1)
    assert sink.commit([CommitRequest(after)]) == [Committed()]
    assert sorted(files(harness), key=lambda file: max(file[1])) == [(1, [1, 2]), then]


def test_a_file_names_no_sort_order_that_the_table_has_no_more(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", PLAIN)
    harness.opened().close()
    change(harness, sort_by(by(1)))
    sink = harness.opened()
    piece = harness.write(sink, [{"id": 2}, {"id": 1}])
    change(harness, forget_it)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert files(harness) == [(None, [1, 2])]


def test_a_sorted_piece_is_found_by_recovery_with_the_digest_that_was_decided(
    tmp_path: Path,
) -> None:
    harness = IcebergHarness(tmp_path / "lake", PLAIN)
    harness.opened().close()
    change(harness, sort_by(by(1)))
    sink = harness.opened()
    piece = harness.write(sink, [{"id": 2}, {"id": 1}])
    [folder] = harness.staged()
    assert isinstance(Manifest.read(folder), SortedManifest)
    assert [*rival_of(harness).in_doubt()] == [piece]
    assert killed("D01", lambda: [rival_of(harness).commit([CommitRequest(piece)])])
    assert rival_of(harness).commit([CommitRequest(piece)]) == [Committed()]
    assert files(harness) == [(1, [1, 2])]


def test_a_sort_order_that_cannot_be_kept_is_refused_by_name(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", pa.schema([("id", pa.int64())]), create=False)
    point = StructType(NestedField(3, "x", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "point", point))
    with closing(harness.catalog()) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table(TABLE, schema)
    sink = harness.opened()
    change(harness, sort_by(by(3)))
    named = r"the field identity\(point.x\) of its sort order is made of a value inside a column"
    for start in (harness.opened, sink.writers, harness.new_sink().check_connection):
        with pytest.raises(ConfigError, match=named):
            start()
    change(harness, unsorted)
    commit(harness, harness.opened(), pa.record_batch({"id": [1]}).to_pylist())


def test_an_unknown_transform_is_refused() -> None:
    order = SortOrder(by(1, transform=UnknownTransform("zorder")))
    [found] = refusals(order, Schema(NestedField(1, "id", LongType())))
    assert (
        found
        == "the field unknown(id) of its sort order is made by a transform that is unknown here"
    )


def test_a_day_of_a_date_orders_rows(tmp_path: Path) -> None:
    values = [20_000, 3, -5]
    kind = pa.date32()
    found = stored(
        tmp_path,
        kind,
        pa.array(values, pa.int32()).view(kind).to_pylist(),
        by(1, transform=DayTransform()),
    )
    assert found == sorted(found)

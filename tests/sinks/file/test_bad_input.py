"""Bad input: the named error, nothing visible, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet
import pytest

from harness.rights import permissions_checked, umask
from harness.staged_sink_harness import FileHarness, commit, orders
from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, DeclinedError, PreflightError
from twophase.ids import Subtask
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.file.sink import FileSink
from twophase.testing.harness import SinkHarness, transaction_id

FIELDS = SinkHarness.schema


def opened(path: Path | str, fields: pa.Schema = FIELDS, **options: Any) -> OpenStagedSink:
    sink = FileSink(path=str(path), **options)
    return sink.open(SinkContext("job", "sink", fields, parallelism=2))


@pytest.mark.parametrize(
    "path",
    [
        "orders",
        "./orders",
        "../orders",
        "s3a://bucket/orders",
        "hdfs://namenode/orders",
        "file://elsewhere/orders",
        "/a\0b",
    ],
)
def test_a_path_that_is_no_local_folder_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="not an absolute path on a file system"):
        opened(path)
    opened(tmp_path / "orders")


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_a_local_folder_may_be_named_in_each_of_these_forms(tmp_path: Path, form: str) -> None:
    assert opened(form.format(tmp_path / "orders")).target() == f"file:{tmp_path / 'orders'}"


@pytest.mark.parametrize(
    "path", ["/etc/orders", "{root}/../orders", "{root}x/orders", "{root}/link/orders", "/"]
)
def test_a_path_outside_the_allowed_root_is_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="where it has to be"):
        opened(path.format(root=root), root=str(root))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    opened(root / "orders", root=str(root))


def test_a_missing_folder_above_the_table_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="Cannot create the folder"):
        opened(tmp_path / "not_mounted" / "orders")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "not_mounted").mkdir()
    opened(tmp_path / "not_mounted" / "orders")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders").touch()
    with pytest.raises(PreflightError, match="orders"):
        opened(tmp_path / "orders")


def test_a_folder_that_this_account_cannot_write_is_refused_until_it_may(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders").chmod(0o555)
    with permissions_checked():
        with pytest.raises(PreflightError, match=r"cannot be written|Cannot create") as caught:
            opened(tmp_path / "orders")
        assert caught.value.remedy == "give the driver's account the right to write there."
        (tmp_path / "orders").chmod(0o755)
        opened(tmp_path / "orders")


def test_a_folder_that_everyone_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders").chmod(0o777)
    with pytest.raises(PreflightError, match="writable by everyone"):
        opened(tmp_path / "orders")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"format": "avro"}, "format"),
        ({"formt": "orc"}, "did you mean 'format'"),
        ({"partition_by": ["name", "NAME"]}, "name each partition column once"),
        ({"partition_by": [""]}, "name each partition column once"),
        ({"path": ""}, "path"),
    ],
)
def test_an_option_that_is_not_right_is_named(
    tmp_path: Path, options: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        FileSink(**{"path": str(tmp_path), **options})


ID = pa.schema([("id", pa.int64())])


def plus(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """The column `id`, and these."""
    return pa.schema([*ID, *(pa.field(name, kind) for name, kind in fields)])


@pytest.mark.parametrize(
    ("fields", "options", "what", "rows", "mended"),
    [
        (
            FIELDS,
            {"partition_by": ["dt"]},
            "partition column 'dt' is not in the rows",
            plus(("dt", pa.string())),
            {},
        ),
        (
            FIELDS,
            {"partition_by": ["amount"]},
            "column 'amount': double does not read back",
            plus(("amount", pa.string())),
            {},
        ),
        (
            pa.schema([("name", pa.string())]),
            {"partition_by": ["name"]},
            "there are only partition columns",
            plus(("name", pa.string())),
            {},
        ),
        (plus(("ID", pa.int64())), {}, "column 'id' appears twice", plus(("id2", pa.int64())), {}),
        (
            plus(("_p", pa.string())),
            {"partition_by": ["_p"]},
            "readers would skip",
            plus(("p", pa.string())),
            {"partition_by": ["p"]},
        ),
        (
            plus(("n", pa.null())),
            {},
            "column 'n': null does not read back unchanged from parquet",
            plus(("n", pa.string())),
            {},
        ),
        (
            plus(("b", pa.binary())),
            {"format": "csv"},
            "CSV cannot store bytes",
            plus(("b", pa.binary())),
            {"format": "parquet"},
        ),
        (
            plus(("l", pa.list_(pa.int8()))),
            {"format": "csv"},
            "CSV cannot store nested values",
            plus(("l", pa.list_(pa.int8()))),
            {"format": "json"},
        ),
        (
            plus(("d", pa.duration("us"))),
            {"format": "orc"},
            "duration",
            plus(("d", pa.int64())),
            {},
        ),
        (
            plus(("t", pa.timestamp("us"))),
            {"format": "orc"},
            "column 't': pyarrow and Spark",
            plus(("t", pa.timestamp("us", "UTC"))),
            {},
        ),
        (
            pa.schema([("m", pa.map_(pa.int32(), pa.string()))]),
            {"format": "json"},
            "keys of a JSON object",
            pa.schema([("m", pa.map_(pa.string(), pa.string()))]),
            {},
        ),
        (
            pa.schema([("s", pa.struct([("x", pa.list_(pa.null()))]))]),
            {},
            "column 's': null does not read back unchanged",
            pa.schema([("s", pa.struct([("x", pa.list_(pa.int8()))]))]),
            {},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_columns_that_would_not_read_back_are_refused_until_rows_or_options_are_changed(
    tmp_path: Path,
    fields: pa.Schema,
    options: dict[str, Any],
    what: str,
    rows: pa.Schema,
    mended: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match=what):
        opened(tmp_path / "orders", fields, **options)
    assert not (tmp_path / "orders").exists()
    opened(tmp_path / "orders", rows, **options | mended)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (kind, other)
        for kind in ("parquet", "orc", "csv")
        for other in ("another column", "another type", "another format", "another partition")
        if (kind, other) != ("csv", "another type")
    ],
)
def test_a_folder_with_other_files_is_refused_and_left_as_it_was(
    tmp_path: Path, kind: str, other: str
) -> None:
    table = FileHarness(tmp_path / "orders", format=kind, partition_by=["name"])
    sink = table.opened()
    commit(sink, table.write(sink, orders([1])))
    before = sorted(tmp_path.rglob("*"))
    options: dict[str, Any] = {"format": kind, "partition_by": ["name"]}
    fields = FIELDS
    match other:
        case "another column":
            fields = FIELDS.append(pa.field("more", pa.int64()))
        case "another type":
            fields = FIELDS.set(0, pa.field("id", pa.int32()))
        case "another format":
            options["format"] = "json"
        case _:
            options["partition_by"] = []
    with pytest.raises(ConfigError, match="has files that this sink would not write"):
        opened(table.path, fields, **options)
    assert sorted(tmp_path.rglob("*")) == before
    opened(tmp_path / "another", fields, **options)
    opened(table.path, FIELDS, format=kind, partition_by=["name"])


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.parquet").write_text("not parquet")
    with pytest.raises(PreflightError, match=r"a\.parquet' cannot be read as parquet"):
        opened(tmp_path / "orders")
    pa.parquet.write_table(
        pa.Table.from_pylist(orders([1]), FIELDS), tmp_path / "orders" / "a.parquet"
    )
    opened(tmp_path / "orders")


def test_what_readers_skip_does_not_count_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "orders" / "_spark_metadata" / "0").write_text("v1")
    (tmp_path / "orders" / ".hidden").write_text("x")
    opened(tmp_path / "orders")


def test_a_file_that_cannot_be_written_declines_the_attempt(tmp_path: Path) -> None:
    """A folder that vanishes under the writer stands for every error of the file system."""
    table = FileHarness(tmp_path / "orders")
    sink = table.opened()
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    writer.write(pa.RecordBatch.from_pylist(orders([1]), FIELDS))
    (folder,) = table.staged()
    folder.rmdir()
    with pytest.raises(DeclinedError, match="cannot be written"):
        writer.pre_commit()
    writer.abort()
    assert (table.files(), table.staged()) == ([], [])


def test_a_repair_creates_no_folder(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="orders is not a folder"):
        FileSink(path=str(tmp_path / "orders")).open(SinkContext("job", "sink", None, 0))
    assert list(tmp_path.iterdir()) == []
    FileSink(path=str(tmp_path)).open(SinkContext("job", "sink", None, 0))


def test_the_rights_of_committed_files_are_those_of_any_file(tmp_path: Path) -> None:
    with umask(0o022):
        table = FileHarness(tmp_path / "orders", partition_by=["name"])
        sink = table.opened()
        commit(sink, table.write(sink, orders([1])))
    (file,) = table.files()
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.parent.stat().st_mode & 0o777 == 0o755

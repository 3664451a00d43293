"""Options and tables that are refused by name, before anything is written."""

from __future__ import annotations

import logging
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from harness.iceberg_harness import TABLE, IcebergHarness
from twophase.errors import ConfigError, PreflightError, TargetUnreachableError
from twophase.sinks.iceberg.options import partition_field
from twophase.sinks.iceberg.sink import IcebergSink

FIELDS = pa.schema([("id", pa.int64())])
BASE = {"catalog_uri": "sqlite:////lake/catalog.db", "table": "shop.orders"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"catalog_uri": "postgresql://a@b/c"}, "other catalogs are not supported yet"),
        ({"catalog_uri": "https:///path"}, "without a user"),
        ({"catalog_uri": "https://me@catalog"}, "without a user"),
        ({"catalog_uri": "thrift://a:1,thrift://b:1"}, "of one metastore"),
        ({"catalog_uri": "thrift://a:9083", "table": "a.b.c"}, "has one namespace"),
        ({"catalog_uri": "thrift://a:9083", "token_env": "A"}, "another kind of catalog"),
        ({"catalog_uri": "https://a", "password_env": "A"}, "another kind of catalog"),
        ({"catalog_uri": "https://a", "token_env": "A", "credential_env": "B"}, "give one of"),
        ({"catalog_uri": "http://catalog", "token_env": "A"}, "token_env requires https://"),
        ({"catalog_uri": "https://a", "oauth2_server_uri": "http://b/t"}, "an https:// URL"),
        ({"catalog_uri": "https://a", "headers": "X-Tenant"}, "is no header"),
        ({"catalog_uri": "https://a", "headers": ["Cookie: sesame"]}, "which is a secret"),
        ({"catalog_uri": "sqlite:///catalog.db"}, "with four slashes"),
        ({"catalog_uri": "mysql://a@b/c?ssl=1"}, "no parameters"),
        ({"table": "orders"}, "give namespace and name"),
        ({"table": ".orders"}, "give namespace and name"),
        ({"create": True}, "create requires warehouse"),
        ({"format_version": 3}, "format_version"),
        ({"branch": ""}, "branch"),
        ({"schema_change": "merge"}, "schema_change"),
        ({"partition_by": ["id", "id"]}, "name each partition field once"),
        ({"password_env": "A", "password_file": "/b"}, "not both"),
        ({"warehose": "/lake"}, "did you mean 'warehouse'"),
    ],
)
def test_an_option_that_is_not_right_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        IcebergSink(**{**BASE, **options})
    assert "sesame" not in str(caught.value)


def test_a_password_in_the_uri_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="contains a password") as caught:
        IcebergSink(**{**BASE, "catalog_uri": "mysql://lake:sesame@db/catalog"})
    assert "sesame" not in str(caught.value)


def test_a_catalog_that_cannot_be_reached_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("LAKE_PASSWORD", "sesame/@:")
    uri = {"catalog_uri": "mysql://lake@127.0.0.1:1/catalog", "password_env": "LAKE_PASSWORD"}
    with pytest.raises(TargetUnreachableError, match=r"lake@127\.0\.0\.1:1/catalog") as caught:
        IcebergSink(**{**BASE, **uri}).check_connection()
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "sesame" not in shown


def test_a_password_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_PASSWORD", raising=False)
    uri = {"catalog_uri": "mysql://lake@127.0.0.1:1/catalog"}
    with pytest.raises(ConfigError, match="'LAKE_PASSWORD', named by"):
        IcebergSink(**{**BASE, **uri, "password_env": "LAKE_PASSWORD"}).check_connection()
    with pytest.raises(ConfigError, match="named by password_file, cannot be read"):
        IcebergSink(**{**BASE, **uri, "password_file": str(tmp_path)}).check_connection()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("id", ("id", "identity")),
        ("day(at)", ("at", "day")),
        ("bucket[16](id)", ("id", "bucket[16]")),
        ("truncate[3](a(b)c)", ("a(b)c", "truncate[3]")),
        ("week(at)", ("week(at)", "identity")),
        ("void(id)", ("id", "void")),
    ],
)
def test_a_partition_field_is_a_column_or_a_transform_of_one(
    text: str, field: tuple[str, str]
) -> None:
    assert partition_field(text) == field


@pytest.fixture
def harness(tmp_path: Path) -> IcebergHarness:
    return IcebergHarness(tmp_path / "lake", FIELDS, create=False)


def made(harness: IcebergHarness, **options: Any) -> None:
    """A table that another application has created."""
    schema = Schema(NestedField(1, "id", LongType()))
    with closing(harness.catalog()) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table(TABLE, schema, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"properties": {"write.format.default": "orc"}}, "write.format.default is orc"),
        ({"properties": {"write.object-storage.enabled": "true"}}, "object-storage.enabled is"),
        ({"properties": {"write.data.path": "/elsewhere"}}, "write.data.path is set"),
        ({"properties": {"write.metadata.path": "{}/metadata"}}, "write.metadata.path is set"),
        *(
            (
                {"properties": {option: "pyiceberg.table.locations.SimpleLocationProvider"}},
                f"{option} is set",
            )
            for option in (
                "write.folder-storage.path",
                "write.object-storage.path",
                "write.py-location-provider.impl",
                "write.location-provider.impl",
            )
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_table_that_cannot_be_written_is_refused_by_name(
    harness: IcebergHarness, options: dict[str, Any], named: str
) -> None:
    if "properties" in options:
        folder = harness.folder / "warehouse"
        given = options["properties"].items()
        options = {"properties": {key: value.format(folder) for key, value in given}}
    made(harness, **options)
    before = harness.contents()
    with pytest.raises(ConfigError, match=named):
        harness.opened()
    with pytest.raises(ConfigError, match=named):
        harness.new_sink().check_connection()
    assert harness.contents() == before


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        ('"location":"{}"', '"location":"s3://bucket/orders"', "Object stores and HDFS are"),
        ('"format-version":2', '"format-version":3,"next-row-id":0', "its format version is 3"),
    ],
)
def test_a_table_that_pyiceberg_cannot_create_here_is_refused(
    harness: IcebergHarness, was: str, now: str, named: str
) -> None:
    made(harness)
    harness.new_sink().check_connection()
    [metadata] = (harness.folder / "warehouse").rglob("*.metadata.json")
    text = metadata.read_text()
    was = was.format(harness.table().location())
    assert was in text
    metadata.write_text(text.replace(was, now))
    with pytest.raises(ConfigError, match=named):
        harness.opened()


def test_a_folder_that_everyone_can_write_is_refused(harness: IcebergHarness) -> None:
    made(harness)
    Path(harness.table().location().removeprefix("file://")).chmod(0o777)
    with pytest.raises(PreflightError, match="writable by everyone"):
        harness.opened()


def test_a_table_of_another_application_is_written_and_its_rows_stay(
    harness: IcebergHarness,
) -> None:
    made(harness)
    harness.table().append(pa.table({"id": [7]}))
    sink = harness.opened()
    sink.close()
    assert harness.rows_visible() == [{"id": 7}]


def test_a_missing_catalog_is_named_and_not_made(harness: IcebergHarness) -> None:
    with pytest.raises(PreflightError, match="does not exist"):
        harness.opened()
    with pytest.raises(PreflightError, match="does not exist"):
        harness.new_sink().check_connection()
    assert [*harness.folder.iterdir()] == []


def test_a_folder_of_data_that_is_a_link_is_refused(harness: IcebergHarness) -> None:
    made(harness)
    data = Path(harness.table().location().removeprefix("file://")) / "data"
    (harness.folder / "elsewhere").mkdir()
    data.symlink_to(harness.folder / "elsewhere")
    with pytest.raises(PreflightError, match="is a link, or on another file system"):
        harness.opened()

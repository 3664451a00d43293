"""Options and tables that are refused by name, before anything is written."""

from __future__ import annotations

import logging
import re
import shutil
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from harness.iceberg_harness import TABLE, IcebergHarness
from harness.rights import permissions_checked
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
        ({"catalog_uri": "https://a", "headers": "X-Tenant"}, "is not a header"),
        ({"catalog_uri": "https://a", "headers": ["Cookie: sesame"]}, "which is a secret"),
        ({"catalog_uri": "sqlite:///catalog.db"}, "with four slashes"),
        ({"catalog_uri": "mysql://a@b/c?ssl=1"}, "no parameters"),
        ({"table": "orders"}, "give namespace and name"),
        ({"table": ".orders"}, "give namespace and name"),
        ({"create": True}, "create requires warehouse"),
        (
            {"warehouse": "file://localhost/lake"},
            "give warehouse without a host, as in file:///lake",
        ),
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


TOKENS = "token_env, token_file, credential_env, credential_file"
"""What names a secret of a REST catalog by reference."""


@pytest.mark.parametrize(
    ("option", "uri", "without", "instead"),
    [
        ("catalog_uri", "mysql://a:sesame@db/b", "mysql://a@db/b", "password_env, password_file"),
        ("catalog_uri", "https://a:sesame@db/b", "https://db/b", TOKENS),
        ("oauth2_server_uri", "https://a:sesame@db/b", "https://db/b", TOKENS),
        ("catalog_uri", "thrift://a:sesame@db:9083", "thrift://db:9083", ""),
    ],
)
def test_a_password_in_the_uri_is_refused_and_not_shown_and_by_reference_it_is_taken(
    option: str, uri: str, without: str, instead: str
) -> None:
    given = {**BASE, "catalog_uri": "https://db/b"} | {option: uri}
    with pytest.raises(ConfigError, match="contains a password") as caught:
        IcebergSink(**given)
    assert "sesame" not in str(caught.value)
    named = instead.split(", ") if instead else []
    assert re.findall(r"\w+_(?:env|file)", caught.value.remedy) == named
    for reference in named:
        IcebergSink(**{**given, option: without, reference: "SECRET"})
    IcebergSink(**{**given, option: without})


@pytest.mark.parametrize(
    ("headers", "corrected"),
    [
        ("X-Tenant", "X-Tenant: shop"),
        (["X Tenant: shop"], ["X-Tenant: shop"]),
        (["X-Tenant: sh\u00f6p", "X-Team: data"], ["X-Tenant: shop", "X-Team: data"]),
    ],
)
def test_a_header_that_is_none_is_refused_and_written_as_one_it_is_taken(
    headers: object, corrected: object
) -> None:
    rest = {**BASE, "catalog_uri": "https://a"}
    with pytest.raises(ConfigError, match="an entry that is not a header") as caught:
        IcebergSink(**rest, headers=headers)
    assert caught.value.remedy == "write each as `Name: value`."
    IcebergSink(**rest, headers=corrected)


@pytest.mark.parametrize("header", ["Authorization: Bearer sesame", "cookie: id=sesame"])
def test_a_header_that_is_a_secret_is_refused_and_by_reference_it_is_taken(header: str) -> None:
    rest = {**BASE, "catalog_uri": "https://a"}
    with pytest.raises(ConfigError, match="which is a secret") as caught:
        IcebergSink(**rest, headers=["X-Tenant: shop", header])
    assert "sesame" not in str(caught.value)
    named = re.findall(r"\w+_(?:env|file)", caught.value.remedy)
    assert named == TOKENS.split(", ")
    for reference in named:
        IcebergSink(**rest, headers=["X-Tenant: shop"], **{reference: "SECRET"})


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


SECRETS = pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("password", "mysql://lake@127.0.0.1:1/catalog"),
        ("token", "http://127.0.0.1:1"),
        ("credential", "http://127.0.0.1:1"),
    ],
)


@SECRETS
def test_a_variable_that_is_not_set_is_named_and_set_it_is_used(
    kind: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_SECRET", raising=False)
    sink = IcebergSink(**{**BASE, "catalog_uri": uri, f"{kind}_env": "LAKE_SECRET"})
    with pytest.raises(ConfigError, match=f"'LAKE_SECRET', named by {kind}_env, is not") as caught:
        sink.check_connection()
    assert caught.value.remedy == "set it where the driver runs."
    monkeypatch.setenv("LAKE_SECRET", "id:sesame")
    assert_nobody_answers(sink)


@SECRETS
def test_a_file_that_cannot_be_read_is_named_and_another_is_used(
    kind: str, uri: str, tmp_path: Path
) -> None:
    options = {**BASE, "catalog_uri": uri, f"{kind}_file": str(tmp_path)}
    with pytest.raises(ConfigError, match=f"named by {kind}_file, cannot be read") as caught:
        IcebergSink(**options).check_connection()
    assert caught.value.remedy == f"give a file with the {kind} that the driver may read."
    (tmp_path / "secret").write_text("id:sesame\n")
    assert_nobody_answers(IcebergSink(**{**options, f"{kind}_file": f"{tmp_path}/secret"}))


def assert_nobody_answers(sink: IcebergSink) -> None:
    """Its options are right, and nobody is at its address."""
    with pytest.raises(TargetUnreachableError):
        sink.check_connection()


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
    with closing(harness.catalog()) as catalog:
        with catalog.load_table(TABLE).transaction() as change:
            change.remove_properties(*options["properties"])
        catalog.create_table("shop.others", harness.fields)
    harness.opened().close()
    harness.opened(table="shop.others").close()


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


def test_a_catalog_that_is_missing_is_corrected_or_made_but_not_its_folder(
    harness: IcebergHarness,
) -> None:
    missing = harness.folder / "nowhere" / "catalog.db"
    elsewhere: dict[str, Any] = {"catalog_uri": f"sqlite:///{missing}"}
    with pytest.raises(PreflightError, match=f"{missing} does not exist") as caught:
        harness.opened(**elsewhere)
    assert "correct catalog_uri; with `create=true`" in caught.value.remedy
    made(harness)
    harness.opened().close()
    with pytest.raises(PreflightError, match=f"{missing} does not exist"):
        harness.opened(**elsewhere, create=True)
    missing.parent.mkdir()
    harness.opened(**elsewhere, create=True, table="shop.others").close()


def test_a_missing_table_is_named_and_created_or_by_its_right_name_it_is_written(
    harness: IcebergHarness,
) -> None:
    made(harness)
    others: dict[str, Any] = {"table": "shop.others"}
    for call in (
        lambda: harness.opened(**others),
        harness.new_sink(**others).check_connection,
    ):
        with pytest.raises(ConfigError, match=r"There is no table shop\.others in") as caught:
            call()
        assert caught.value.remedy == (
            "create it, correct table, or let the sink create it: `create=true`."
        )
    harness.opened(table=TABLE).close()
    with closing(harness.catalog()) as catalog:
        catalog.create_table("shop.others", harness.fields)
    harness.opened(**others).close()
    with closing(harness.catalog()) as catalog:
        catalog.drop_table("shop.others")
        shutil.rmtree(harness.folder / "warehouse" / "shop" / "others")
    harness.opened(**others, create=True).close()


def test_a_catalog_that_the_account_may_not_read_is_named_until_it_may(
    harness: IcebergHarness,
) -> None:
    made(harness)
    database = harness.folder / "catalog.db"
    database.chmod(0)
    for call in (harness.opened, harness.new_sink().check_connection):
        with (
            permissions_checked(),
            pytest.raises(PreflightError, match="unable to open database file") as caught,
        ):
            call()
        assert "the account may read and write the tables of the catalog" in caught.value.remedy
    database.chmod(0o600)
    with permissions_checked():
        harness.opened().close()


def test_a_table_whose_metadata_cannot_be_written_is_named_until_it_can(
    harness: IcebergHarness,
) -> None:
    made(harness)
    metadata = Path(harness.table().metadata_location.removeprefix("file://")).parent
    metadata.chmod(0o555)
    with (
        permissions_checked(),
        pytest.raises(TargetUnreachableError, match=r"could not be raised .*denied") as caught,
    ):
        harness.opened()
    assert "the table's folder can be written, then start the job again" in caught.value.remedy
    metadata.chmod(0o755)
    with permissions_checked():
        assert harness.opened().history().generation == 1


def test_a_folder_of_data_that_is_a_link_is_refused(harness: IcebergHarness) -> None:
    made(harness)
    data = Path(harness.table().location().removeprefix("file://")) / "data"
    (harness.folder / "elsewhere").mkdir()
    data.symlink_to(harness.folder / "elsewhere")
    with pytest.raises(PreflightError, match="is a link, or on another file system") as caught:
        harness.opened()
    assert caught.value.remedy == "replace it with a plain folder."
    data.unlink()
    data.mkdir()
    harness.opened().close()

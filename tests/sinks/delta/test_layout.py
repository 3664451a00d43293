"""Which changes of a table between the phases leave its data files fitting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twophase.internals.json_values import canonical_json, from_json
from twophase.sinks.delta.features import refusals
from twophase.sinks.delta.layout import TableLayout, differences

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": [],
}


def column(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def marked(name: str, key: str, value: Any) -> dict[str, Any]:
    """A column with one entry of metadata."""
    return {**column(name), "metadata": {key: value}}


def layout(
    *columns: dict[str, Any],
    partitions: tuple[str, ...] = (),
    features: tuple[str, ...] = (),
    **properties: str,
) -> TableLayout:
    protocol = {"protocol": {**PROTOCOL, "writerFeatures": [*features]}}
    schema = json.dumps({"type": "struct", "fields": [*columns]})
    configuration = {f"delta.{key.replace('__', '.')}": value for key, value in properties.items()}
    table = {
        "schemaString": schema,
        "partitionColumns": [*partitions],
        "configuration": configuration,
    }
    return TableLayout.read(json.dumps(protocol), json.dumps({"metaData": table}))


BEFORE = layout(
    column("id"), column("name", "string", False), partitions=("id",), constraints__cheap="id < 9"
)


def test_a_shape_is_read_back() -> None:
    assert from_json(TableLayout, json.loads(canonical_json(BEFORE)), "It") == BEFORE


def same(*more: dict[str, Any], **properties: str) -> TableLayout:
    constraints: dict[str, Any] = {"constraints__cheap": "id < 9", **properties}
    return layout(
        column("id"), column("name", "string", False), *more, partitions=("id",), **constraints
    )


@pytest.mark.parametrize(
    "now",
    [
        BEFORE,
        same(column("note", "string")),
        same(logRetentionDuration="interval 9 days"),
        layout(column("id", comment="new"), column("name", "string"), partitions=("id",), constraints__cheap="id < 9"),  # noqa: E501
        layout(
            column("name", "string", False), column("id"), partitions=("id",), features=("rowTracking",),  # noqa: E501
            constraints__cheap="id < 9",
        ),
    ],
    ids=["nothing", "nullable column", "property", "comment, nullable", "order, feature"],
)  # fmt: skip
def test_the_files_still_fit_after(now: TableLayout) -> None:
    assert differences(BEFORE, now) == []


@pytest.mark.parametrize(
    ("now", "named"),
    [
        (
            layout(column("id"), partitions=("id",), constraints__cheap="id < 9"),
            "'name' was dropped",
        ),
        (same(column("note", "string", False)), "'note' was added"),
        (same(marked("twice", "delta.generationExpression", "id * 2")), "'twice' was added"),
        (same(marked("n", "delta.identity.start", 1)), "'n' was added"),
        (same(marked("n", "delta.invariants", "{}")), "'n' was added"),
        (same(constraints__other="id > 0"), "delta.constraints.other was None"),
        (same(columnMapping__mode="name"), "delta.columnMapping.mode"),
        (same(enableIcebergCompatV2="true"), "enableIcebergCompatV2"),
        (
            layout(column("id"), column("name", "string", False), constraints__cheap="id < 9"),
            "partition columns",
        ),
        (
            layout(column("id", "string"), column("name", "string", False), partitions=("id",)),
            "'id' was long and is string",
        ),
        (
            layout(column("id", nullable=False), column("name", "string", False)),
            "'id' was nullable and is not",
        ),
        (
            layout(marked("id", "delta.columnMapping.physicalName", "x")),
            "'id' has other column metadata",
        ),
    ],
)
def test_the_files_do_not_fit_after(now: TableLayout, named: str) -> None:
    assert any(named in reason for reason in differences(BEFORE, now)), differences(BEFORE, now)


def inside(*fields: dict[str, Any], null: bool = True) -> TableLayout:
    """A table with a struct in an array in a map."""
    array = {
        "type": "array",
        "elementType": {"type": "struct", "fields": [*fields]},
        "containsNull": null,
    }
    kind = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    return layout(column("deep", kind))


def test_a_nullable_field_may_be_added_at_any_depth() -> None:
    before = inside(column("x"), column("y", "string"))
    assert differences(before, inside(column("z"), column("x"), column("y", "string"))) == []
    for now in (
        inside(column("x")),
        inside(column("x", "string"), column("y", "string")),
        inside(column("x", nullable=False), column("y", "string")),
        inside(column("x"), column("y", "string"), column("z", nullable=False)),
        inside(column("x"), column("y", "string"), null=False),
        inside(marked("x", "delta.columnMapping.physicalName", "p"), column("y", "string")),
        layout(column("deep", "string")),
    ):
        [difference] = differences(before, now)
        assert difference.startswith("column 'deep' was ")


def test_a_dropped_feature_is_a_change() -> None:
    before, now = layout(column("id"), features=("rowTracking",)), layout(column("id"))
    assert differences(before, now) == ["table features ['rowTracking'] were dropped"]


def test_what_is_not_known_is_refused_by_name() -> None:
    assert refusals(layout(column("id"), features=("rowTracking", "clustering"))) == []
    assert refusals(layout(column("id"), features=("newThing",))) == [
        "table feature 'newThing' is not supported"
    ]
    [identity] = refusals(
        layout(marked("n", "delta.identity.start", 1), features=("identityColumns",))
    )
    assert "'n' is an identity column" in identity
    [varchar] = refusals(layout(column("s", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(5)")))
    assert "'s' is varchar(5)" in varchar


def test_a_protocol_from_before_table_features_names_none() -> None:
    protocol = json.dumps({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    metadata = json.dumps({"metaData": {"schemaString": '{"type":"struct","fields":[]}'}})
    assert TableLayout.read(protocol, metadata) == TableLayout((), (), (), {})

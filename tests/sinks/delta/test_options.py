"""Options of the Delta sink are checked before there is a Spark."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.errors import ConfigError
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.delta.sink import DeltaSink


def parse(**options: Any) -> DeltaOptions:
    return DeltaOptions.parse(options, "DeltaSink")


@pytest.mark.parametrize(
    "path", ["/lake/orders", "s3a://bucket/orders", "file:/lake/orders", "hdfs://name:8020/orders"]
)
def test_a_place_is_a_path_or_a_uri(path: str) -> None:
    assert parse(path=path).where == path


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "either path or table"),
        ({"path": "/a", "table": "b"}, "either path or table"),
        ({"path": ""}, "path"),
        ({"path": "orders"}, "absolute"),
        ({"path": "../orders"}, "absolute"),
        ({"path": "/a", "root": "lake"}, "absolute"),
        ({"path": "/a\0b"}, "NUL"),
        ({"table": "a", "root": "/lake"}, "root requires path"),
        ({"path": "/a", "partition_by": ["dt", "DT"]}, "once"),
        ({"path": "/a", "partition_by": [""]}, "once"),
        ({"path": "/a", "partitionby": ["dt"]}, "did you mean 'partition_by'"),
        ({"path": "/a", "create": "perhaps"}, "create"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DeltaSink(**options)


def test_text_is_taken_as_spark_gives_it() -> None:
    options = parse(path="/a", create="true", merge_schema="false", partition_by=["dt", "region"])
    assert (options.create, options.merge_schema, options.partition_by) == (
        True,
        False,
        ("dt", "region"),
    )


def test_a_declared_sink_shows_where_its_table_is() -> None:
    assert repr(DeltaSink(path="/lake/orders")) == "DeltaSink('/lake/orders')"

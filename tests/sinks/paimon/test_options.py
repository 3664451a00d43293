"""Options that are refused by name; nothing here needs pypaimon."""

from __future__ import annotations

from typing import Any

import pytest

from harness.paimon_environment import is_here
from twophase.errors import ConfigError
from twophase.internals.sink_entry_points import load_sink
from twophase.sinks.paimon.options import PaimonOptions


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"warehouse": "s3://bucket/lake"}, "give an absolute path"),
        ({"warehouse": "lake"}, "give an absolute path"),
        ({"table": "orders"}, "give database and name"),
        ({"table": "shop.orders$branch_b1"}, "branches and system tables cannot be written"),
        ({"table": "shop.a/b"}, "give database and name"),
        ({"table": "a.b.c"}, "give database and name"),
        ({"partition_by": "a,a"}, "name each partition column once"),
        ({"catalog": "hive"}, "catalog"),
    ],
)
def test_an_option_that_is_not_right_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        PaimonOptions.parse({"warehouse": "/lake", "table": "shop.orders"} | given, "it")


def test_the_folder_is_that_of_a_filesystem_catalog() -> None:
    options = PaimonOptions.parse({"warehouse": "/lake", "table": "shop.orders"}, "it")
    assert str(options.folder) == "shop.db/orders"


@pytest.mark.skipif(is_here(), reason="pypaimon is installed")
def test_without_pypaimon_the_sink_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'twophase\[paimon\]'"):
        load_sink("sink 'lake'", "paimon")

"""A name from outside stays a name, whatever is in it."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase.errors import ConfigError
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.loading import load_data_sql
from twophase.sinks.mysql.rows.types import ColumnPlan

_PIECES = [
    "`", "``", "'", '"', "\\", ";", "--", "#", "/*", "*/", ".", "`.`", "` ; DROP TABLE t; -- ",
    "\n", "\t", "%s", "%(a)s", "{file}", "{}", "@c0", "\u00e9", "\u6f22", "select", "0", "a b",
    "x'00'", "\x01", "\x1a", "$", "?", ":x",
]  # fmt: skip
CORPUS = [
    *[left + right for left, right in itertools.product(_PIECES, _PIECES)][:300],
    "a`" * 32,
    "`" * 64,
]


def parse(text: str) -> tuple[str, str]:
    """Read one quoted identifier as the server does; returns it and the rest."""
    assert text[0] == "`"
    name, position = "", 1
    while True:
        if text[position] != "`":
            name, position = name + text[position], position + 1
        elif text[position + 1 : position + 2] == "`":
            name, position = name + "`", position + 2
        else:
            return name, text[position + 1 :]


@pytest.mark.parametrize("name", [name for name in CORPUS if not name.endswith(" ")])
def test_a_quoted_name_reads_back_as_itself(name):
    assert parse(quote(name)) == (name, "")
    assert parse(qualified(name, "t")) == (name, ".`t`")


@settings(deadline=None)
@given(
    st.text(
        st.characters(max_codepoint=0xFFFF, exclude_characters="\0", exclude_categories=["Cs"]),
        min_size=1,
        max_size=64,
    )
)
def test_any_allowed_name_reads_back_as_itself(name):
    if not name.endswith(" "):
        assert parse(quote(name)) == (name, "")


@pytest.mark.parametrize(
    ("name", "corrected"),
    [("", "a"), ("a" * 65, "a" * 64), ("a\0b", "ab"), ("a ", "a"), ("\U0001f600", "\uffff")],
)
def test_a_name_that_mysql_cannot_have_is_refused(name, corrected):
    with pytest.raises(ConfigError):
        quote(name)
    assert parse(quote(corrected)) == (corrected, "")


def test_a_column_named_like_our_placeholder_stays_a_column():
    plans = [
        ColumnPlan("{file}", "{file}", pa.int64(), Encoding.PLAIN, True),
        ColumnPlan("@c0", "@c0", pa.binary(), Encoding.BINARY, True),
    ]
    statement = load_data_sql("`s`.`{file}`", plans)
    assert statement.startswith("LOAD DATA LOCAL INFILE {file} INTO TABLE `s`.`{file}` ")
    assert statement.endswith("(`{file}`, @c1) SET `@c0` = UNHEX(@c1)")

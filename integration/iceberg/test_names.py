"""Names of tables and namespaces of every kind, in catalogs behind servers: they read back as they
were given, or are refused by name before anything is written.

`tests/sinks/iceberg/test_names.py` has them in SQLite's, with columns, branches, partition fields.
"""

from __future__ import annotations

import re
from contextlib import closing

import pyarrow as pa
import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from harness.selection import first_of
from integration.catalogs import KINDS
from tests.sinks.iceberg.test_names import COLUMNS, FIELDS, PLAIN, ROWS, filled, with_column
from twophase.errors import ConfigError, TwoPhaseError

pytestmark = [pytest.mark.part("files"), pytest.mark.server]

TABLES = [
    "a\\b", "a b", "UPPER", "select", "x" * 128, "_twophase",
    *PLAIN, 'a"b', "a?b", "a#b", " a", "a ", "+", "&", "a%2Fb", "a/b", "a\0b", "x" * 256,
]  # fmt: skip
IN_TYPE = re.compile(r"[A-Za-zäöüÜïéé北京ﬁ0-9٣x_.$ ]+")
"""Names that Hive takes inside of others, of those that are tried."""
BY_THE_SERVER = "does not take the name"
OF_REST = ("\\", "\n", "%")
"""What the path of a URL may not have for the server that the tests run, though it is quoted."""


def refusal(kind: str, name: str, *, of_table: bool) -> str | None:
    """Return what is said of a name that is refused."""
    is_plain = re.fullmatch(r"\w{1,128}", name, re.ASCII)
    if kind == "hive":
        return None if is_plain else "in table (has|is longer)"
    if len(name.encode()) > 255 or any(mark in name for mark in "/\0"):
        return "in table (has|is longer)"
    if kind == "mysql":
        is_blank = not of_table and name != name.strip()
        return "begins or ends with a blank" if is_blank else None
    if any(mark in name for mark in "?#"):
        return "in table has"
    return BY_THE_SERVER if any(mark in name for mark in OF_REST) else None


def is_exact_or_refused(place: Place, expected: str | None) -> None:
    harness = IcebergHarness(place, FIELDS)
    if expected is None:
        filled(harness, ROWS)
        harness.opened(create=False).close()
        assert harness.rows_visible() == ROWS
        return
    before = place.listed()
    with pytest.raises(TwoPhaseError, match=expected) as caught:
        harness.opened()
    assert re.search("name the table otherwise|leave it out here too", str(caught.value))
    assert place.listed() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", first_of(6, dict.fromkeys(TABLES)), ids=repr)
def test_a_table(place: Place, kind: str, name: str) -> None:
    namespace = place.table.partition(".")[0]
    place.table = f"{namespace}.{name}"
    expected = refusal(kind, name, of_table=True)
    is_exact_or_refused(place, expected)
    if expected is None:
        with closing(IcebergHarness(place).catalog()) as catalog:
            kept = name.lower() if kind == "hive" else name
            assert catalog.list_tables(namespace) == [(namespace, kept)]


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", dict.fromkeys(TABLES), ids=repr)
def test_a_namespace(place: Place, kind: str, name: str) -> None:
    own = place.table.partition(".")[0]
    namespace = own + (name[len(own) :] if len(name) > 100 else name)
    place.table = f"{namespace}.orders"
    is_exact_or_refused(place, refusal(kind, namespace, of_table=False))


@pytest.mark.parametrize("kind", ["rest"])
def test_a_table_whose_name_a_server_does_not_take_is_named_otherwise(place: Place) -> None:
    namespace = place.table.partition(".")[0]
    harness = IcebergHarness(place, FIELDS)
    place.table = f"{namespace}.a\\b"
    for create in (True, False):
        with pytest.raises(TwoPhaseError, match=re.escape(f"name {place.table!r}")) as caught:
            harness.opened(create=create)
        assert "every server takes ASCII letters, digits, _ and -" in str(caught.value)
    place.table = f"{namespace}.Az09_-b"
    filled(harness, ROWS)
    assert harness.rows_visible() == ROWS


@pytest.mark.parametrize("kind", ["hive"])
@pytest.mark.parametrize("name", first_of(3, dict.fromkeys(["a-b", "a b", *COLUMNS])), ids=repr)
def test_a_column_and_a_field_inside_of_others(place: Place, name: str) -> None:
    """Hive reads the types of columns again whenever a table is altered."""
    fields, rows = with_column(name)
    harness = IcebergHarness(place, fields)
    if IN_TYPE.fullmatch(name):
        filled(harness, rows)
        assert harness.table().schema().as_arrow().names == fields.names
        assert harness.rows_visible() == rows
        return
    before = place.listed()
    with pytest.raises(ConfigError, match=r"inside it a metastore reads only letters") as caught:
        harness.opened()
    assert "change the rows in the query" in caught.value.remedy
    assert place.listed() == before


@pytest.mark.parametrize("kind", ["hive"])
def test_a_column_with_such_a_field_is_added_once_the_field_is_renamed(place: Place) -> None:
    harness = IcebergHarness(place, FIELDS)
    harness.opened().close()
    for name in ("a-b", "a_b"):
        inside = pa.struct([(name, pa.int64())])
        harness.fields = pa.schema([*FIELDS, ("it", pa.list_(inside))])
        if name == "a-b":
            with pytest.raises(ConfigError, match="dots and blanks, not 'a-b'"):
                harness.opened(schema_change="add_columns")
    harness.options["schema_change"] = "add_columns"
    filled(harness, [{"id": 1, "it": [{"a_b": 7}]}])
    assert harness.rows_visible() == [{"id": 1, "it": [{"a_b": 7}]}]

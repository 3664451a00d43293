"""Columns as both servers describe them."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.sinks.mysql.columns import Column, read_columns


class Answer:
    """A session that answers one query."""

    def __init__(self, is_mariadb: bool, **shown: Any) -> None:
        self.is_mariadb = is_mariadb
        self._shown = {"type": "varchar", "nullable": "NO", "default": None, "extra": "", **shown}

    def rows(self, sql: str, arguments: object) -> list[tuple[Any, ...]]:
        del sql, arguments
        shown = self._shown
        kind, full = shown["type"], shown.get("column_type", shown["type"])
        sizes = (None, None, None, None)
        return [("c", kind, full, shown["nullable"], shown["default"], shown["extra"], "x", *sizes)]


def column(is_mariadb: bool, **shown: Any) -> Column:
    [found] = read_columns(Answer(is_mariadb, **shown), "shop", "orders")  # type: ignore[arg-type]
    return found


# as MySQL 8.0.12, MySQL 9 and MariaDB 10.11 show them
@pytest.mark.parametrize(
    ("is_mariadb", "shown", "default", "is_expression"),
    [
        (False, {"default": "it's \\ new"}, "it's \\ new", False),
        (False, {"default": "CURRENT_TIMESTAMP"}, "CURRENT_TIMESTAMP", False),
        (False, {"type": "datetime", "default": "CURRENT_TIMESTAMP"}, "CURRENT_TIMESTAMP", True),
        (False, {"default": "concat(_utf8mb4\\'it\\\\\\'s\\',1)", "extra": "DEFAULT_GENERATED"},
         "concat(_utf8mb4'it\\'s',1)", True),
        (False, {"default": None}, None, False),
        (True, {"default": None}, None, False),
        (True, {"default": "NULL", "nullable": "YES"}, None, False),
        (True, {"default": "'it''s \\\\ \\n'"}, "it's \\ \n", False),
        (True, {"default": "'NULL'"}, "NULL", False),
        (True, {"default": "''"}, "", False),
        (True, {"type": "int", "default": "-7"}, "-7", False),
        (True, {"type": "double", "default": "1e300"}, "1e300", False),
        (True, {"type": "bit", "default": "b'101'"}, "b'101'", False),
        (True, {"default": "concat('it\\'s',lcase('B'))"}, "concat('it\\'s',lcase('B'))", True),
        (True, {"default": "current_timestamp()"}, "current_timestamp()", True),
        (True, {"default": "'a' or 'b'"}, "'a' or 'b'", True),
        *[(is_mariadb, {"type": "enum", "column_type": "enum('it''s','b')"}, "it's", False)
            for is_mariadb in (True, False)],
        (False, {"type": "enum", "column_type": "enum('a','b')", "default": "b"}, "b", False),
        (False, {"type": "enum", "column_type": "enum('a','b')", "nullable": "YES"}, None, False),
        (True, {"type": "enum", "column_type": "enum('a','b')", "default": "NULL",
            "nullable": "YES"}, None, False),
        (False, {"type": "set", "column_type": "set('a','b')"}, None, False),
    ],
)  # fmt: skip
def test_a_default_is_a_value_or_an_expression(
    is_mariadb: bool, shown: dict[str, Any], default: str | None, is_expression: bool
) -> None:
    found = column(is_mariadb, **shown)
    assert (found.default, found.default_is_expression) == (default, is_expression)
    assert found.required == (default is None and shown.get("nullable") != "YES")


def test_labels_keep_their_letters() -> None:
    declared = "enum('New','x,y','it''s','a\\\\b','two\\nlines','','\\0','unsigned','\\\\''')"
    assert Column("c", "enum", declared).labels == [
        "New", "x,y", "it's", "a\\b", "two\nlines", "", "\0", "unsigned", "\\'"
    ]  # fmt: skip

"""Names in SQL text: the one place where a name from outside becomes part of a statement."""

from __future__ import annotations

from twophase.errors import ConfigError

_MAX_LENGTH = 64


def quote(name: str) -> str:
    """Return `name` as a quoted identifier.

    Raises:
        ConfigError: the name is no valid MySQL identifier.
    """
    if not name or len(name) > _MAX_LENGTH:
        raise ConfigError(
            f"{name!r} cannot be the name of a schema, table or column: "
            f"1 to {_MAX_LENGTH} characters."
        )
    if "\0" in name or name.endswith(" ") or any(ord(character) > 0xFFFF for character in name):
        raise ConfigError(
            f"{name!r} cannot be the name of a schema, table or column.",
            remedy="use no NUL, no space at the end and no characters beyond U+FFFF.",
        )
    return "`" + name.replace("`", "``") + "`"


def qualified(schema: str, table: str) -> str:
    """Return `schema`.`table`, quoted."""
    return f"{quote(schema)}.{quote(table)}"

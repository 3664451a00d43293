"""Values of rows in messages and log lines: marked as data, on one line, cut, and left out where the application says so.

Errors name the row that is at fault, and repeat what a server, Spark or a library says of it. That text is somebody's
data: it can hold terminal escapes, megabytes, secrets, or a sentence that reads like ours. So none of it is put into a
message as it is:

    Duplicate entry 'a\\nb'     ->  "Duplicate entry 'a\\\\nb'"
    ten megabytes              ->  'aaaa'... (10,485,760 characters)
    spark.twophase.redactRowValues=true
                               ->  <redacted>
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping

from twophase.errors import ConfigError

SETTING = "spark.twophase.redactRowValues"
"""Of Spark, because the workers of an application serve all its jobs; they read it from their environment."""

VARIABLE = "TWOPHASE_REDACT_ROW_VALUES"
REDACTED = "<redacted>"
LIMIT = 300
_FIELD_LIMIT = 2000

_redacting: set[bool] = set()


def share_redaction(setting: str, environment: MutableMapping[str, str]) -> None:
    """Take the setting for this process, and hand it on. Once on it stays on: a worker may serve several sessions.

    Args:
        setting: `true` or `false`.
        environment: of the Python workers of one Spark application, `SparkContext.environment`.

    Raises:
        ConfigError: it is neither.
    """
    if setting.lower() not in ("true", "false"):
        raise ConfigError(f"Spark's setting {SETTING} is {setting!r}.", remedy="set it to true or false.")
    if setting.lower() == "true":
        _redacting.add(True)
    if is_redacting():
        environment[VARIABLE] = "true"


def is_redacting() -> bool:
    """Whether values of rows are left out of messages."""
    return True in _redacting or os.environ.get(VARIABLE, "").lower() == "true"


def shown(value: object, limit: int = LIMIT) -> str:
    """A value of a row, or a text that may quote one, as a message shows it.

    Args:
        value: anything; a text is quoted, a row is shown with its columns' names.
        limit: in characters, or bytes. What is escaped is longer.
    """
    return REDACTED if is_redacting() else _quoted(value, limit)


def printable(text: str) -> str:
    """A text for a log line: nothing in it ends the line or steers a terminal, and it is cut."""
    rest = f"... ({len(text):,} characters)" if len(text) > _FIELD_LIMIT else ""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:_FIELD_LIMIT]) + rest


def _quoted(value: object, limit: int) -> str:
    match value:
        case str() | bytes():
            unit = "characters" if isinstance(value, str) else "bytes"
            rest = f"... ({len(value):,} {unit})" if len(value) > limit else ""
            return repr(value[:limit]) + rest
        case Mapping():
            return "{" + _joined(((f"{key!r}: ", item) for key, item in value.items()), limit) + "}"
        case list() | tuple():
            return "[" + _joined((("", item) for item in value), limit) + "]"
        case _:
            text = repr(value)
            return text if text.isprintable() and len(text) <= limit else _quoted(text, limit)


def _joined(items: Iterable[tuple[str, object]], limit: int) -> str:
    parts: list[str] = []
    left = limit
    for head, item in items:
        if left <= 0:
            parts.append("...")
            break
        parts.append(head + _quoted(item, left))
        left -= len(parts[-1])
    return ", ".join(parts)

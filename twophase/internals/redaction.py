"""Row values in messages and log lines: marked, on one line, truncated, redacted if configured.

Errors name the row that is at fault, and quote what a server or a library says about it. That text
can hold terminal escapes, megabytes, secrets, or a sentence that imitates our messages:

    Duplicate entry 'a\\nb'     ->  "Duplicate entry 'a\\\\nb'"
    ten megabytes              ->  'aaaa'... (10,485,760 characters)
    spark.twophase.redactRowValues=true
                               ->  <redacted>
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping

from twophase.errors import ConfigError, TwoPhaseError

SETTING = "spark.twophase.redactRowValues"
"""A Spark setting: workers serve all jobs of an application, and read it from the environment."""

VARIABLE = "TWOPHASE_REDACT_ROW_VALUES"
REDACTED = "<redacted>"
LIMIT = 300
_FIELD_LIMIT = 2000

_PASSWORD = re.compile(
    r"""(?P<url>://[^\s:/@]*:)(?=[^\s/@]+@)[^\s"'&;,@]+"""
    r"""|(?P<key>\b(?:password|passwd|pwd|secret|token)=)(?:"[^"]*|'[^']*|[^\s"'&;,@]+)""",
    re.IGNORECASE,
)
_VARIABLE_NAME = re.compile("[A-Z_][A-Z0-9_]*")
_redacting: set[bool] = set()


def share_redaction(setting: str, environment: MutableMapping[str, str]) -> None:
    """Apply the setting to this process and pass it on. Once on it stays on, whatever the session.

    Args:
        setting: `true` or `false`.
        environment: of the Python workers of one Spark application, `SparkContext.environment`.

    Raises:
        ConfigError: the setting is neither.
    """
    if setting.lower() not in ("true", "false"):
        what = f"Spark's setting {SETTING} is {setting!r}."
        raise ConfigError(what, remedy="set it to true or false.")
    if setting.lower() == "true":
        _redacting.add(True)
    if is_redacting():
        environment[VARIABLE] = "true"


def is_redacting() -> bool:
    """Return whether row values are redacted from messages."""
    return True in _redacting or os.environ.get(VARIABLE, "").lower() == "true"


def shown_variable(name: str) -> str:
    """Return the name of an environment variable for a message; not one that may be the secret.

    Somebody has perhaps written the password where its variable is to be named.
    """
    return repr(name) if _VARIABLE_NAME.fullmatch(name) else "(not shown: write its name)"


def shown_file(path: str) -> str:
    """Return the path of a file with a secret for a message; likewise."""
    is_path = path.startswith(("/", "./", "../")) or os.path.lexists(path)
    return repr(path) if is_path else "(not shown: write its path)"


def cause_of(error: BaseException) -> str:
    """Return what an error says; one that is not ours may quote rows."""
    is_ours = isinstance(error, TwoPhaseError)
    return REDACTED if is_redacting() and not is_ours else str(error)


def shown(value: object, limit: int = LIMIT) -> str:
    """Format a row value, or a text that may quote one, for a message.

    Args:
        value: anything; a text is quoted, a row is shown with its column names.
        limit: in characters or bytes, before escaping.
    """
    return REDACTED if is_redacting() else _quoted(value, limit)


def printable(text: str) -> str:
    """Escape and truncate a text, so that it neither ends a log line nor controls a terminal, and
    leave out what looks like a password.
    """
    rest = f"... ({len(text):,} characters)" if len(text) > _FIELD_LIMIT else ""
    safe = _PASSWORD.sub(_hidden, text[: 2 * _FIELD_LIMIT])[:_FIELD_LIMIT]
    escaped = (char if char.isprintable() else repr(char)[1:-1] for char in safe)
    return "".join(escaped) + rest


def _hidden(found: re.Match[str]) -> str:
    before = found["url"] or found["key"]
    quote = found[0][len(before) :][:1]
    return before + (quote if quote in ('"', "'") else "") + REDACTED


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

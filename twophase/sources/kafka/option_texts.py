"""The texts of options: names separated by commas, topics, servers, patterns.

What is no text is left to the type check.
"""

from __future__ import annotations

import re

_SERVERS = re.compile(
    r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}(,(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5})*"
)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def parse_names(value: object) -> object:
    """Split a text into its names."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def parse_topics(value: object) -> object:
    """Split a text into names of topics, each once."""
    topics = parse_names(value)
    if isinstance(topics, tuple):
        bad = [topic for topic in topics if not _TOPIC.fullmatch(topic)]
        if bad or not topics:
            wrong = bad[0] if bad else ""
            raise ValueError(f"give topic names separated by commas; {wrong!r} is none")
        return tuple(dict.fromkeys(topics))
    return topics


def parse_servers(value: object) -> object:
    """Check that a text names servers; leave out the white space."""
    text = re.sub(r"\s", "", value) if isinstance(value, str) else value
    if isinstance(text, str) and not _SERVERS.fullmatch(text):
        raise ValueError("give HOST:PORT, or several separated by commas")
    return text


def check_pattern(value: object) -> object:
    """Check that a text is a regular expression."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return value

"""Errors of libraries, for messages."""

from __future__ import annotations


def brief(error: Exception) -> str:
    """Return an error in one line, without the statement that it quotes."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0][:400]}"

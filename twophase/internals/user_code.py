"""What a user's own code has raised, in one line: a class that a job file names runs such code."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

RAISED = (Exception, SystemExit)
"""What is caught of code that a job file names: a module may call `sys.exit`."""

_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_OURS = Path(__file__).parents[1]
_MESSAGES = (AttributeError, ImportError, SyntaxError)
"""Whose message says what they are."""


def described(error: BaseException) -> str:
    """Return what was raised, with the file and the line of the user's code where there is one."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    if not isinstance(error, _MESSAGES):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place(error)
    return f"{text} ({place})" if place else text


def has_place(error: BaseException) -> bool:
    """Return whether a line of the user's code has raised it."""
    return bool(_place(error))


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if _is_users(frame.filename)]
    return f"{users[-1].filename}, line {users[-1].lineno}" if users else ""


def _is_users(name: str) -> bool:
    path = Path(name)
    if name.startswith("<") or path.is_relative_to(_OURS):
        return False
    is_package = "site-packages" in path.parts
    return is_package or not any(path.is_relative_to(folder) for folder in _LIBRARIES)

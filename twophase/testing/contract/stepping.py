"""Steps through the lines of one method: a test may stop or kill the thread at each of them.

A failpoint is where the author of a sink expected a crash to hurt. A mistake is where nobody
expected one; a crash at every line finds it there too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

LINES_AT_MOST = 40


def spread(count: int, at_most: int) -> Sequence[int]:
    """Return the numbers 1 to `count`, or `at_most` of them in even steps."""
    if count <= at_most:
        return range(1, count + 1)
    return sorted({1 + step * (count - 1) // max(1, at_most - 1) for step in range(at_most)})


def _folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{package}, which the suite names, is not a package")
    return Path(found.submodule_search_locations[0])


class Lines:
    """Calls a function before each line that a method, or a callee of the sink, runs in one thread.

    A line is counted only when it is first reached: the passes of a loop are not distinguished.

    Args:
        owner: the class or object with the method.
        method: its name.
        at_line: called with the line's number, counted from 1 over all calls of the method.
        packages: see `ContractBase`.
    """

    def __init__(
        self,
        owner: object,
        method: str,
        at_line: Callable[[int], None] = lambda _: None,
        packages: Iterable[str] = (),
    ) -> None:
        function: Any = inspect.unwrap(getattr(type(owner), method))
        self._seen: set[tuple[CodeType, int]] = set()
        self._code = function.__code__
        self._folders = {
            Path(self._code.co_filename).parent,
            Path(inspect.getfile(type(owner))).parent,
            *map(_folder, packages),
        }
        self._at_line = at_line
        self._method: FrameType | None = None
        self._before: Any = None

    @property
    def count(self) -> int:
        """The number of lines that were run."""
        return len(self._seen)

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._method is None and frame.f_code is self._code:
            self._method = frame
        if self._method is None or Path(frame.f_code.co_filename).parent not in self._folders:
            return None
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        here = (frame.f_code, frame.f_lineno)
        if event == "line" and here not in self._seen:
            self._seen.add(here)
            self._at_line(len(self._seen))
        elif event == "return" and frame is self._method:
            self._method = None
        return self._step

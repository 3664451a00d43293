"""Steps of a job that another application may stop, by name, until what it has done is undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from twophase.errors import TwoPhaseError

Step = Callable[[], object]
Verdict = tuple[type[TwoPhaseError], str] | None
"""The error that stops the job, and what it says; None if nothing does."""


def take(steps: Iterable[Step], verdict: Verdict, undo: Step, start: Step) -> None:
    """Take the steps in order. The one that is refused is asked for again.

    Args:
        steps: of the job and of the other application.
        verdict: what has to stop the job, once.
        undo: does what the error says, before the job is started again.
        start: starts the job again; may itself be the step that is refused.
    """
    left, refused = deque(steps), False
    while left:
        try:
            left[0]()
        except TwoPhaseError:
            if refused or verdict is None:
                raise
            with pytest.raises(verdict[0], match=verdict[1]):
                raise
            refused = True
            undo()
            start()
            if left[0] == start:
                left.popleft()
        else:
            left.popleft()
    assert refused == (verdict is not None), f"DID NOT RAISE {verdict}"

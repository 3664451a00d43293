"""Runs jobs side by side in one driver, each held at a different crash point, so that one
SIGKILL catches them all.

A failpoint armed with `delay:...@1` holds the first job that reaches it and lets the others pass.
Each job starts when the previous one is held: a job that is held takes no processor time, so the
next one has the machine to itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from twophase.errors import TwoPhaseError
from twophase.internals.failpoints import LOG_VARIABLE, VARIABLE

_AT_ONCE = 4
_WAIT_S = 900.0
_POLL_S = 0.005


def run_jobs(work: Sequence[Callable[[], None]]) -> None:
    """Run all jobs to their end. If one fails, end this process: the others
    would go on for ever.
    """
    holding = "=delay:" in os.environ.get(VARIABLE, "")
    with ThreadPoolExecutor(len(work) if holding else _AT_ONCE) as pool:
        jobs: list[Future[None]] = []
        for job in work:
            held = _held()
            jobs.append(pool.submit(job))
            if holding:
                wait_until(partial(_is_held_or_done, jobs[-1], held), "a job to be held")
        done, _ = wait(jobs, None, FIRST_EXCEPTION)
        failed = [error for ended in done if (error := ended.exception()) is not None]
        if failed:
            sys.stderr.write(f"{type(failed[0]).__name__}: {failed[0]}\n")
            sys.stderr.flush()
            os._exit(failed[0].exit_code if isinstance(failed[0], TwoPhaseError) else 1)


def armed(point: str) -> bool:
    """Return whether the driver was started with this crash point."""
    return f"{point}=" in os.environ.get(VARIABLE, "")


def acted(point: str) -> bool:
    """Return whether it has acted."""
    return Path(f"{os.environ[LOG_VARIABLE]}.{point}").exists()


def _is_held_or_done(job: Future[None], held_before: int) -> bool:
    return _held() > held_before or job.done()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds."""
    deadline_s = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {_WAIT_S:g} s for {what}")
        time.sleep(_POLL_S)


def _held() -> int:
    """Return how many points have acted."""
    log = Path(os.environ[LOG_VARIABLE])
    return len(log.read_text().splitlines()) if log.exists() else 0

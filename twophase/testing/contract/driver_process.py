"""Runs a driver that may be killed, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

_DRIVER_TIMEOUT_S = 120

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["twophase.testing.contract.kill_driver"])


def run_driver(run: Callable[..., None], *given: Any) -> tuple[int | None, Any]:
    """Run one driver and its workers, including late ones, to their end."""
    ours, reports = _processes.Pipe(duplex=False)
    process = _processes.Process(target=run, args=(*given, reports), daemon=True)
    process.start()
    reports.close()
    found: Any = None
    with ours:
        try:
            while ours.poll(_DRIVER_TIMEOUT_S):
                found = ours.recv()
            process.kill()
            found = f"it hung for {_DRIVER_TIMEOUT_S} s"
        except EOFError:
            pass  # the driver and all workers have ended
    process.join()
    return process.exitcode, found

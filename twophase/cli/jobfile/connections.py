"""Checks the targets before Spark is up, so that a wrong password is reported within a second."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from twophase.contract.sink import Sink


def check_connections(sinks: Mapping[str, Sink]) -> None:
    """Let every sink check its target, concurrently.

    Raises:
        TwoPhaseError: the error of the first sink, in the job's order, that has found a problem.
    """
    with ThreadPoolExecutor(max(1, len(sinks)), thread_name_prefix="twophase-check") as pool:
        for outcome in [pool.submit(sink.check_connection) for sink in sinks.values()]:
            outcome.result()

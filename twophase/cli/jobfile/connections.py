"""Asks the targets before Spark is up: a wrong password is told in a second, not when everything else is up."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from twophase.protocol.sink import ChecksConnection, Sink


def check_connections(sinks: Mapping[str, Sink]) -> None:
    """Let every sink that can look for its target do so, side by side.

    Raises:
        TwoPhaseError: what the first sink with a problem, in the order of the job, has found.
    """
    asked = [sink for sink in sinks.values() if isinstance(sink, ChecksConnection)]
    if not asked:
        return
    with ThreadPoolExecutor(len(asked), thread_name_prefix="twophase-check") as pool:
        for outcome in [pool.submit(sink.check_connection) for sink in asked]:
            outcome.result()

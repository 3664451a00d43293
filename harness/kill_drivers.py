"""What the drivers that the contract suite kills have imported before they are forked.

Importing pyiceberg takes seconds. The processes of all files of tests come from one server, which
has one list.
"""

from __future__ import annotations

import multiprocessing

_DEAR = ("iceberg", "kafka")


def import_sinks_early() -> None:
    """Let the server of processes import the sinks that take long, if it has not been started."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        [
            "twophase.testing.contract.kill_driver",
            *(f"twophase.sinks.{sink}.open_sink" for sink in _DEAR),
        ]
    )

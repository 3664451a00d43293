"""Ends a driver with the test run that started it, however hard that run died.

`python -m twophase.testing.parent_death MODULE [ARGUMENT...]` runs a module in this way; its
starter holds its standard input.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def die_with_parent() -> None:
    """SIGKILL this process as soon as nobody holds the other end of its standard input."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

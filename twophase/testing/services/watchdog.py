"""Kills a server when the process that started it is gone, however hard that process died.

Run as a separate script, `python watchdog.py PARENT_PID SERVER_PID FOLDER`, with only
the standard library.

PR_SET_PDEATHSIG would need no process, but it fires when the *thread* that forked ends, and
fixtures start servers in short-lived threads. A pipe to the parent would be kept open by the
parent's other forked children. So the two processes themselves are watched:

1. Open a handle on the parent and on the server (pidfd: immune to a pid being used again).
2. Wait until one of them ends.
3. The parent ended first: kill the server and remove its data.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys

_POLL_MS = 1_000


def watch(parent_pid: int, server_pid: int, folder: str) -> None:
    """Return when the server has ended; kill it, and remove its folder, once the parent is gone."""
    try:
        server = os.pidfd_open(server_pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(server, select.POLLIN)
    try:
        parent = os.pidfd_open(parent_pid)
        poller.register(parent, select.POLLIN)
    except ProcessLookupError:
        parent = -1
    # The parent may have died, and its pid been reused, before the handle was
    # opened: getppid shows it.
    while os.getppid() == parent_pid:
        ended = {descriptor for descriptor, _ in poller.poll(_POLL_MS)}
        if server in ended:
            return
        if parent in ended:
            break
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(server, signal.SIGKILL)
    poller.unregister(server)
    select.select([server], [], [], _POLL_MS / 1_000)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

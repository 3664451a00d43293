"""The process that plain drivers are forked from: everything is imported once, so a driver
starts in milliseconds.

    python -m integration.without_spark.zygote FD [MODULE ...]

FD is a socket, with JSON lines both ways; the modules are imported too.

It has one Python thread, and so has each fork until it has forked its own workers. A request starts
a driver in a session of its own; the answer is its process id, and, when it ends, its exit status.
It adopts what drivers leave behind, so that nobody's processor time is lost from the account of a
test run. The fork server of `multiprocessing`, enough for `twophase.testing.contract.kill`, gives a
driver neither a session nor its workers a parent that waits for them.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from harness.processes import adopt_orphans
from integration.without_spark import mutants, source
from integration.without_spark.driver import run_job
from integration.without_spark.workers import Workers
from twophase.internals.failpoints import be_the_driver
from twophase.internals.workers import freeze_gc
from twophase.testing.parent_death import die_with_parent


def main(requests: socket.socket) -> None:
    """Fork drivers until nobody asks any more."""
    adopt_orphans()
    list(source.read(0, 0, 1))  # pyarrow imports pandas with the first rows
    "localhost".encode("idna")  # as the first connection does
    freeze_gc()
    assert threading.active_count() == 1
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    lines = requests.makefile("rb", buffering=0)
    while True:
        for key, _ in selector.select():
            if key.fileobj is requests:
                line = lines.readline()
                if not line:
                    return
                _say(requests, {"started": _start(json.loads(line), requests)})
            else:
                os.read(woken, 4096)
                _reap(requests)


def _start(request: dict[str, Any], requests: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.detach()
        _become_driver(request)
    return pid


def _become_driver(request: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 64)
        be_the_driver(Path(request["points"]))
        mutant = request["settings"].get("mutant")
        with mutants.broken(mutant) if mutant else nullcontext():
            workers = Workers()
            die_with_parent()
            code, message = run_job(request["settings"], workers)
            sys.stderr.write(message)
            workers.close()
    except BaseException:  # noqa: BLE001 printed; nobody is above
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _reap(requests: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say(requests, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(requests: socket.socket, answer: dict[str, int]) -> None:
    requests.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        import_module(name)
    main(socket.socket(fileno=int(sys.argv[1])))

"""The CPU time of a process and its descendants, from /proc."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies (prctl(2),
    PR_SET_CHILD_SUBREAPER).

    A JVM whose driver was killed then stays in the tree, and its time is counted. What has ended
    is to be reaped, or each look at the processes of this machine takes longer.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_orphans() -> None:
    """Wait for children that have ended and that no `Popen` of this process will ask about. Their
    time counts as that of children that were waited for.
    """
    # not isinstance, which asks a weak proxy's referent for its class: it may be dead
    popens = (one for one in gc.get_objects() if issubclass(type(one), subprocess.Popen))
    # one that another thread is making, or that was refused its arguments, has no number
    own = {getattr(one, "pid", None) for one in popens}
    for path in Path("/proc").glob("[0-9]*/stat"):
        stat = _Stat.read(path)
        if stat is not None and stat.parent == os.getpid() and stat.pid not in own:
            with suppress(ChildProcessError):
                os.waitpid(stat.pid, os.WNOHANG)


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds, user and system, of a process, its descendants, and those of them
    that were waited for.

    Args:
        root: a process id.
    """
    children: dict[int, list[_Stat]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        if (stat := _Stat.read(path)) is not None:
            children[stat.parent].append(stat)
    own = _Stat.read(Path(f"/proc/{root}/stat"))
    waiting = [own] if own is not None else []
    ticks = 0
    while waiting:
        stat = waiting.pop()
        ticks += stat.ticks
        waiting += children[stat.pid]
    return ticks / _TICKS_PER_S


@dataclass(frozen=True)
class _Stat:
    """The fields of /proc/PID/stat that are used here, numbered as in proc(5)."""

    pid: int
    parent: int
    ticks: int

    @classmethod
    def read(cls, path: Path) -> _Stat | None:
        """Return the fields; None if the process has ended meanwhile."""
        try:
            text = path.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # the name before it may hold spaces and brackets
        fields = text[text.rindex(")") + 2 :].split()
        return cls(int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15])))

"""Distributes tests over processes: by file, except for a few long files, whose tests go
to any free process.

A file is one unit of work, because its tests may share what its first test made. A file of several
minutes in one process keeps the run waiting at the end; the files worth splitting are listed here.
Each test of such a file makes all it needs, or takes it from a session fixture.

An error of pytest or of a plugin in one of the processes makes another one in the process that
distributes, which says nothing of the first: the first is printed once more after it.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

SPLIT = frozenset(
    {
        "integration/without_spark/test_ahead.py",
        "integration/without_spark/test_behind.py",
        "integration/without_spark/test_kills.py",
        "integration/without_spark/test_servers.py",
        "integration/without_spark/test_zombies.py",
        "integration/getting_started/test_demo.py",
        "integration/kafka/test_expired_records.py",
        "integration/mysql/test_kills.py",
        "integration/mysql/test_session_exit.py",
        "integration/repair/test_rewrite_kills.py",
        "integration/mysql/test_servers_die.py",
        "integration/mysql/test_takeover.py",
        "integration/mysql/test_zombies.py",
        "verification/simulation/test_many_seeds.py",
        "verification/simulation/test_mistakes.py",
    }
)

_CAUSE_LINES = 12
_internal_errors: list[str] = []


def work_of(nodeid: str) -> str:
    """Return the unit of work that a test belongs to."""
    file = nodeid.split("::", 1)[0]
    return nodeid if file in SPLIT else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Use these units of work for `--dist loadfile`; leave other modes to xdist."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return work_of(nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_internalerror(excrepr: object) -> None:
    """Print the end of the first internal error after each later one."""
    if _internal_errors:
        cause = _internal_errors[0].splitlines()[-_CAUSE_LINES:]
        sys.stderr.writelines(f"INTERNALERROR> {line}\n" for line in ["The first one was:", *cause])
    _internal_errors.append(str(excrepr))

"""Two suites, each with a module that its drivers have imported; for `test_kill_drivers.py`."""

from __future__ import annotations

import sys
from typing import Any

from twophase.testing.contract.kill import SinkKillContract, run_driver

MODULES = ("colorsys", "sched")
"""Modules that nothing else imports."""


class OneSink(SinkKillContract):
    preload = (MODULES[0],)


class AnotherSink(SinkKillContract):
    preload = ("module.that.is.not.there", MODULES[1])


class SinkWithoutAny(SinkKillContract):
    pass


def tell(reports: Any) -> None:
    """A driver, that says which of them it has."""
    reports.send([name for name in MODULES if name in sys.modules])


def main() -> None:
    """Write exit code and report of a driver."""
    sys.stdout.write(str(run_driver(tell)))

"""Tests that need pypaimon, which has an environment of its own; elsewhere they are skipped."""

from __future__ import annotations

from harness.paimon_environment import pytest_pycollect_makemodule

__all__ = ["pytest_pycollect_makemodule"]

"""The ledger of CPU seconds: what counts as growth, and whose time is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cost_ledger import GREW, SLACK_S, Cost, Ledger, Report

LOOP_S = 0.02
ROOT = Path(__file__).parents[2]

# A grandchild works, its parent is killed, then it is killed too. Its time belongs to the
# tree all the same.
ORPHAN = """
import os, signal, subprocess, sys, time, weakref
from harness.processes import adopt_orphans, reap_orphans, tree_cpu_s
WORK = "import time\\nwhile time.process_time() < 0.3: pass\\nprint('done', flush=True)\\ntime.sleep(60)"
PARENT = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]).pid, flush=True); input()"
if sys.argv[1] != "leave":
    adopt_orphans()
parent = subprocess.Popen(
    [sys.executable, "-c", PARENT, WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
worker = int(parent.stdout.readline())
assert parent.stdout.readline() == "done\\n"
before = tree_cpu_s(os.getpid())
parent.kill()
parent.wait()
os.kill(worker, signal.SIGKILL)
if sys.argv[1] == "reap":
    class Gone: pass
    dead = weakref.proxy(Gone())  # libraries leave such proxies behind, and reaping meets them
    own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    reap_orphans()
    assert not os.path.exists(f"/proc/{worker}")
    assert own.wait() == 3
print(before, tree_cpu_s(os.getpid()))
"""  # noqa: E501


def ledger(**entries: float) -> Ledger:
    return Ledger(LOOP_S, entries)


@pytest.mark.parametrize(
    ("cpu_s", "grew"),
    [(100.0, False), (100.0 * GREW, False), (100.0 * GREW + SLACK_S + 1, True), (400.0, True)],
)
def test_growth_is_reported(cpu_s: float, grew: bool) -> None:
    line = f"file: {cpu_s:.1f} CPU s, the ledger says 100.0"
    assert ledger(file=100.0).growth({"file": Cost(cpu_s, LOOP_S)}) == [line] * grew


def test_a_machine_that_is_half_as_fast_makes_nothing_grow() -> None:
    assert ledger(file=100.0).growth({"file": Cost(220.0, 2 * LOOP_S)}) == []


def test_what_costs_little_may_double_and_what_is_new_is_reported() -> None:
    costs = {"small": Cost(SLACK_S, LOOP_S), "new": Cost(SLACK_S + 1, LOOP_S)}
    assert ledger(small=1.0).growth(costs) == [
        f"new: {SLACK_S + 1:.1f} CPU s, not in the ledger yet"
    ]


def test_one_kind_of_run_does_not_change_the_entries_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    Ledger(LOOP_S, {"a": 1.0}).write("test", path)
    Ledger(9.9, {"a": 7.0}).write("proof", path)
    assert Ledger.read("test", path) == Ledger(LOOP_S, {"a": 1.0})
    assert Ledger.read("proof", path) == Ledger(LOOP_S, {"a": 7.0})


@pytest.mark.parametrize(("how", "kept"), [("adopt", True), ("reap", True), ("leave", False)])
def test_the_time_of_a_killed_driver_s_jvm_is_counted(how: str, kept: bool) -> None:
    printed = subprocess.check_output(
        [sys.executable, "-c", ORPHAN, how], env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True
    )
    before, after = map(float, printed.split())
    assert (after >= before) is kept


def test_the_parts_of_a_split_file_add_up_and_a_fixture_made_in_each_process_counts_once() -> None:
    report = Report("test", write=False, own=None)
    for name in ("file", "fixture kafka"):
        report.take(name, Cost(10.0, LOOP_S))
        report.take(name, Cost(10.0, 2 * LOOP_S))
    assert {name: cost.scaled_s(LOOP_S) for name, cost in report.costs.items()} == {
        "file": 15.0,
        "fixture kafka": 5.0,
    }
